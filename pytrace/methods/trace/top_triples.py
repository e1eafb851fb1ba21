"""Top-T triples: TRACE without its chains, the triples nearest to the question as they are.

Source: TRACE, section 4.2 (RQ3, "w. Top-T Triples" in tables 2 and 6): the chain constructor is left out, the bi-encoder that
ranks candidates retrieves the T triples most relevant to the question, and these are used as reasoning chains are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.methods.base import Documents, MethodRow, Positive, Replacement, Selected, Stages, register
from pytrace.methods.trace.ranker import Ranker
from pytrace.methods.trace.trace import WITHOUT_TRIPLES
from pytrace.methods.trace.triple_method import TripleMethod, UnitSettings
from pytrace.records import Candidate, Chain


class TopTriplesSettings(UnitSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method; all but `top` are TRACE's own, with its defaults."""

    # TRACE's T, the triples that are taken (the paper: 10, 20 and 25).
    top: Positive = 10


class TopTriples(TripleMethod[TopTriplesSettings]):
    """Answers from the triples nearest to the question, or from the documents that these come from."""

    known_as = "top-triples"
    default = TopTriplesSettings()

    def _prepare(self) -> None:
        self._ranker = Ranker(self._encoder, candidates=self.settings.top)

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        """Take each triple as a chain of its own, scored by its share among the T (softmax of their similarities)."""
        triples, index = self._index(documents, stages)
        with stages.stage("rank"):
            nearest = self._ranker.rank(index, questions, range(len(questions)), [()] * len(questions))
        return self._selected([_chains(candidates) for candidates in nearest], triples, documents)


def _chains(nearest: Sequence[Candidate]) -> list[Chain]:
    scores = np.array([candidate.score for candidate in nearest], dtype=np.float64)
    shares = (scores - np.logaddexp.reduce(scores)).tolist() if nearest else []
    return [Chain((candidate.unit,), (share,), share, False) for candidate, share in zip(nearest, shares, strict=True)]


register(
    MethodRow(
        "top-triples",
        "the triples nearest to the question → answer from those, or from their documents; no chains",
        TopTriples,
        TopTriplesSettings(),
        (WITHOUT_TRIPLES, Replacement("reads", ("reader_documents=2",))),  # as TRACE has it
        takes=frozenset({"graph"}),
    )
)
