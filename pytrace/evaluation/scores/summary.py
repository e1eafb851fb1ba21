"""Sum up results: how good each method's answers and evidence are, what they cost, and whether methods differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pytrace.errors import StoreError
from pytrace.evaluation.data.datasets import CLAIM
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.chain_scores import (
    ChainStatistics,
    GoldEvidence,
    chain_statistics,
    context_sentence_recall,
    gold_evidence,
)
from pytrace.evaluation.scores.comparisons import Comparison, QuestionScore, compare_methods
from pytrace.evaluation.scores.labels_and_queries import ClaimScores, KnowledgeScores, claim_scores, knowledge_scores
from pytrace.evaluation.scores.matching import Matcher
from pytrace.evaluation.scores.metrics import Mean, mean_of, ndcg, recall_at, score_row
from pytrace.evaluation.scores.readers_in_use import ReaderInUse, reader_in_use, reader_notice, reader_texts
from pytrace.evaluation.scores.seen_questions import (
    LearnedWeights,
    Lists,
    UnseenScores,
    learned_weights,
    seen_notice,
    unseen_questions,
)
from pytrace.evaluation.scores.significance import bootstrap_interval
from pytrace.evaluation.scores.study import Study, study_rows
from pytrace.records import Question, Usage
from pytrace.storage.question_hashes import question_hash

_T = TypeVar("_T")

# Those of BEIR's evaluation script but for 1000, since a question is given 100 documents unless more are asked for.
_DEPTHS = (1, 3, 5, 10, 100)

LEARNED_FROM = "learned from"
"""The note of a run with the hashes of `question_lists`; a report has what follows from them instead."""
REPLACED = "replaced"
"""The note of a run with the `substitutions` of each method; a report has them in its notices."""


class Quantity(msgspec.Struct, frozen=True):
    """Something that adds up over the `n` answered questions; mean and median are None if there is none."""

    total: float
    mean: float | None
    median: float | None
    n: int


class Failure(msgspec.Struct, frozen=True):
    """A question without an answer, and why."""

    question_id: str
    error: str


class KindScore(msgspec.Struct, frozen=True):
    """The answer scores on the questions of one kind; None where none of them has a gold answer."""

    n: int
    exact_match: float | None
    f1: float | None


class RankingScores(msgspec.Struct, frozen=True):
    """The documents that a method chose, as a ranking: in the order of its evidence."""

    documents: Mean
    ndcg: Mean  # of the first 10, by the data's grades, or 1 for each supporting document where there are none
    recall: dict[str, Mean]  # by how many documents count: "1", "3", "5", "10", "100"
    graded: bool  # whether the data grade documents


class PoolRecall(msgspec.Struct, frozen=True):
    """How many of the supporting documents methods are given: no method can choose one that it is not given."""

    documents: Mean  # that a question gives
    relevant: int
    held: int  # of the `relevant` ones
    recall: Mean  # each question's own share: the most that the supporting recall can be


class MethodSummary(msgspec.Struct, frozen=True):
    """How one method did on `n` questions.

    A failed question counts as a wrong answer: EM and F1 0, no document chosen. Costs are of the answered questions,
    for a failed one tells none. Scores lie between 0 and 1; what is not defined is None. EM and F1 are of the questions that have a
    gold answer, and None where none has one. Intervals are those of percentiles of the bootstrap, 95 %. `supporting_sentences`
    is the share of the gold sentences that the context rests on.

    `evaluated_share` is evaluated over asked-for tokens, of all questions together, and `evaluated_share_by_question`
    the mean and median of each question's own. `seconds_by_stage` and `usage_by_stage` are totals.

    `reader` is how the answers were read, None if the run does not tell. `unseen` has the scores on the report's unseen questions, None
    where these are all questions, or none, or not known.
    """

    method: str
    n: int
    failed: int
    exact_match: float | None
    f1: float | None
    supporting_precision: Mean
    supporting_recall: Mean
    supporting_f1: Mean
    supporting_error_rate: Mean
    context_tokens: Quantity
    calls: Quantity
    prompt_tokens: Quantity
    evaluated_tokens: Quantity
    generated_tokens: Quantity
    evaluated_share: float | None
    evaluated_share_by_question: Mean
    seconds: Quantity
    seconds_by_stage: dict[str, float]
    usage_by_stage: dict[str, Usage]
    by_kind: dict[str, KindScore]
    failures: tuple[Failure, ...] = ()
    exact_match_interval: tuple[float, float] | None = None
    f1_interval: tuple[float, float] | None = None
    supporting_sentences: Mean = Mean(None, None, 0)
    ranking: RankingScores | None = None
    chains: ChainStatistics | None = None
    reader: ReaderInUse | None = None
    unseen: UnseenScores | None = None


class Report(msgspec.Struct, frozen=True):
    """The outcome of an evaluation: settings, a summary of each method, and how methods compare.

    `learned` are the learned weights that methods use, and `unseen` counts the questions that none of them has seen; None if that is not
    known. `notices` says in sentences what limits the figures: mixed readers, seen questions, replaced
    parts of papers' methods.
    """

    questions: int
    methods: tuple[MethodSummary, ...]
    comparisons: tuple[Comparison, ...] = ()
    settings: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    studies: tuple[Study, ...] = ()  # where the questions were perturbed
    claims: tuple[ClaimScores, ...] = ()  # where all questions are claims
    knowledge: tuple[KnowledgeScores, ...] = ()  # where a method asked a knowledge base
    baseline: str | None = None  # what every other method is compared with; None: every two are
    pool: PoolRecall | None = None  # None if no question has supporting documents, or the questions are not known
    learned: tuple[LearnedWeights, ...] = ()
    unseen: int | None = None
    notices: tuple[str, ...] = ()


def score_run(
    store: RunStore,
    *,
    methods: Sequence[str] | None = None,
    questions: Iterable[str] | None = None,
    gold: Sequence[Question] | None = None,
    seed: int = 0,
    matcher: Matcher | None = None,
    baseline: str | None = None,
) -> Report:
    """Score the answers that a store holds; no model is needed, unless one is to match the answers of a study."""
    # `gold` has the questions where they are at hand, and the report is of them alone. Those that the store keeps are of
    # its first run, and files of version 1 have none.
    order = {id: number for number, id in enumerate(store.asked() if gold is None else [one.id for one in gold])}
    wanted = set(questions) if questions is not None else None if gold is None else set(order)
    # In the order of the questions, for what is drawn from them must not depend on who was through first.
    results = {
        method: sorted(
            (row for row in store.rows(method) if wanted is None or row.question_id in wanted),
            key=lambda row: order.get(row.question_id, len(order)),
        )
        for method in (store.methods() if methods is None else methods)
    }
    notes = store.notes
    try:
        lists = msgspec.convert(notes.pop(LEARNED_FROM, {}), dict[str, frozenset[str] | None])
        replaced = msgspec.convert(notes.pop(REPLACED, {}), dict[str, tuple[str, ...]])
    except ValueError as error:
        raise StoreError(
            f"{store.path}: its lists of learned questions and replaced parts cannot be read ({error}); evaluate into another file"
        ) from None
    return make_report(
        results,
        gold=(
            question
            for question in (store.questions() if gold is None else gold)
            if wanted is None or question.id in wanted
        ),
        settings=store.settings,
        notes=notes,
        lists=lists,
        replaced=replaced,
        seed=seed,
        matcher=matcher,
        baseline=baseline,
    )


def make_report(
    results: Mapping[str, Sequence[RunRow]],
    *,
    gold: Iterable[Question] = (),
    settings: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    lists: Lists | None = None,
    replaced: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    matcher: Matcher | None = None,
    baseline: str | None = None,
) -> Report:
    """Summarise the results of each method, and compare methods on their common questions."""
    settings = settings or {}
    known = {question.id: gold_evidence(question) for question in gold}
    scores = {
        method: {row.question_id: _question_score(row, known.get(row.question_id)) for row in rows}
        for method, rows in results.items()
    }
    hashes = {row.question_id: question_hash(row.question) for rows in results.values() for row in rows}
    # Claims are judged instead of read.
    readers = {
        method: None if rows and all(row.kind == CLAIM for row in rows) else reader_in_use(method, settings)
        for method, rows in results.items()
    }
    texts = reader_texts(readers)
    learned = learned_weights(readers, settings, lists or {}, hashes.values())
    unseen = unseen_questions(learned, lists or {}, hashes)

    def defined(score: Callable[[str, Sequence[RunRow]], _T | None]) -> tuple[_T, ...]:
        return tuple(scored for method, rows in results.items() if (scored := score(method, rows)) is not None)

    held_out = unseen if unseen is not None and 0 < len(unseen) < len(hashes) else None
    notices = (
        reader_notice(texts),
        seen_notice(
            learned, methods=len(results), questions=len(hashes), unseen=None if unseen is None else len(unseen)
        ),
        *(f"In {method}, {part}." for method in results for part in (replaced or {}).get(method, ())),
    )
    return Report(
        questions=len(hashes),
        methods=tuple(
            msgspec.structs.replace(
                _summarise(method, rows, scores[method], known, seed),
                reader=readers[method],
                unseen=None if held_out is None else _unseen_scores(rows, scores[method], held_out, seed),
            )
            for method, rows in results.items()
        ),
        comparisons=tuple(
            msgspec.structs.replace(pair, readers_differ=texts.get(pair.first) != texts.get(pair.second))
            for pair in compare_methods(scores, baseline=baseline, seed=seed)
        ),
        settings=dict(settings),
        notes=dict(notes or {}),
        studies=defined(lambda method, rows: study_rows(method, rows, matcher=matcher)),
        claims=defined(claim_scores),
        knowledge=defined(knowledge_scores),
        baseline=baseline,
        pool=_pool_recall([evidence for question, evidence in known.items() if question in hashes]),
        learned=learned,
        unseen=None if unseen is None else len(unseen),
        notices=tuple(filter(None, notices)),
    )


def _unseen_scores(
    rows: Sequence[RunRow], scores: Mapping[str, QuestionScore], unseen: Collection[str], seed: int
) -> UnseenScores:
    some = [row for row in rows if row.question_id in unseen]
    support = [score_row(row).support for row in some]
    ems, f1s = (
        [value for row in some if (value := getattr(scores[row.question_id], name)) is not None]
        for name in ("exact_match", "f1")
    )
    return UnseenScores(
        n=len(some),
        exact_match=mean_of(ems).mean,
        f1=mean_of(f1s).mean,
        exact_match_interval=bootstrap_interval(ems, seed=seed),
        f1_interval=bootstrap_interval(f1s, seed=seed),
        supporting_precision=mean_of(score.precision for score in support),
        supporting_recall=mean_of(score.recall for score in support),
        supporting_error_rate=mean_of(score.error_rate for score in support),
    )


def _question_score(row: RunRow, gold: GoldEvidence | None) -> QuestionScore:
    score = score_row(row)
    return QuestionScore(
        score.exact_match,
        score.f1,
        supporting_recall=score.support.recall,
        supporting_error_rate=score.support.error_rate,
        ndcg=ndcg(_chosen(row), dict.fromkeys(row.supporting_documents, 1) if gold is None else gold.grades),
        context_tokens=None if row.result is None else row.result.context_tokens,
    )


def _chosen(row: RunRow) -> tuple[str, ...]:
    return () if row.result is None else row.result.evidence.chosen


def _ranking(
    rows: Sequence[RunRow], scores: Mapping[str, QuestionScore], gold: Mapping[str, GoldEvidence]
) -> RankingScores | None:
    if not any(row.supporting_documents for row in rows):
        return None
    return RankingScores(
        documents=mean_of(len(set(_chosen(row))) for row in rows),
        ndcg=mean_of(score.ndcg for score in scores.values()),
        recall={
            str(depth): mean_of(recall_at(_chosen(row), row.supporting_documents, depth) for row in rows)
            for depth in _DEPTHS
        },
        graded=any(gold[row.question_id].graded for row in rows if row.question_id in gold),
    )


def _pool_recall(gold: Sequence[GoldEvidence]) -> PoolRecall | None:
    supported = [evidence for evidence in gold if evidence.supporting]
    if not supported:
        return None
    return PoolRecall(
        documents=mean_of(evidence.documents for evidence in supported),
        relevant=sum(len(evidence.supporting) for evidence in supported),
        held=sum(len(evidence.given) for evidence in supported),
        recall=mean_of(len(evidence.given) / len(evidence.supporting) for evidence in supported),
    )


def _summarise(
    method: str,
    rows: Sequence[RunRow],
    scores: Mapping[str, QuestionScore],
    gold: Mapping[str, GoldEvidence],
    seed: int,
) -> MethodSummary:
    support = [score_row(row).support for row in rows]
    results = [row.result for row in rows if row.result is not None]
    usages = [sum(result.usage.values(), Usage()) for result in results]
    ems = [score.exact_match for score in scores.values() if score.exact_match is not None]
    f1s = [score.f1 for score in scores.values() if score.f1 is not None]

    def quantity(count: Callable[[Usage], int]) -> Quantity:
        return _quantity([count(usage) for usage in usages])

    prompt, evaluated = quantity(lambda usage: usage.prompt_tokens), quantity(lambda usage: usage.evaluated_tokens)
    usage_by_stage: dict[str, Usage] = {}
    seconds_by_stage: dict[str, float] = {}
    for result in results:
        for stage, usage in result.usage.items():
            usage_by_stage[stage] = usage_by_stage.get(stage, Usage()) + usage
        for stage, seconds in result.seconds.items():
            seconds_by_stage[stage] = seconds_by_stage.get(stage, 0.0) + seconds
    return MethodSummary(
        method=method,
        n=len(rows),
        failed=len(rows) - len(results),
        exact_match=mean_of(ems).mean,
        f1=mean_of(f1s).mean,
        supporting_precision=mean_of(score.precision for score in support),
        supporting_recall=mean_of(score.recall for score in support),
        supporting_f1=mean_of(score.f1 for score in support),
        supporting_error_rate=mean_of(score.error_rate for score in support),
        context_tokens=_quantity([result.context_tokens for result in results]),
        calls=quantity(lambda usage: usage.calls),
        prompt_tokens=prompt,
        evaluated_tokens=evaluated,
        generated_tokens=quantity(lambda usage: usage.generated_tokens),
        evaluated_share=evaluated.total / prompt.total if prompt.total else None,
        evaluated_share_by_question=mean_of(
            usage.evaluated_tokens / usage.prompt_tokens if usage.prompt_tokens else None for usage in usages
        ),
        seconds=_quantity([sum(result.seconds.values()) for result in results]),
        seconds_by_stage=seconds_by_stage,
        usage_by_stage=usage_by_stage,
        by_kind=_by_kind(rows, scores),
        failures=tuple(Failure(row.question_id, row.error) for row in rows if row.result is None),
        exact_match_interval=bootstrap_interval(ems, seed=seed),
        f1_interval=bootstrap_interval(f1s, seed=seed),
        supporting_sentences=mean_of(
            context_sentence_recall(row, gold[row.question_id]) for row in rows if row.question_id in gold
        ),
        ranking=_ranking(rows, scores, gold),
        chains=chain_statistics(rows, gold),
    )


def _quantity(values: Sequence[float]) -> Quantity:
    mean = mean_of(values)
    return Quantity(sum(values), mean.mean, mean.median, mean.n)


def _by_kind(rows: Sequence[RunRow], scores: Mapping[str, QuestionScore]) -> dict[str, KindScore]:
    groups: dict[str, list[QuestionScore]] = {}
    for row in rows:
        if row.kind:
            groups.setdefault(row.kind, []).append(scores[row.question_id])
    return {
        kind: KindScore(
            len(group), mean_of(score.exact_match for score in group).mean, mean_of(score.f1 for score in group).mean
        )
        for kind, group in sorted(groups.items())
    }
