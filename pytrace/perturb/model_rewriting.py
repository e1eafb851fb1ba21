"""What a model is asked to write on purpose: five jobs, each with its wording and its labelled examples as data."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Literal, Self

import msgspec

from pytrace.documents.mentions import holds
from pytrace.documents.sentences import clean_text
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.prompts import Demonstration, require, require_text

# another: a phrase of the same kind; broader: a higher-level expression; unrelated: a sentence without a relation;
# unintended: one without the intent's information; misstated: a sentence with a wrong answer.
Job = Literal["another", "broader", "unrelated", "unintended", "misstated"]


class Rewriting(Demonstration, frozen=True):
    """A text, what must stay in it, what it must no longer tell, and the text that came of it (empty if it is asked for)."""

    # "What External Knowledge is Preferred by LLMs?", section 4.2 and appendices A and I.

    FILE = "perturbations.jsonl"
    SHAPE = '{"job": text, "input": text, "keep": [text, ...], "without": text, "output": text}'
    job: Job
    input: str
    keep: tuple[str, ...] = ()
    without: str = ""
    output: str = ""

    def _validated(self) -> Self:
        require_text("input", self.input)
        require_text("output", self.output)
        for phrase in self.keep:
            require_text("text to keep", phrase)
            require(holds(self.output, phrase), f"the output lacks {phrase!r}, which is to be kept; write it in")
        same = self.output == self.input or (self.job in {"another", "broader"} and holds(self.output, self.input))
        require(not same, f"the output still says {self.input!r}; reword it")
        return self


class _Wording(msgspec.Struct, frozen=True):
    """How a job is put to a model, and how many texts of what length it writes to each input."""

    instruction: str
    prompt: str
    max_tokens: int
    samples: int
    temperature: float


_JOBS = msgspec.json.decode(
    (resources.files(__package__) / "rewriting_jobs.json").read_bytes(), type=dict[Job, _Wording]
)


def rewrite(model: LanguageModel | None, job: Job, inputs: Sequence[Rewriting], *, seed: int) -> list[list[str]]:
    """Return what a model writes to each input, clean and none twice; all inputs are asked in one call."""
    if model is None or not inputs:
        return [[] for _ in inputs]
    wording = _JOBS[job]
    shown = tuple((_input(wording, row), row.output) for row in Rewriting.load_with("job", job))
    completions = model.generate(
        [Prompt(wording.instruction, shown, _input(wording, row)) for row in inputs],
        max_tokens=wording.max_tokens, stop=("\n",), temperature=wording.temperature, n=wording.samples, seed=seed,
    )  # fmt: skip
    texts = [dict.fromkeys(_tidy(one.text, job) for one in written) for written in completions]
    return [[text for text in written if text] for written in texts]


def _input(wording: _Wording, row: Rewriting) -> str:
    return wording.prompt.format(input=row.input, keep="; ".join(row.keep) or "-", without=row.without)


def _tidy(text: str, job: Job) -> str:
    # A phrase has no full stop, a sentence keeps its own.
    cleaned = clean_text(text).strip("\"' ." if job == "another" else "\"' ")
    return cleaned.rstrip(".") if job == "broader" else cleaned
