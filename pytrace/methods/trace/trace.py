"""TRACE: reasoning chains of knowledge triples pick the evidence for a multi-hop question.

Source: "TRACE the Evidence: Constructing Knowledge-Grounded Reasoning Chains for Retrieval-Augmented Generation". A
question's documents become triples (section 3.2), a beam search over ranked and selected triples becomes chains (3.3), and
a reader answers from the chains' triples (TRACE-Triple) or from the documents they vote for (TRACE-Doc, 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from pytrace.errors import InputError
from pytrace.methods.base import (
    READER_CHOICE,
    Choice,
    Count,
    Documents,
    MethodRow,
    Positive,
    Replacement,
    Selected,
    Stages,
    choice,
    register,
)
from pytrace.methods.ranking import required
from pytrace.methods.trace.beam_search import SearchSettings, build_chains
from pytrace.methods.trace.ranker import Ranker
from pytrace.methods.trace.selector import (
    BlackBoxSelector,
    ChunkedSelector,
    Demonstrations,
    Layout,
    LetterSelector,
    RankerSelector,
    Selector,
    TextSelector,
)
from pytrace.methods.trace.triple_method import TripleMethod, UnitSettings, check_count
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import OPTION_LABELS, LanguageModel
from pytrace.reader.prompts import ChainDemonstration

Scoring = Literal["letters", "likelihood", "pmi", "ranker", "black-box"]


class TraceSettings(UnitSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method; the defaults are the paper's."""

    # How the selector scores candidates; "ranker" leaves the language model out (the ablation "w/o selector"),
    # "black-box" generates one letter a step where a back end gives no logits.
    scoring: Scoring = "letters"
    # For letters: the order of the prompt's parts, and contextual calibration.
    layout: Layout = "paper"
    calibrated: bool = False
    # For likelihood and PMI: fusion with the ranker's score, and what is added to the score of ending a chain.
    ranker_weight: float = 0.0
    stop_bias: float = 0.0
    # Over an index: chains go through the passages that are found to answer together, a unit of each, at most so many; `length`
    # has no say. None: through those that are given, as without an index.
    passages: Positive | None = None
    # Chains that are read then; as many as `chains` says if None.
    passage_chains: Positive | None = None
    # What offers candidates: "dense", the triples nearest to the question and the chain; "cross-encoder", the best of four
    # times as many by a model that reads each with them; or "none", the ablation "w/o triple ranker": every triple of the
    # question, in the documents' order. Letters then ask in parts where there are more than 51, and `candidates`,
    # `ranker_weight` and `link_weight` have no say.
    ranker: Literal["dense", "cross-encoder", "none"] = "dense"
    # For the ranker: what is added to the similarity of a triple whose head the question or the chain names, an open
    # head's shared among the documents with it (0: the paper's).
    link_weight: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    # Offer a chain no further triple of a document that it already has one of.
    new_documents: bool = False
    # K, the triples offered at each step.
    candidates: Positive = 20
    # TRACE's L, the most triples of a chain; b, the options tried a chain and step; R, the chains that are read.
    length: Positive = 4
    beams: Positive = 5
    chains: Positive = 5
    # Chains kept while searching, R of which are read (the authors' program keeps 20 and reads 5); R if None.
    width: Positive | None = None
    # Whether the selector may end a chain.
    adaptive: bool = True
    # For the selector: how many, and whether they are chosen by similarity to the question.
    demonstrations: Count = 3
    adaptive_demonstrations: bool = True


class Trace(TripleMethod[TraceSettings]):
    """Answers multi-hop questions with TRACE."""

    known_as = "trace"
    default = TraceSettings()

    def _prepare(self) -> None:
        settings = self.settings
        self._ranker = Ranker(
            self._encoder if settings.ranker != "none" else None,
            cross_encoder=required(self._cross_encoder) if settings.ranker == "cross-encoder" else None,
            candidates=settings.candidates,
            link_weight=settings.link_weight,
            new_documents=settings.new_documents,
        )
        self._selector = make_selector(self._model, self._encoder, settings)
        self._sizes = SearchSettings(
            settings.length, settings.beams, settings.chains, width=settings.width, adaptive=settings.adaptive
        )

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        sizes = self._sizes
        if self._search is not None and self.settings.passages is not None:
            read = self.settings.passage_chains or sizes.chains
            sizes = replace(sizes, length=self.settings.passages, chains=read)
            with stages.stage("retrieve"):
                documents = self._search(questions, "together", self.settings.passages)
        triples, index = self._index(documents, stages)
        chains = build_chains(questions, index, self._ranker, self._selector, sizes, stage=stages.stage)
        return self._selected(chains, triples, documents)


def make_selector(model: LanguageModel, encoder: Encoder, settings: TraceSettings) -> Selector:
    """Make the selector that the settings ask for."""
    if settings.ranker == "none":
        if settings.scoring in {"ranker", "black-box"} or (settings.scoring, settings.layout) == ("letters", "shared"):
            raise InputError(
                f"ranker=none offers every triple, among which scoring={settings.scoring} with layout={settings.layout} cannot "
                "choose; use scoring=letters with layout=paper, likelihood or pmi"
            )
    elif settings.scoring in {"letters", "black-box"} and settings.candidates >= len(OPTION_LABELS):
        raise InputError(
            f"candidates is {settings.candidates}, but letters can tell only {len(OPTION_LABELS) - 1} apart; "
            "use fewer candidates or another scoring"
        )
    check_count("demonstrations", settings.demonstrations, len(ChainDemonstration.load()))
    shown = Demonstrations(settings.demonstrations, encoder=encoder if settings.adaptive_demonstrations else None)
    if settings.scoring == "letters":
        letters = LetterSelector(model, shown, layout=settings.layout, calibrated=settings.calibrated)
        return ChunkedSelector(letters) if settings.ranker == "none" else letters
    if settings.scoring == "black-box":
        return BlackBoxSelector(model, shown, layout=settings.layout)
    if settings.scoring == "ranker":
        return RankerSelector()
    return TextSelector(
        model,
        shown,
        scoring=settings.scoring,
        ranker_weight=settings.ranker_weight,
        stop_bias=settings.stop_bias,
    )


# What replaces the paper's parts was chosen with SmolLM2-135M on HotpotQA's adversarial subset, by hand and by `pytrace tune`
# (docs/measurements.md). It makes most tails up, so that sentences are its units and phrases its triples. It judges letters no better
# than chance, and texts by PMI well; but what PMI adds to the ranker is gone once the ranker knows which heads are named.
WITHOUT_TRIPLES = Replacement(
    "triples",
    ("unit=sentence", "extraction=phrases", "adaptive_triple_demonstrations=false", "spans=true"),
    "units are sentences instead of written triples",
)
WITHOUT_LETTERS = (
    Replacement(
        "logits",
        ("scoring=black-box",),
        "the language model writes one letter per step instead of scoring all options",
    ),
    Replacement("ends", ("adaptive=false",), "chains have a fixed length instead of ending where the model ends them"),
    Replacement(
        "letters",
        (
            "scoring=ranker",
            "adaptive=true",  # whatever else a user has score them may end chains
            "link_weight=0.5",
            "new_documents=true",
            "candidates=8",
            "length=2",
            "beams=8",
            "width=8",
            "demonstrations=2",
            "adaptive_demonstrations=false",
        ),
        "the embedding model selects instead of the language model",
    ),
)
# A small model drowns in context, so that one chain of two documents is read, the best of those that were searched. Over an index
# the search has already chosen the passages, better than sentences by the encoder alone would, and with a second chain the context
# holds the answer more often (docs/corpus.md); but whole passages are more to read than units of them.
READS_LITTLE: dict[str, tuple[str, ...]] = {
    "triple": ("chains=1", "reader_documents=2", "passages=3", "passage_chains=2"),
    "document": ("chains=1", "reader_documents=2", "passages=2", "passage_chains=1"),
}
_SPACE = (
    # A selector that the ranker has no part in is worth little where the model is small; letters are the paper's.
    Choice(
        "scoring",
        (
            ("scoring=ranker", "ranker_weight=0"),
            ("scoring=pmi", "ranker_weight=0"),
            ("scoring=pmi", "ranker_weight=1"),
            ("scoring=likelihood", "ranker_weight=1"),
            ("scoring=letters", "ranker_weight=0", "layout=paper"),
            ("scoring=letters", "ranker_weight=0", "layout=shared"),
        ),
    ),
    Choice(
        "unit",
        (
            ("unit=sentence",),
            ("unit=document",),
            ("unit=triple", "extraction=phrases"),
            ("unit=triple", "extraction=written"),
        ),
    ),
    choice("link_weight", 0, 0.25, 0.5, 1),
    choice("new_documents", "true", "false"),
    choice("width", "none", 4, 8),
    choice("chains", 1, 2, 3, 5),
    choice("length", 1, 2, 3, 4),
    choice("beams", 2, 4, 8),
    choice("candidates", 4, 8, 16),
    choice("adaptive", "true", "false"),
    choice("demonstrations", 0, 1, 2, 3),
    choice("adaptive_demonstrations", "true", "false"),
)


for _name, _reader, _summary, _space in (
    ("trace", "triple", "triples → beam search for reasoning chains → answer from the chains' triples", ()),
    (
        "trace-doc",
        "document",
        "the same chains vote for documents → answer from those",
        (choice("reader_documents", 1, 2, 3, "none"),),
    ),
):
    register(
        MethodRow(
            _name,
            _summary,
            Trace,
            msgspec.structs.replace(TraceSettings(), reader=_reader),
            (WITHOUT_TRIPLES, *WITHOUT_LETTERS, Replacement("reads", READS_LITTLE[_reader])),
            takes=frozenset({"graph", "search", "cross-encoder"}),
            space=(*_SPACE, *_space, READER_CHOICE),
        )
    )
