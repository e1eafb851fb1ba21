"""What chains and contexts hold of the gold evidence, and the statistics of TRACE's Table 5, against counts by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.engine.findings import answer_result
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.chain_scores import (
    chain_pieces,
    chain_sentence_recall,
    chain_statistics,
    context_sentence_recall,
    gold_evidence,
    triple_recall,
)
from pytrace.evaluation.scores.metrics import Mean
from pytrace.methods.trace.trace import Trace, TraceSettings
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import (
    Answer,
    Chain,
    ChainSearch,
    Document,
    Evidence,
    GraphCounts,
    Question,
    TextUnit,
    Triple,
    Unit,
)
from pytrace.triples.extraction import sentence_units
from pytrace.triples.graph.graph_records import unit_of

FORT = Document("fort", "Fort Kongenstein", ("It lies in Ada Foah.", "It was built in 1783."))
ADA = Document("ada", "Ada Foah", ("It is a town of Ghana.", "It is old."))
ACCRA = Document("accra", "Accra", ("It is the capital.",))
QUESTION = Question(
    "q",
    "In which country is Fort Kongenstein?",
    ("Ghana",),
    (FORT, ADA, ACCRA),
    supporting_documents=("fort", "ada"),
    supporting_facts=(("fort", 0), ("ada", 0)),
    triples=(Triple("Fort Kongenstein", "location", "Ada Foah"), Triple("Ada Foah", "country", "Ghana")),
)


def chain(*units: Unit) -> Chain:
    return Chain(units, (-0.5,) * len(units), -0.5 * len(units), False)


def searched(*chains: Chain, documents: Sequence[Document] = (FORT, ADA, ACCRA)) -> RunRow:
    """Return a row whose method searched these chains in these documents."""
    return row(
        msgspec.structs.replace(QUESTION, documents=tuple(documents)),
        Evidence("triples", ("a triple",), ("fort",), derivation=ChainSearch(chains)),
    )


def found(*triples: tuple[str, str, str], gold: Sequence[tuple[str, str]] = (("Ada Foah", "Ghana"),)) -> float | None:
    units = [unit_of(*one) for one in triples]
    documents = {
        unit.title: Document(unit.title, unit.title, (unit.body,)) for unit in units if isinstance(unit, TextUnit)
    }
    placed = (unit._replace(document_id=unit.title) if isinstance(unit, TextUnit) else unit for unit in units)
    pieces = chain_pieces(searched(chain(*placed), documents=list(documents.values())))
    return triple_recall(pieces, [Triple(head, "r", tail) for head, tail in gold])


class TestTriples:
    @pytest.mark.parametrize(
        ("triple", "held"),
        [
            (("Ada Foah", "country", "Ghana"), True),
            (("The ADA FOAH.", "lies in", "ghana"), True),
            (("Ghana", "has town", "Ada Foah"), True),
            (("Ada Foah (town)", "is in", "the Republic of Ghana"), True),
            (("Ada Foha", "is in", "Ghana"), True),
            (("Ada Foah", "is in", "Greater Accra"), False),
            (("Ghana", "contains", "Ghana"), False),
            (("", "is in", "Ghana"), False),
            (("the", "is in", "Ghana"), False),
            (("a", "is in", "Ghana"), False),
        ],
    )
    def test_a_triple_holds_a_gold_one_with_names_alike_in_either_direction(
        self, triple: tuple[str, str, str], held: bool
    ) -> None:
        assert found(triple) == float(held)

    def test_numbers_must_agree(self) -> None:
        gold = [("Ada Foah", "6 October 2014")]
        assert found(("Ada Foah", "founded", "in October 2014"), gold=gold) == 1.0
        assert found(("Ada Foah", "founded", "6 October 2015"), gold=gold) == 0.0
        assert found(("Ada Foah", "founded", "16 October 2014"), gold=gold) == 0.0

    @pytest.mark.parametrize(
        ("unit", "held"),
        [
            (("Ada Foah", "", "It is a town of Ghana."), True),
            (("Towns", "", "Ada Foah, a town, lies in Ghana"), True),
            (("Towns", "", "Ada Foah is a Ghanaian town"), True),  # "ghana" stands in it
            (("Ada Foah", "", "It is a town of Gambia."), False),
            (("Ada", "", "Foah"), False),
            (("Ghana", "", ""), False),
        ],
    )
    def test_a_sentence_holds_it_if_both_names_stand_there(self, unit: tuple[str, str, str], held: bool) -> None:
        assert found(unit) == float(held)

    def test_a_short_name_is_not_found_within_other_words(self) -> None:
        assert found(("Houses", "", "Ada Foah has many painters"), gold=[("Ada Foah", "Spain")]) == 0.0
        assert found(("Houses", "", "Ada Foah saw it"), gold=[("Ada Foah", "It")]) == 1.0
        assert found(("Houses", "", "Ada Foah saw iterations"), gold=[("Ada Foah", "It")]) == 0.0

    def test_recall_counts_gold_triples_once(self) -> None:
        gold = [("Ada Foah", "Ghana"), ("Ghana", "Accra"), ("the Ada Foah", "ghana")]
        assert found(("Ada Foah", "in", "Ghana"), ("Ada Foah", "of", "Ghana"), gold=gold) == 0.5
        assert found(gold=gold) == 0.0
        assert triple_recall([], []) is None


class TestSentences:
    gold = gold_evidence(QUESTION)

    def test_chains_rest_on_the_sentences_of_their_triples(self) -> None:
        one = chain(Triple("a", "r", "b", "fort", 0), Triple("a", "r", "c", "fort", 1))

        def recall(*chains: Chain) -> float | None:
            return chain_sentence_recall(chain_pieces(searched(*chains)), self.gold)

        assert recall(one) == 0.5
        assert recall(one, chain(TextUnit("a", "c", "ada"))) == 1.0, "a whole document"
        assert recall(chain(Triple("a", "r", "c", "ada"))) == 0.0, "it is not known which"
        assert recall() == 0.0

    @pytest.mark.parametrize(
        ("evidence", "recall"),
        [
            (Evidence("documents", ("[Ada Foah] It is a town of Ghana. It is old.",), ("ada",)), 0.5),
            (
                Evidence(
                    "sentences", ("[Ada Foah] It is a town\n of Ghana.", "[Fort] It lies in Ada Foah."), ("ada", "fort")
                ),
                1,
            ),
            (Evidence("mixed", ("<a; b; c>", "[Ada Foah] It is old."), ("ada",)), 0),
            (Evidence("sentences", ("[Ada Foah] It is a town of Ghana.",), ("accra",)), 0),
            (
                Evidence(
                    "triples",
                    ("<a; r; b>",),
                    ("fort",),
                    derivation=ChainSearch((chain(Triple("a", "r", "b", "fort", 0)),)),
                ),
                0.5,
            ),
            (Evidence("none", (), ()), 0),
            (None, 0),
        ],
    )
    def test_a_context_rests_on_the_sentences_that_stand_in_it(self, evidence: Evidence | None, recall: float) -> None:
        assert context_sentence_recall(row(QUESTION, evidence), self.gold) == recall

    def test_without_gold_sentences_nothing_is_said(self) -> None:
        bare = gold_evidence(Question("q", "?", ("x",), (ADA,), ("ada", "lost"), (("lost", 0), ("ada", 9))))
        assert bare.sentences == ()
        assert (bare.given, bare.supporting) == (("ada",), ("ada", "lost"))
        assert chain_sentence_recall([], bare) is None
        assert context_sentence_recall(row(QUESTION, Evidence("none", (), ())), bare) is None


def row(question: Question, evidence: Evidence | None) -> RunRow:
    found = None
    if evidence is not None:
        answer = Answer(question.question, "Ghana", "trace", evidence)
        found = answer_result(answer, {document.id: document for document in question.documents})
    return RunRow(
        "trace", question.id, question.question, question.answers, question.supporting_documents, result=found
    )


class TestStatistics:
    def test_table_5_by_hand(self) -> None:
        first = chain(
            Triple("Fort Kongenstein", "in", "Ada Foah", "fort", 0), Triple("Ada Foah", "in", "Ghana", "ada", 0)
        )
        second = chain(Triple("Accra", "is", "capital", "accra", 0))
        other = Question("p", "?", ("x",), (FORT, ADA, ACCRA, Document("x", "X", ("Y.",))), ("accra",))
        rows = [
            row(
                QUESTION,
                Evidence("documents", (), (), derivation=ChainSearch((second, first), GraphCounts(4, 3, 0.25))),
            ),
            row(other, Evidence("documents", (), (), derivation=ChainSearch((first,), GraphCounts(10, 9, 0.1)))),
            row(Question("f", "?", ("x",)), None),
        ]
        statistics = chain_statistics(rows, {one.id: gold_evidence(one) for one in (QUESTION, other)})
        assert statistics is not None
        assert statistics.documents == Mean(3.5, 3.5, 2)
        assert statistics.document_error_rate.mean == pytest.approx((1 / 3 + 3 / 4) / 2)
        assert (statistics.entities.mean, statistics.triples.mean, statistics.density.mean) == (7.0, 6.0, 0.175)
        assert (statistics.chains.mean, statistics.length.mean) == (1.5, 1.75)
        assert statistics.found_documents.mean == 2.5
        # Of fort, ada and accra one does not support the first question; none supports the other.
        assert statistics.found_error_rate.mean == pytest.approx((1 / 3 + 1) / 2)
        assert (statistics.best_triple_recall, statistics.triple_recall) == (Mean(0.0, 0.0, 1), Mean(1.0, 1.0, 1))
        assert (statistics.best_sentence_recall.mean, statistics.sentence_recall.mean) == (0.0, 1.0)

    def test_a_failed_question_holds_no_gold_and_has_no_graph(self) -> None:
        one = chain(Triple("Fort Kongenstein", "in", "Ada Foah", "fort", 0))
        again = Question("2", "?", ("x",), QUESTION.documents, ("fort",), (("fort", 0),), QUESTION.triples)
        rows = [row(QUESTION, Evidence("triples", (), (), derivation=ChainSearch((one,)))), row(again, None)]
        statistics = chain_statistics(rows, {one.id: gold_evidence(one) for one in (QUESTION, again)})
        assert statistics is not None
        assert statistics.triple_recall == Mean(0.25, 0.25, 2)
        assert statistics.sentence_recall == Mean(0.25, 0.25, 2)
        assert (statistics.chains.n, statistics.entities) == (1, Mean(None, None, 0))

    def test_methods_without_chains_have_none(self) -> None:
        assert chain_statistics([row(QUESTION, Evidence("none", (), ())), row(QUESTION, None)], {}) is None
        searched = chain_statistics(
            [row(QUESTION, Evidence("none", (), (), derivation=ChainSearch((), GraphCounts(0, 0, 0.0))))], {}
        )
        assert searched is not None
        assert (searched.chains.mean, searched.length.mean, searched.documents.n) == (0.0, None, 0)


def test_trace_counts_the_graph_that_it_searched() -> None:
    settings = TraceSettings(scoring="ranker", extraction="phrases", chains=1, beams=1, length=2)
    [answer] = Trace(ScriptedModel(["Ghana"]), HashEncoder(), settings).answer([QUESTION.question], [[FORT, ADA]])
    graph = answer.evidence.derivation.graph
    assert graph is not None
    assert graph.triples > 0
    assert graph.entities > len({FORT.title, ADA.title})
    edges = graph.density * graph.entities * (graph.entities - 1)
    assert math.isclose(edges, round(edges), abs_tol=1e-9)
    assert 0 < round(edges) <= graph.triples


@pytest.mark.data
def test_gold_sentences_hold_the_gold_triples_and_misleading_documents_none(shared_data: Path) -> None:
    for question in read_questions(shared_data / "multihop" / "2wiki-sample.jsonl"):
        units = {document.id: sentence_units(document) for document in question.documents}
        gold = [unit for id, index in question.supporting_facts for unit in units[id] if unit.sentence == index]
        others = [unit for id in units if id not in question.supporting_documents for unit in units[id]]

        def pieces(*units: Unit, question: Question = question) -> list[list[Any]]:
            return chain_pieces(searched(chain(*units), documents=question.documents))

        assert triple_recall(pieces(*question.triples), question.triples) == 1.0
        assert triple_recall(pieces(*gold), question.triples) == 1.0
        assert triple_recall(pieces(*others), question.triples) == 0.0
        assert chain_sentence_recall(pieces(*gold), gold_evidence(question)) == 1.0
        whole = Evidence("documents", tuple(one.text for one in question.documents), tuple(units))
        assert context_sentence_recall(row(question, whole), gold_evidence(question)) == 1.0
