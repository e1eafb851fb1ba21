"""DSPy (3.4 and later): a retriever over an index, and an engine for `dspy.LM` that asks a model in this process.

>>> import dspy
>>> lm = dspy.LM("pytrace/tiny", engine=PytraceEngine(threads=1), cache=False, max_tokens=4)
>>> lm("The capital of France is")[0].strip()[:5]
'Paris'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dspy
from dspy import lm15
from dspy.clients.engines.base import validate_request

from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.selection import IndexSearch, passage_metadata, shared_engine
from pytrace.models.language_model import Prompt

_FINISHES = {"end": "stop", "stop": "stop", "length": "length", "repetition": "stop"}


class PytraceRetriever:
    """Searches an index across hops, as `dspy.retrievers.Embeddings` searches its corpus.

    Parameters
    ----------
    index
        The directory that ``pytrace index build`` made.
    k
        Passages a question.
    llm, encoder, threads, engine
        As for `pytrace.load`, or an engine of one's own; the encoder must be the one of the index.
    """

    def __init__(
        self,
        index: str,
        k: int = 5,
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.k = k
        self._search = IndexSearch(index, k, llm=llm, encoder=encoder, threads=threads, engine=engine)

    def __call__(self, query: str, k: int | None = None) -> dspy.Prediction:
        """Return `passages` (texts, likeliest first), their `ids`, `scores`, `metadata` and `chains`."""
        (found,) = self._search.search([query], k)
        return dspy.Prediction(
            passages=[document.text for document, _ in found],
            ids=[document.id for document, _ in found],
            scores=[selected.score for _, selected in found],
            metadata=[passage_metadata(document) for document, _ in found],
            chains=[selected.chains for _, selected in found],
        )


class PytraceEngine:
    """An engine for ``dspy.LM("pytrace/tiny", engine=PytraceEngine())``: a GGUF file in this process, or a server.

    Answers that come before the last message of the user become demonstrations; other texts are put together. Tools, pictures and JSON
    schemas are refused: small models do not keep to them.

    Parameters
    ----------
    llm, threads
        As for `pytrace.load`.
    engine
        An engine of one's own in place of these.
    """

    def __init__(self, llm: str = "tiny", threads: int | None = None, *, engine: Engine | None = None) -> None:
        self._engine = engine or shared_engine(llm, None, threads)

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Answer one request."""
        validate_request(request)
        config = request.config
        if request.tools or config.response_format is not None:
            raise InputError("tools and response formats are not offered by models in this process; ask for text")
        options: dict[str, Any] = {
            "max_tokens": config.max_tokens or 256,
            "temperature": config.temperature or 0.0,
            "stop": config.stop,
            "seed": config.seed or 0,
        }
        if config.top_p is not None:
            options["top_p"] = config.top_p
        model = self._engine.model
        prompt = _prompt(request)
        ((completion,),) = model.generate([prompt], **options)
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(completion.text or " "),
            finish_reason=_FINISHES[completion.finish],
            usage=lm15.Usage(input_tokens=model.count_tokens(prompt.plain()), output_tokens=completion.tokens),
        )

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Give the whole answer as one piece."""
        yield from lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        """Do nothing: the models are shared."""


def _prompt(request: lm15.Request) -> Prompt:
    """Return a conversation as a prompt in parts."""
    system = request.system
    instruction = "" if system is None else system if isinstance(system, str) else "".join(part.text for part in system)
    turns: list[tuple[str, str]] = []  # the role, and all that it said before the other one spoke
    for message in request.messages:
        if any(part.type != "text" for part in message.parts):
            raise InputError("only texts can be asked; leave out pictures, sounds, files and tools")
        role = "assistant" if message.role == "assistant" else "user"
        text = "".join(part.text for part in message.parts)
        if turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((role, text))
    if turns[0][0] == "assistant":
        instruction, turns = "\n\n".join(filter(None, (instruction, turns[0][1]))), turns[1:]
    answer_start = turns.pop()[1] if turns and turns[-1][0] == "assistant" else ""
    if not turns:
        raise InputError("the conversation has no message of a user; ask something")
    pairs = tuple((turns[k][1], turns[k + 1][1]) for k in range(0, len(turns) - 1, 2))
    return Prompt(instruction, pairs, turns[-1][1], answer_start, separator="\n\n")
