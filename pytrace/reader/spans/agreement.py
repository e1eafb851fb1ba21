"""The reader that takes the better of two answers: what the model writes freely, and a span of the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pytrace.models.language_model import Prompt
from pytrace.reader.answers import clean_answer, normalise_answer
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.reader import Candidate, Ranked, SpanReader


class AgreementReader(SpanReader):
    """Answers with the best of the spans and of what the model writes.

    What it writes is one more candidate, which may stand nowhere; that a span says the same speaks for that span.
    """

    reading: ClassVar[Literal["span", "agreement"]] = "agreement"

    def rank(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[list[Ranked]]:
        """Score the likeliest candidates of every question, and what the model writes to it; the best first."""
        chosen = self.candidates(questions, entries, prompts)
        scored = self._scored(chosen, prompts)  # first, since it leaves the prompts in memory
        completions = self.model.generate(prompts, max_tokens=self._max_tokens, stop=("\n",)) if prompts else []
        added = [
            self._written(question, shown, some, clean_answer(one.text), one.log_probability / max(one.tokens, 1))
            for question, shown, some, (one,) in zip(questions, entries, scored, completions, strict=True)
        ]
        more = self._scored(added, prompts) if any(added) else added
        return [self._ranked([*some, *others]) for some, others in zip(scored, more, strict=True)]

    def _written(
        self, question: str, entries: Sequence[str], scored: Sequence[Candidate], text: str, log_probability: float
    ) -> list[Candidate]:
        """Tell what says the same as the model wrote; where nothing does, return that as a candidate of its own."""
        form = normalise_answer(text)
        told = {"written": 1.0, "log-probability of what is written": log_probability}
        for one, known in scored:
            if normalise_answer(one.text) == form:
                known.update(told)
                return []
        # Where a rule decides, or only yes or no can answer, no other answer is looked for.
        if not form or any(one.features.get("the one of two") or "yes" in one.features for one, _ in scored):
            return []
        for found in candidates(question, entries):
            if normalise_answer(found.text) == form:
                return [(found, told)]
        # By features it is as likely as the least of those that were chosen.
        least = scored[-1][0].features if scored else {}
        return [(Scored(text, least, ()), {**told, "written, and no candidate": 1.0})]
