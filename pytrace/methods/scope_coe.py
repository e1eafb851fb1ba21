"""ScopeCoE: the fewest retrieved snippets that together hold every feature of a question.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 8.1 and algorithm 1 (appendix E). A pool of snippets is retrieved, each is judged for the question's intent, evidence
relations and evidence nodes, and a cover of all of them is what the reader sees. Beyond the reader a question costs two
calls of the model, each one batch: one that extracts the features, one that judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from pytrace.chain_of_evidence.entailment_judge import EntailmentJudge
from pytrace.chain_of_evidence.feature_extraction import Extraction, FeatureExtractor
from pytrace.chain_of_evidence.features import Inquiry, Judge, Probability
from pytrace.chain_of_evidence.judges import FusedJudge, ModelJudge, TextJudge
from pytrace.kernels.set_cover import minimum_covers, scope_covers
from pytrace.methods.base import (
    READER_CHOICE,
    Count,
    Documents,
    Method,
    MethodRow,
    Positive,
    Replacement,
    Selected,
    Stages,
    choice,
    register,
)
from pytrace.methods.ranking import required
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel
from pytrace.reader.evidence import document_text
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.records import Coverage, Document, Evidence, Feature, FeatureCover
from pytrace.retrieval import Retriever, RetrieverName, rank_each

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ScopeSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method; the defaults are the paper's where it names one."""

    # What is retrieved and chosen: documents, or single sentences.
    snippet: Literal["document", "sentence"] = "document"
    # How the pool is ranked, and how many snippets it has at most ("given": the documents' own order).
    retriever: RetrieverName = "dense"
    pool: Positive = 20
    # "model" asks the language model yes or no, "text" needs none, "fused" adds up the log-odds of both by halves.
    # By the language model, by words and vectors, by both, or by a cross-encoder that was trained for entailment.
    judge: Literal["model", "text", "fused", "entailment"] = "model"
    # For the model as judge: subtract its log-odds under a text without content.
    calibrated: bool = False
    # A snippet holds a feature from this probability on.
    threshold: Share = 0.5
    # "greedy" is the paper's search in three phases, "exact" the fewest snippets that there can be.
    cover: Literal["greedy", "exact"] = "greedy"
    # For the greedy cover: see `pytrace.kernels.set_cover.scope_cover`.
    recheck: bool = False
    # Snippets by retrieval order where no feature was found, or no snippet holds one.
    top: Positive = 5
    # For the extraction of features: labelled questions shown, and whether nodes and relations must be words of the
    # question.
    feature_demonstrations: Count = 5
    spans: bool = False
    # Hold the features to their JSON by a grammar; false for a server that takes none.
    grammar: bool = True
    # Labelled judgements shown to the model as judge.
    judge_demonstrations: Count = 0


class ScopeCoe(Method):
    """Answers questions from the fewest snippets that hold a chain of evidence."""

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder,
        settings: ScopeSettings | None = None,
        *,
        retriever: Retriever | None = None,
        extractor: FeatureExtractor | None = None,
        judge: Judge | None = None,
        cross_encoder: Callable[[], CrossEncoder] | None = None,
        name: str = "scope-coe",
    ) -> None:
        self.settings = settings or ScopeSettings()
        self.name = name
        self._model = model
        self._encoder = encoder
        self._retriever = retriever
        self._extractor = extractor or make_feature_extractor(model, self.settings)
        self._judge = judge or make_judge(model, encoder, self.settings, cross_encoder)
        self._reader = make_reader(model, self.settings)

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        """Note what no snippet holds, and where the order of retrieval had to do."""
        with stages.stage("retrieve"):
            pools = self._pools(questions, documents)
        with stages.stage("features"):
            extractions = self._extractor.extract(questions)
        inquiries = [
            Inquiry(question, extraction.features.all, tuple(document_text(snippet) for snippet in pool))
            for question, extraction, pool in zip(questions, extractions, pools, strict=True)
        ]
        with stages.stage("judge"):
            judged = self._judge.judge(inquiries)
        with stages.stage("cover"):
            chosen = self._cover(inquiries, judged)
        evidence = list(map(self._evidence, inquiries, judged, chosen, pools))
        return [
            Selected(seen, _notes(extraction, bool(taken), seen))
            for seen, extraction, taken in zip(evidence, extractions, chosen, strict=True)
        ]

    def _pools(self, questions: Sequence[str], documents: Documents) -> list[list[Document]]:
        """Return each question's snippets, best first."""
        settings = self.settings
        if self._retriever is not None:
            results = self._retriever.retrieve(questions, settings.pool)
            documents = [[hit.document for hit in hits] for hits in results]
            if settings.snippet == "document":
                return [list(candidates) for candidates in documents]
        if settings.snippet == "sentence":
            documents = [_sentences(candidates) for candidates in documents]
        ranked = rank_each(settings.retriever, questions, documents, self._encoder, settings.pool)
        return [[hit.document for hit in hits] for hits in ranked]

    def _cover(self, inquiries: Sequence[Inquiry], judged: Sequence[list[list[Probability]]]) -> list[tuple[int, ...]]:
        """Return the places of each question's chosen snippets, by rank; none if nothing is covered."""
        held = [
            np.array(
                [[value is not None and value >= self.settings.threshold for value in row] for row in rows], dtype=bool
            ).reshape(len(inquiry.texts), len(inquiry.features))
            for inquiry, rows in zip(inquiries, judged, strict=True)
        ]
        if self.settings.cover == "exact":
            return [
                tuple(sorted(cover.sets))
                for cover in minimum_covers([(table, None) for table in held], ties="earliest")
            ]
        kinds = [np.array([feature.kind for feature in inquiry.features], dtype=object) for inquiry in inquiries]
        # At most one feature is the intent; a question without one has nobody to cover it.
        parts = [
            (table[:, kind == "intent"].any(axis=1), table[:, kind == "relation"], table[:, kind == "node"])
            for table, kind in zip(held, kinds, strict=True)
        ]
        return [tuple(sorted(cover.snippets)) for cover in scope_covers(parts, recheck=self.settings.recheck)]

    def _evidence(
        self,
        inquiry: Inquiry,
        rows: Sequence[Sequence[Probability]],
        chosen: tuple[int, ...],
        pool: Sequence[Document],
    ) -> Evidence:
        read = chosen or tuple(range(min(self.settings.top, len(pool))))
        coverage = []
        for column, feature in enumerate(inquiry.features):
            values = tuple(row[column] for row in rows)
            held = tuple(
                number for number, value in enumerate(values) if value is not None and value >= self.settings.threshold
            )
            coverage.append(Coverage(feature, values, held, tuple(number for number in held if number in chosen)))
        by_document = self.settings.snippet == "document"
        origins = [
            (snippet.id, -1) if by_document else (snippet.id.rpartition("#")[0], int(snippet.id.rpartition("#")[2]))
            for snippet in pool
        ]
        return Evidence(
            kind="documents" if by_document else "sentences",
            context=tuple(inquiry.texts[number] for number in read),
            document_ids=tuple(dict.fromkeys(origins[number][0] for number in read)),
            derivation=FeatureCover(tuple(coverage), tuple(origins)),
        )


def make_feature_extractor(model: LanguageModel, settings: ScopeSettings) -> FeatureExtractor:
    """Make the extractor that the settings ask for."""
    return FeatureExtractor(
        model, demonstrations=settings.feature_demonstrations, spans=settings.spans, grammar=settings.grammar
    )


def make_judge(
    model: LanguageModel,
    encoder: Encoder,
    settings: ScopeSettings,
    cross_encoder: Callable[[], CrossEncoder] | None = None,
) -> Judge:
    """Make the judge that the settings ask for."""
    if settings.judge == "entailment":
        return EntailmentJudge(required(cross_encoder))
    if settings.judge == "model":
        return ModelJudge(model, calibrated=settings.calibrated, demonstrations=settings.judge_demonstrations)
    text = TextJudge(encoder)
    if settings.judge == "text":
        return text
    by_model = ModelJudge(model, calibrated=settings.calibrated, demonstrations=settings.judge_demonstrations)
    return FusedJudge([(by_model, 0.5), (text, 0.5)])


def _sentences(documents: Sequence[Document]) -> list[Document]:
    """Return every sentence as a document of its own, whose id ends with the sentence's index."""
    return [
        Document(f"{document.id}#{number}", document.title, (sentence,), document.source)
        for document in documents
        for number, sentence in enumerate(document.sentences)
        if sentence.strip()
    ]


def _notes(extraction: Extraction, covered: bool, evidence: Evidence) -> tuple[str, ...]:
    """Say what a reader of the answer should know of its features."""
    cover = evidence.derivation
    assert isinstance(cover, FeatureCover)  # `_evidence` has put it there
    notes = []
    if extraction.malformed:
        notes.append("the model's features were no whole JSON and were read by their parts")
    if extraction.dropped:
        notes.append(
            f"{len(extraction.dropped)} of the features that the model wrote were dropped: {'; '.join(extraction.dropped)}"
        )
    if not cover.coverage:
        notes.append("no feature of the question was found; the snippets are the first by order of retrieval")
    elif not covered:
        notes.append("no snippet holds any feature of the question; they are the first by order of retrieval")
    elif missing := [_named(item.feature) for item in cover.coverage if not item.covered_by]:
        notes.append(f"no snippet holds {', '.join(missing)}")
    undecided = sum(value is None for item in cover.coverage for value in item.probabilities)
    if undecided:
        notes.append(
            f"the judge was undecided in {undecided} of {sum(len(item.probabilities) for item in cover.coverage)} cases"
        )
    return tuple(notes)


def _named(feature: Feature) -> str:
    return f"the {feature.kind} {feature.statement!r}"


register(
    MethodRow(
        "scope-coe",
        "list what the question needs → check which snippets cover each need → answer from the fewest snippets that cover all",
        ScopeCoe,
        ScopeSettings(),
        # A model that does not choose by letters judges by yes and no hardly better than chance. A small one copies what a
        # grammar lets it copy.
        (
            *(
                Replacement(
                    ability,
                    ("judge=text", "snippet=sentence", "pool=10", "threshold=0.3"),
                    "words and the embedding model judge sentences instead of the language model",
                )
                for ability in ("logits", "letters")
            ),
            Replacement("reads", ("spans=true",)),
        ),
        takes=frozenset({"cross-encoder"}),
        space=(
            choice("judge", "text", "model", "fused"),
            choice("snippet", "document", "sentence"),
            choice("retriever", "dense", "bm25", "rrf"),
            choice("pool", 2, 3, 4, 5, 10),
            choice("cover", "greedy", "exact"),
            choice("threshold", 0.3, 0.5, 0.7),
            choice("feature_demonstrations", 1, 3, 5),
            choice("top", 1, 2, 3),
            READER_CHOICE,
        ),
    )
)
