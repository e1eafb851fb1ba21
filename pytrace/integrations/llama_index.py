"""LlamaIndex (``llama-index-core``): a postprocessor that selects, a retriever over an index, and the engine's language model.

>>> from llama_index.core.schema import NodeWithScore, TextNode
>>> selector = PytracePostprocessor(threads=1)
>>> nodes = [NodeWithScore(node=TextNode(text=text)) for text in ("Geese fly south.", "Ada Foah is a town in Ghana.")]
>>> [found.text for found in selector.postprocess_nodes(nodes, query_str="Where is Ada Foah?")][0]
'Ada Foah is a town in Ghana.'
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.selection import (
    CHAINS,
    IndexSearch,
    Passage,
    PassageSelector,
    passage_metadata,
    shared_engine,
)


class PytracePostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that answer a question together, best first, each with its chains in ``metadata["pytrace_chains"]``.

    The chains are kept out of what language models and encoders see of a node. Nodes that are given stay as they are.
    """

    method: str = Field(default="hops", description="Any method of pytrace.")
    settings: list[str] = Field(default_factory=list, description="name=value settings of the method.")
    top_n: int | None = Field(
        default=None, description="Nodes to return: selected ones, then others as given; None: selected ones alone."
    )
    llm: str = Field(default="tiny", description="Profile, model or server, as for pytrace.load.")
    encoder: str | None = Field(default=None, description="Encoder, as for pytrace.load.")
    threads: int | None = Field(default=None, description="Threads of the models.")
    _selector: PassageSelector | None = PrivateAttr(default=None)
    _engine: Engine | None = PrivateAttr(default=None)

    def __init__(self, *, engine: Engine | None = None, **data: Any) -> None:
        super().__init__(**data)
        self._engine = engine

    @classmethod
    def class_name(cls) -> str:
        """Name the class in what is serialised."""
        return "PytracePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("a query is needed to select nodes; give query_str or query_bundle")
        if self._selector is None:
            self._selector = PassageSelector(
                self.method,
                self.settings,
                llm=self.llm,
                encoder=self.encoder,
                threads=self.threads,
                engine=self._engine,
            )
        passages = [
            Passage(found.node_id, found.get_content(metadata_mode=MetadataMode.NONE), found.metadata)
            for found in nodes
        ]
        (selected,) = self._selector.select([query_bundle.query_str], [passages], self.top_n)
        return [_with_chains(nodes[place], score, chains) for place, score, chains in selected]


def _with_chains(found: NodeWithScore, score: float, chains: list[dict[str, Any]]) -> NodeWithScore:
    node = found.node.model_copy()  # shallow: what is changed is made anew, and the framework's own stays
    node.metadata = {**node.metadata, CHAINS: chains}
    node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, CHAINS]
    node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, CHAINS]
    return NodeWithScore(node=node, score=score)


class PytraceRetriever(BaseRetriever):
    """Searches an index across hops: nodes with their chains, source, page and headings in the metadata.

    Parameters
    ----------
    index
        The directory that ``pytrace index build`` made.
    top_n
        Nodes a question.
    llm, encoder, threads, engine
        As for `pytrace.load`, or an engine of one's own; the encoder must be the one of the index.
    """

    def __init__(
        self,
        index: str,
        top_n: int = 5,
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._search = IndexSearch(index, top_n, llm=llm, encoder=encoder, threads=threads, engine=engine)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve_batch([query_bundle.query_str])[0]

    def retrieve_batch(self, questions: Sequence[str]) -> list[list[NodeWithScore]]:
        """Retrieve for several questions, which are encoded and searched together."""
        return [
            [
                _with_chains(
                    NodeWithScore(
                        node=TextNode(id_=document.id, text=document.text, metadata=passage_metadata(document))
                    ),
                    selected.score,
                    selected.chains,
                )
                for document, selected in found
            ]
            for found in self._search.search(questions)
        ]


class PytraceLLM(CustomLLM):
    """The engine's language model: a GGUF file in this process, or a server."""

    model: str = Field(default="tiny", description="Profile, model, GGUF file or server, as for pytrace.load.")
    threads: int | None = Field(default=None, description="Threads of the model.")
    max_tokens: int = Field(default=256, description="Tokens to write at most.")
    temperature: float = Field(default=0.0, description="0 writes the likeliest token each time.")
    seed: int = Field(default=0, description="Of what is drawn at a temperature above 0.")
    _engine: Engine | None = PrivateAttr(default=None)

    def __init__(self, *, engine: Engine | None = None, **data: Any) -> None:
        super().__init__(**data)
        self._engine = engine

    @classmethod
    def class_name(cls) -> str:
        """Name the class in what is serialised."""
        return "PytraceLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What the framework packs prompts by."""
        engine = self._loaded()
        return LLMMetadata(
            context_window=engine.model.context_tokens, num_output=self.max_tokens, model_name=engine.model.name
        )

    def _loaded(self) -> Engine:
        if self._engine is None:
            self._engine = shared_engine(self.model, None, self.threads)
        return self._engine

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002 (LlamaIndex's)
        """Continue a prompt; `kwargs` may have `max_tokens`, `temperature`, `stop` and `seed`."""
        options: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}
        options |= {name: kwargs[name] for name in ("max_tokens", "temperature", "stop", "seed") if name in kwargs}
        ((completion,),) = self._loaded().model.generate([prompt], **options)
        return CompletionResponse(
            text=completion.text, additional_kwargs={"tokens": completion.tokens, "finish": completion.finish}
        )

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Give the whole completion as one piece."""

        def pieces() -> Generator[CompletionResponse, None, None]:
            whole = self.complete(prompt, formatted=formatted, **kwargs)
            yield CompletionResponse(text=whole.text, delta=whole.text, additional_kwargs=whole.additional_kwargs)

        return pieces()
