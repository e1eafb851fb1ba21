"""What every language model here can do: three verbs over lists, and a count of what they cost."""

from __future__ import annotations

import string
import threading
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

import msgspec

from pytrace.records import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

# Options beyond these would need two-token labels, which letters-as-answers cannot score in one step.
OPTION_LABELS = string.ascii_uppercase + string.ascii_lowercase


# How a `Prompt` becomes text: by the model's own chat template, without one, or the first if there is a template.
Style = Literal["auto", "chat", "plain"]


class Prompt(msgspec.Struct, frozen=True):
    """A few-shot prompt in parts, so that a back end can apply its chat template and drop what does not fit.

    `demonstrations` are (input, output) pairs, least useful first: where a prompt is too long the first one goes first.
    `answer_start` begins the model's own answer. Plain text puts `separator` between an input and its output. `lasting` says
    that instruction and demonstrations are the same whatever is asked, so that an engine may keep what it computed of them.
    """

    instruction: str
    demonstrations: tuple[tuple[str, str], ...]
    input: str
    answer_start: str = ""
    separator: str = " "
    lasting: bool = False

    def plain(self) -> str:
        """Return the prompt as one text without a chat template, ready for the answer."""
        blocks = [self.instruction] if self.instruction else []
        blocks += [f"{text}{self.separator}{output}" for text, output in self.demonstrations]
        blocks.append(self.input + (f"{self.separator}{self.answer_start}" if self.answer_start else ""))
        return "\n\n".join(blocks)

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt as messages of a chat, without the beginning of its answer."""
        messages = [{"role": "system", "content": self.instruction}] if self.instruction else []
        for text, output in self.demonstrations:
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": output}]
        return [*messages, {"role": "user", "content": self.input}]


def without_system(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return messages for a chat template that knows no system role: its words open the first user message."""
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *map(dict, messages[2:])]


class Completion(msgspec.Struct, frozen=True):
    """A generated text: its token count, why it ended, and the sum of its tokens' log-probabilities (natural)."""

    text: str
    tokens: int
    finish: Literal["end", "stop", "length", "repetition"]
    log_probability: float


class OptionScores(msgspec.Struct, frozen=True):
    """Log-probabilities of option labels at the next token, all surface forms of a label summed.

    `log_probabilities` is float64 [n_options], normalised over the whole vocabulary; `outside` is the probability that
    the next token is none of the labels. A server tells only the likeliest tokens: where it left a form of a label out,
    `bounded` is true for that label, and its log-probability is the largest that it can have. An empty `bounded` says that
    every value is exact.
    """

    log_probabilities: NDArray[np.float64]
    outside: float
    bounded: tuple[bool, ...] = ()


class ContinuationScore(msgspec.Struct, frozen=True):
    """Natural log-probabilities of a text's tokens after a prompt: float64 [n_tokens], and their sum."""

    token_log_probabilities: NDArray[np.float64]

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.token_log_probabilities)

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole text; 0.0 for an empty one."""
        return float(self.token_log_probabilities.sum())


def option_labels(count: int) -> list[str]:
    """Return the first `count` labels: A to Z, then a to z."""
    if not 0 <= count <= len(OPTION_LABELS):
        raise ValueError(
            f"{count} options were asked for, but there are {len(OPTION_LABELS)} letters; use fewer candidates"
        )
    return list(OPTION_LABELS[:count])


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model behind three verbs, each of which takes lists and batches inside.

    A prompt is a `Prompt`, or a `str` that is taken as it stands. A back end that cannot give log-probabilities raises
    `LogitsUnavailableError` from the two scoring verbs, and has `gives_logits` false.
    """

    @property
    def name(self) -> str:
        """A short name for reports."""

    @property
    def fingerprint(self) -> str:
        """Names the weights (a hash where there is a file): what stored work depends on."""

    @property
    def context_tokens(self) -> int:
        """The longest sequence, prompt and answer together, in tokens."""

    @property
    def gives_logits(self) -> bool:
        """Whether the two scoring verbs work."""

    @property
    def deterministic(self) -> bool:
        """Whether the same call gives the same numbers to the last bit, whatever was asked before; recorded in results."""

    @property
    def usage(self) -> Usage:
        """What has been spent since the model was made."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text."""

    def generate(
        self,
        prompts: Sequence[Prompt | str],
        *,
        max_tokens: int | Sequence[int],
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_p: float = 1.0,
        n: int = 1,
        seed: int = 0,
        grammar: str | Sequence[str] | None = None,
        done: Callable[[int, list[Completion]], None] | None = None,
    ) -> list[list[Completion]]:
        """Write `n` completions of every prompt.

        `done(index, completions)` is called once for each prompt, as soon as all of its completions are finished and in
        whatever order that is, but never twice at a time, so that a caller may keep them before the others end. It must not
        call the model; what it raises ends the call.
        """

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        """Score the option labels of every prompt as its next token."""

    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        """Score whole texts as what follows every prompt."""


class DeferredModel:
    """Stands for a language model until something is asked of it; before, it has used nothing."""

    def __init__(self, load: Callable[[], LanguageModel]) -> None:
        self._load = load
        self._loaded: LanguageModel | None = None
        self._loading = threading.Lock()  # threads that ask first at once must not read the file twice

    @property
    def usage(self) -> Usage:
        """What the model was asked so far: nothing before it is loaded."""
        return Usage() if self._loaded is None else self._loaded.usage

    def close(self) -> None:
        """Close the model if it was loaded and can be closed."""
        close = getattr(self._loaded, "close", None)
        self._loaded = None
        if close is not None:
            close()

    def __getattr__(self, name: str) -> Any:
        """Load the model, and hand the rest to it."""
        # Who copies or inspects an object asks for such names; that must not load gigabytes.
        if name.startswith("_"):
            raise AttributeError(name)
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            loaded = self._loaded
        return getattr(loaded, name)


def deferred(load: Callable[[], LanguageModel]) -> LanguageModel:
    """Return a language model that is loaded when it is first used."""
    return cast("LanguageModel", DeferredModel(load))
