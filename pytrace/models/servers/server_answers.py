"""What language model servers answer: records in the shape of OpenAI's, and what is read of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from pytrace.errors import InputError, ServerError
from pytrace.models.language_model import OptionScores
from pytrace.records import Usage

if TYPE_CHECKING:
    from pytrace.models.servers.http_client import HttpClient

_T = TypeVar("_T")
Finish = Literal["end", "stop", "length", "repetition"]
Count = Annotated[int, msgspec.Meta(ge=0)]

# The logarithm of float32's smallest number: a probability that underflowed is at most that.
UNDERFLOW = -103.28
REMEDY = "is this the kind of server it is taken for (dialect)?"


class Tokens(msgspec.Struct):
    """What every tokenizer answers."""

    tokens: list[Count]


class ListedToken(msgspec.Struct):
    """One of the likeliest tokens in a chat."""

    token: str
    logprob: object = None


class ChatToken(msgspec.Struct):
    """A token of a chat's answer."""

    top_logprobs: list[ListedToken] | None = None


class Logprobs(msgspec.Struct):
    """Log-probabilities in the shape of OpenAI's completions, or in that of its chats (`content`)."""

    tokens: list[str] | None = None
    token_logprobs: list[object] | None = None
    top_logprobs: list[dict[str, object] | None] | None = None
    text_offset: list[int] | None = None
    content: list[ChatToken] | None = None


class PromptToken(msgspec.Struct):
    """What vLLM tells of a prompt's token."""

    logprob: object = None


class Message(msgspec.Struct):
    """A chat's answer."""

    content: str | None = None


class Choice(msgspec.Struct):
    """A text, or a piece of one."""

    text: str | None = None
    message: Message | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: list[dict[str, PromptToken] | None] | None = None


class PromptDetails(msgspec.Struct):
    """What a prompt cost less than its length."""

    cached_tokens: Count | None = None


class Counts(msgspec.Struct):
    """What an answer cost."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class OpenAiAnswer(msgspec.Struct):
    """An answer in OpenAI's shape, or an event of one; servers add fields as they like."""

    choices: list[Choice]
    usage: Counts | None = None


def finish_of(choice: Choice) -> Finish:
    """Return why a text ended; vLLM alone tells a stop text from the model's own end (`stop_reason`)."""
    if choice.finish_reason in {"length", "repetition"}:
        return "length" if choice.finish_reason == "length" else "repetition"
    return "stop" if isinstance(choice.stop_reason, str) else "end"


def usage_of(counts: Counts | None, prompt_tokens: int) -> Usage:
    """Return what an answer in OpenAI's shape cost; what the server's cache spared counts as not evaluated."""
    counts = counts or Counts()
    asked = counts.prompt_tokens or prompt_tokens
    generated = counts.completion_tokens or 0
    details = counts.prompt_tokens_details or PromptDetails()
    # The last token written is never fed back.
    return Usage(1, asked, max(asked - (details.cached_tokens or 0), 0) + max(generated - 1, 0), generated, 1)


def option_scores(
    known: Mapping[Any, float], listed: Sequence[float], labels: Sequence[Sequence[Hashable]]
) -> OptionScores:
    """Sum the forms of labels; what the server left out is bounded and flagged."""
    # A form that is not among the known ones is less likely than the least likely one listed, and no likelier than all
    # the probability that is left.
    left = max(1.0 - math.fsum(math.exp(value) for value in known.values()), 0.0)
    # Probabilities come rounded to float32: what is left of 1 is not known closer than that.
    left = max(left, 1e-6)
    least = math.exp(min(listed)) if listed else 1.0
    scores = np.empty(len(labels), dtype=np.float64)
    exact = np.zeros(len(labels), dtype=np.float64)
    bounded = []
    with np.errstate(divide="ignore"):
        for index, forms in enumerate(labels):
            exact[index] = math.fsum(math.exp(known[form]) for form in forms if form in known)
            missing = sum(form not in known for form in forms)
            scores[index] = np.log(min(1.0, exact[index] + min(missing * least, left)) if missing else exact[index])
            if not missing and exact[index] == 0.0:
                scores[index] = max((known[form] for form in forms), default=-math.inf)
            bounded.append(missing > 0)
    outside = max(0.0, 1.0 - float(exact.sum()))
    return OptionScores(scores, outside, tuple(bounded) if any(bounded) else ())


def log_probability(value: object, where: str) -> float:
    """Return a log-probability that a server gave."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= 1e-3:
        # llama-server writes float32's lowest number, about -3.4e38, for what underflowed.
        return UNDERFLOW if value < -1e30 else min(float(value), 0.0)
    raise ServerError(
        f"{where} answers {str(value)[:80]!r} for a log-probability (logprob); its model may be damaged, or it is no model server"
    )


def shaped(answer: object, where: str, kind: type[_T], remedy: str = REMEDY) -> _T:
    """Return an answer as a kind of record; what it lacks, or has of another type, is named."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ServerError(f"{where}: the answer is of another shape ({error}); {remedy}") from error


def model_of(listing: object, model: str | None, client: HttpClient, option: str) -> tuple[str, Mapping[str, Any]]:
    """Return the model that is meant, and its entry in the server's list of models; `option` names it on the command line."""
    entries = listing.get("data") if isinstance(listing, dict) else None
    entries = entries if isinstance(entries, list) else []
    models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if listing is None and model is None:
        raise ServerError(
            f"{client.origin} has no list of models (/v1/models); check the address, or name the model ({option}) if this is "
            "a model server"
        )
    names = [str(entry["id"]) for entry in models]
    if model is None:
        if not names:
            raise ServerError(
                f"{client.origin}/v1/models: the answer has no list of models with an id each (data); check the address, or name "
                f"the model ({option}) if this is a model server"
            )
        if len(names) != 1:
            raise InputError(
                f"the server at {client.origin} has {len(names)} models ({', '.join(names[:8])}); name one ({option})"
            )
        model = names[0]
    elif names and model not in names:
        raise InputError(f"the server at {client.origin} has no model {model!r}, but: {', '.join(names[:8])}")
    if client.without_key(model) != model:
        raise ServerError(
            f"the server at {client.origin} has its API key in a model's name; give the model another name"
        )
    listed: Mapping[str, Any] = next((entry for entry in models if entry["id"] == model), {})
    return model, listed


def short_name(model: str) -> str:
    """Return a model's name as its server has it, without folders."""
    return model.replace("\\", "/").rstrip("/").rpartition("/")[2] or model
