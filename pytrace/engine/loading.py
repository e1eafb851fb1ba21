"""Models of one's choice, loaded when they are first used, and the methods made of them."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytrace.engine.corpus import Corpus
from pytrace.engine.encoders import is_address, load_cross_encoder, load_encoder
from pytrace.errors import InputError
from pytrace.methods.abilities import LARGE, Abilities
from pytrace.models.edge.edge_model import EdgeModel, shipped_edge
from pytrace.models.language_model import deferred
from pytrace.processes import useful_threads
from pytrace.results import Request, Result, Task

if TYPE_CHECKING:
    from pytrace.check_records import Certificate, Response
    from pytrace.engine.running import OnEvent, Resources
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.abilities import ModelAbilities
    from pytrace.methods.base import Method
    from pytrace.methods.catalog import MethodName
    from pytrace.models.encoders.cross_encoder import CrossEncoder
    from pytrace.models.encoders.encoder import Encoder
    from pytrace.models.language_model import LanguageModel
    from pytrace.records import Document

MIN_CONFIDENCE = 0.15
"""Default threshold of confidence for an answer; 89 % of the training questions asked of other documents are below it
(`python -m benches.train_reader`)."""

# Who asks for an encoder while a thread loads it waits for that.
_ENCODERS = threading.RLock()


@dataclass
class Engine:
    """Models and methods on this machine: the front door of the library, made by `pytrace.load`."""

    encoder_name: str = "tiny"
    encoder_settings: tuple[str, ...] = ()
    device: str = "cpu"
    threads: int | None = None
    vector_cache: str | None = None
    llm: str = "tiny"
    gpu_layers: int | None = None
    context: int | None = None
    llm_style: Literal["auto", "chat", "plain"] | None = None
    llm_model: str | None = None
    api_key_env: str = "PYTRACE_API_KEY"
    concurrency: int = 8
    timeout: float = 600.0
    deterministic: bool = False
    cross_encoder_name: str | None = None
    cross_encoder_settings: tuple[str, ...] = ()
    reader_llm: str | None = None
    known_abilities: Abilities | None = None
    min_confidence: float = MIN_CONFIDENCE

    @property
    def _layers_on_gpu(self) -> int:
        """How many layers of a model in this process go to the GPU; -1 stands for all."""
        return self.gpu_layers if self.gpu_layers is not None else -1 if self.device == "cuda" else 0

    def check_device(self, *, language_model: bool = True) -> None:
        """Refuse a card that the kernels or the models cannot use, before anything is read or loaded."""
        if self.device != "cuda":
            return
        from pytrace.kernels import devices
        from pytrace.models.encoders import onnx_graph

        devices.require("cuda")
        onnx_graph.require_device("cuda")
        if language_model and not self.remote:
            from pytrace.models.llama import runtime as llama_runtime

            llama_runtime.require_offload(self._layers_on_gpu)

    @property
    def remote(self) -> bool:
        """Whether the language model runs on a server."""
        return is_address(self.llm)

    @property
    def asks_servers(self) -> bool:
        """Whether any of the models runs on a server."""
        names = (self.llm, self.reader_llm, self.encoder_name, self.cross_encoder_name)
        return any(is_address(name) for name in names if name is not None)

    @functools.cached_property
    def abilities(self) -> ModelAbilities:
        """What the language model can do, by which methods choose their settings: `known_abilities`, or found out when asked for."""
        from pytrace.engine.model_abilities import MeasuredAbilities

        return self.known_abilities or MeasuredAbilities(self.llm, lambda: self.model, reader=self.reader_llm)

    def preload(self, *, language_model: bool = True) -> None:
        """Load the encoder, and the models that read answers, in the background while the caller reads documents.

        A model that cannot be loaded is reported when it is first used.
        """
        reader = self.model if self.reader is None else self.reader

        def load(get: Callable[[], object]) -> None:
            with suppress(Exception):
                get()

        def extraction() -> None:
            _ = self.encoder  # first, since the search begins with it
            if shipped_edge() is not None:
                self.edge_model().open_reader()

        # No daemons: native code must not run on while the process takes itself apart.
        for get in (extraction, *((lambda: reader.context_tokens,) if language_model else ())):
            threading.Thread(target=load, args=(get,), name="loading models").start()

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The encoder."""
        with _ENCODERS:
            if "encoder" not in vars(self):
                vars(self)["encoder"] = load_encoder(
                    self.encoder_name,
                    self.encoder_settings,
                    device=self.device,
                    threads=self.threads,
                    gpu_layers=self.gpu_layers,
                    cache_directory=self.vector_cache or None,  # an empty PYTRACE_VECTOR_CACHE stands for none
                    server=self._server,
                )
            encoder: Encoder = vars(self)["encoder"]
            return encoder

    def edge_model(self) -> EdgeModel:
        """Return the small model that helps to read answers, loaded on first use."""
        with _ENCODERS:
            if "edge" not in vars(self):
                directory = shipped_edge()
                assert directory is not None  # who calls this has looked
                vars(self)["edge"] = EdgeModel(directory, threads=useful_threads(self.threads))
            edge: EdgeModel = vars(self)["edge"]
            return edge

    @functools.cached_property
    def cross_encoder(self) -> CrossEncoder:
        """The cross-encoder, which runs where the encoder does."""
        from pytrace.methods.ranking import NO_CROSS_ENCODER

        if self.cross_encoder_name is None:
            raise InputError(NO_CROSS_ENCODER)
        return load_cross_encoder(
            self.cross_encoder_name,
            self.cross_encoder_settings,
            device=self.device,
            threads=self.threads,
            gpu_layers=self.gpu_layers,
            server=self._server,
        )

    @property
    def _server(self) -> dict[str, Any]:
        """How encoders and cross-encoders on servers are asked."""
        return {"api_key_env": self.api_key_env, "timeout": self.timeout, "concurrency": self.concurrency}

    @functools.cached_property
    def model(self) -> LanguageModel:
        """The language model: a server's where an address is given, else one inside this process, loaded on first use."""
        if self.remote and self.gpu_layers is not None:
            raise InputError(
                "--gpu-layers is for models inside this process; a server has its own settings, so leave it out"
            )
        if self.remote and self.deterministic:
            raise InputError(
                "--deterministic is for models inside this process; a server batches as it likes, so leave it out"
            )
        # Methods that select by the encoder alone never read the language model's file.
        return deferred(functools.partial(self._load_model, self.llm))

    @functools.cached_property
    def reader(self) -> LanguageModel | None:
        """The language model that reads answers, if another one than `model`."""
        return None if self.reader_llm is None else deferred(functools.partial(self._load_model, self.reader_llm))

    def _load_model(self, llm: str) -> LanguageModel:
        from pytrace.engine.model_abilities import prompt_style
        from pytrace.models import registry
        from pytrace.models.llama.llama_cpp import LlamaCppModel
        from pytrace.models.servers.remote_model import RemoteModel

        if is_address(llm):
            return RemoteModel(
                llm,
                model=self.llm_model,
                style=self.llm_style or "auto",
                context=self.context,
                concurrency=self.concurrency,
                timeout=self.timeout,
                api_key_env=self.api_key_env,
            )
        model = LlamaCppModel(
            registry.resolve(llm, "language-model"),
            name=llm,
            context=self.context,
            threads=self.threads,
            gpu_layers=self._layers_on_gpu,
            style=self.llm_style or prompt_style(llm),
            deterministic=self.deterministic,
            prompt_cache=registry.prompt_cache(),
        )
        self._advise(llm, model.parameters)
        return model

    def _advise(self, llm: str, parameters: int) -> None:
        """Say that a large language model deserves a better encoder than the tiny one."""
        from pytrace.models import registry

        known = registry.catalog()
        # An encoder may be named by its profile.
        profile, tiny = known.profile(self.encoder_name), known.profile("tiny")
        encoder = profile.encoder if profile is not None else self.encoder_name
        if parameters >= LARGE and tiny is not None and encoder == tiny.encoder:
            warnings.warn(
                f"{llm} has {parameters / 1e9:.1f} billion parameters but its evidence is found by the tiny encoder; "
                "name a better one (--encoder small), which costs little beside it",
                UserWarning,
                stacklevel=2,
            )

    def with_model(self, model: LanguageModel) -> Engine:
        """Return this engine with another language model, such as one that remembers its answers; models loaded so far are shared."""
        engine = copy.copy(self)
        vars(engine)["model"] = model
        return engine

    def method(self, method: str | MethodName, settings: Sequence[str] = (), **parts: Any) -> Method:
        """Make a method of these models; `parts` are those of `pytrace.methods.catalog.make_method`."""
        from pytrace.methods.catalog import make_method

        return make_method(
            method,
            self.model,
            lambda: self.encoder,
            self.abilities,
            settings,
            reader=self.reader,
            edge=None if shipped_edge() is None else self.edge_model,
            cross_encoder=lambda: self.cross_encoder,
            **parts,
        )

    def run(
        self,
        requests: Sequence[Request],
        corpus: Corpus | str | Path | Sequence[Document] | None = None,
        *,
        resources: Resources | None = None,
        on_event: OnEvent | None = None,
    ) -> list[Result]:
        """Answer requests; the command line, the service and all adapters call this.

        Parameters
        ----------
        requests
            Questions and claims. Those with the same task, method and settings are batched.
        corpus
            A corpus, documents, or a file, folder or index; not needed if each request has its own documents.
        resources
            Graph, knowledge base and checker, for methods and checks that use them.
        on_event
            Called with a stage ("search", "evidence", "answer"), the number of the request from 0, and its result so far.

        Returns
        -------
        list of Result
            One per request, in their order.

        Raises
        ------
        InputError
            A question is empty, a method or setting does not exist, or there is nothing to answer from.
        CancelledRequestError
            The request context of this thread was cancelled.
        """
        from pytrace.engine.running import run

        return run(self, requests, corpus, resources=resources, on_event=on_event)

    def ask(
        self, question: str, corpus: Corpus | str | Path | Sequence[Document] | None = None, **options: Any
    ) -> Result:
        """Answer a question from a corpus.

        Parameters
        ----------
        question
            The question.
        corpus
            A corpus, documents, or a file, folder or index.
        **options
            Other fields of `pytrace.Request`, such as `method`, `settings`, `where`, `check` and `min_confidence`.

        Returns
        -------
        Result
            The answer with its confidence, and in `evidence` the chain that ends at the sentence that holds it.

        Raises
        ------
        InputError
            As for `run`, or there is no such option.
        """
        return self.run([_request(question, "answer", options)], corpus)[0]

    def search(self, question: str, corpus: Corpus | str | Path | Sequence[Document], **options: Any) -> Result:
        """Find the passages that answer a question, alone or together, without a language model.

        Parameters
        ----------
        question, corpus
            As for `ask`.
        **options
            Other fields of `pytrace.Request`, such as `passages`, `chains` and `where`. With a `method`, the result has that method's evidence,
            and a method that selects with a language model loads it.

        Returns
        -------
        Result
            `evidence` has chains and passages, best first; there is no answer.
        """
        return self.run([_request(question, "search", options)], corpus)[0]

    def certify(
        self, responses: Sequence[Response], facts: str | Path | KnowledgeBase, **settings: Any
    ) -> list[Certificate]:
        """Certify the reasoning of responses against a knowledge graph, step by step.

        Parameters
        ----------
        responses
            Chains of thought with their questions.
        facts
            A knowledge base, or a file or directory that one is read from.
        **settings
            Of `pytrace.certify.grounding.GroundingSettings`.

        Returns
        -------
        list of Certificate
            One a response, in their order.

        Raises
        ------
        InputError
            The graph cannot be read.
        """
        from pytrace.certify.certifier import Certifier
        from pytrace.certify.grounding import GroundingSettings
        from pytrace.kg import KnowledgeBase

        base = facts if isinstance(facts, KnowledgeBase) else KnowledgeBase.load(facts, self.encoder)
        return list(Certifier(base, self.encoder, GroundingSettings(**settings)).certify(responses))

    def close(self, *, keep_model: bool = False) -> None:
        """Free the models; they are loaded again when they are asked for."""
        loaded = vars(self)  # where cached properties lie; what is taken out of it is made anew when it is asked for
        # A matcher of answers still asks the model.
        for name in ("encoder", "cross_encoder", "reader", *(() if keep_model else ("model",))):
            model = loaded.pop(name, None)
            if model is not None and hasattr(model, "close"):
                model.close()


def _request(question: str, task: Task, options: dict[str, Any]) -> Request:
    known = set(Request.__struct_fields__) - {"question", "task"}
    if unknown := set(options) - known:
        raise InputError(f"there is no option {min(unknown)!r} of a question; choose among {', '.join(sorted(known))}")
    lists = {name: tuple(value) for name, value in options.items() if name in ("settings", "where", "documents")}
    return Request(question=question, task=task, **{**options, **lists})


def load(
    llm: str = "tiny",
    *,
    encoder: str | None = None,
    reader_llm: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    **options: Any,
) -> Engine:
    """Load the models that questions are answered with; each is read from disk when it is first used.

    Parameters
    ----------
    llm
        A profile or model by name, a GGUF file, or the address of a server.
    encoder
        A model by name, a directory or file (ONNX, GGUF, a static encoder), or the address of a server; the profile's if not
        given.
    reader_llm
        The language model that reads answers, if another one.
    device
        "cpu" or "cuda".
    threads
        Threads of the models; all processors if not given.
    **options
        Any other field of `Engine`, such as `context`, `deterministic` or `vector_cache`.

    Returns
    -------
    Engine
        Models and methods.

    Raises
    ------
    InputError
        There is no such option, or the value of one is not valid.
    DeviceUnavailableError
        The device that was asked for is not there.

    Examples
    --------
    >>> engine = load("tiny", threads=1)
    >>> engine.llm, engine.encoder_name
    ('tiny', 'tiny')
    """
    # Here, for the dataclass's own error would not say which options there are.
    known = {field.name for field in fields(Engine)} - {"encoder_name"}  # it is `encoder` here
    if unknown := set(options) - known:
        raise InputError(f"there is no option {min(unknown)!r}; choose among {', '.join(sorted(known))}")
    if device not in ("cpu", "cuda"):
        raise InputError(f"there is no device {device!r}; choose cpu or cuda")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise InputError(f"threads is {threads!r}; give a number from 1, or None for all processors")
    least = options.get("min_confidence", MIN_CONFIDENCE)
    if not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InputError(f"min_confidence is {least!r}; give a number from 0 to 1")
    engine = Engine(
        encoder_name=encoder or profile_encoder(llm),  # a profile names models that go together
        device=device,
        threads=threads,
        llm=llm,
        reader_llm=reader_llm,
        **options,
    )
    engine.check_device()
    return engine


def profile_encoder(llm: str) -> str:
    """Return the encoder that goes with a profile; the tiny one for anything else."""
    from pytrace.models import registry

    return llm if llm in {profile.name for profile in registry.catalog().profiles} else "tiny"
