"""What a model that reasons in numbered steps is shown: questions with a plan, steps that each state a fact, and an answer.

=================  =======================  ==================================================================
file               loaded by                shows
=================  =======================  ==================================================================
``steps.jsonl``    `step_demonstrations`    a question, the relations that lead to its answer, steps, the answer
=================  =======================  ==================================================================
"""

from __future__ import annotations

import os

import msgspec

from pytrace.reader.prompts import load_demonstrations, require_text


class StepDemonstration(msgspec.Struct, frozen=True):
    """A question, the relations that lead from it to its answer, a step for each, and the answer."""

    question: str
    plan: tuple[str, ...]
    steps: tuple[str, ...]
    answer: str


def step_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[StepDemonstration, ...]:
    """Labelled reasoning in numbered steps."""
    # "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs", appendix F.2.
    return load_demonstrations(path, _StepRow, _step, _SHAPE, shipped="steps.jsonl")


class _StepRow(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    plan: list[str]
    steps: list[str]
    answer: str


_SHAPE = '{"question": …, "plan": [relation, …], "steps": [sentence, …], "answer": …}'


def _step(row: _StepRow) -> StepDemonstration:
    require_text("question", row.question)
    require_text("answer", row.answer)
    if not row.steps or len(row.steps) != len(row.plan):
        raise ValueError(
            f"there are {len(row.steps)} steps and {len(row.plan)} relations in the plan; give one for each, at least one"
        )
    for number, (step, relation) in enumerate(zip(row.steps, row.plan, strict=True), 1):
        require_text(f"step {number}", step, forbidden="\n\r")
        require_text(f"relation {number}", relation, forbidden="\n\r")
    if row.answer not in row.steps[-1]:
        raise ValueError(
            f"the last step {row.steps[-1]!r} does not name the answer {row.answer!r}; a step must conclude it"
        )
    return StepDemonstration(row.question, tuple(row.plan), tuple(row.steps), row.answer)
