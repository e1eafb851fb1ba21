"""A run with something of everything that a report shows: chains of triples and of sentences, coverage, queries, failures."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.engine.findings import answer_result
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.records import (
    Answer,
    AnswerPlace,
    Chain,
    ChainSearch,
    Coverage,
    Document,
    Evidence,
    Fact,
    Feature,
    FeatureCover,
    KnowledgeQuery,
    Question,
    Reasoning,
    TextUnit,
    Triple,
    Usage,
)
from pytrace.results import Result

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"q\" 'a' <!-- ]]> & \u202eשלום\u2028\x00 \ud800"
)
DOCUMENTS = (
    Document(
        "d0", "Ernest Augustus", ("He was King of Hanover.", "He was a son of George III.", "His wife was Frederica.")
    ),
    Document("d1", "Frederica", ("Frederica was a German princess.", "She died in Hanover.")),
    Document("d2", "George III", ("George III was King of Great Britain.", "He was born in London.")),
    Document("d3", "Hanover", ("Hanover is the capital of Lower Saxony.",)),
    Document("d4", HOSTILE, (HOSTILE, "word " * 500)),
)
TRIPLES = (
    Triple("Frederica", "spouse", "Ernest Augustus", "d0", 2, 99.0),
    Triple("Ernest Augustus", "son of", "George III", "d0", 1, 99.0),
    Triple("George III", "born in", "London", "d2", 1, 99.0),
    Triple("Frederica", "died in", "Hanover", "d1", 1, 99.0),
    Triple("London", "home of", "Frederica", "d4", 0, 99.0),
    Triple(HOSTILE, HOSTILE, "Hanover", "d4", 0, 99.0),
    Triple("Hanover", "near", "hanover", "d3", 0, 99.0),
)
UNITS = (
    TextUnit("Frederica", "Frederica was a German princess.", "d1", 0),
    TextUnit("George III", "He was born in London.", "d2", 1),
)
CHAINS = (
    Chain(TRIPLES[:3], (-0.1, -0.2, -0.3, -0.05), -0.65, finished=True),
    Chain((TRIPLES[0], TRIPLES[3]), (-0.1, -0.9), -1.0, finished=False),
    Chain(
        (*TRIPLES[:3], TRIPLES[4], TRIPLES[5], TRIPLES[6]),
        (-0.1, -0.2, -0.3, -0.1, -2.0, float("-inf")),
        -9.0,
        finished=False,
    ),
)
COVERAGE = (
    Coverage(Feature("intent", "asks for a city"), (0.91, 0.2, None), (0, 2), (0,)),
    Coverage(Feature("relation", "was married to", ("princess", "husband")), (0.1, 0.8, 0.7), (1, 2), (1,)),
    Coverage(Feature("node", "father"), (0.1, 0.2, 0.3), (), ()),
)
QUERIES = (
    KnowledgeQuery(
        0, "Where was George III born?", "facts.ttl", "SELECT ?city", "SELECT ?city WHERE { <george> <born> ?city }",
        (("george", "George_III", 0.93),), (("SELECT bad", "line 1: no such relation"),), ("London",),
        (Fact(TRIPLES[2], "George III was born in London."),), "answered",
    ),
    KnowledgeQuery(-1, HOSTILE, "facts.ttl"),
)  # fmt: skip
USAGE = Usage(40, 8000, 600, 20, 3, 1.0)


def question(number: int) -> Question:
    """Return the question with a number; the first is hostile."""
    asked = f"Where was the father of the husband of princess {number} born?" if number else HOSTILE
    return Question(
        f"q{number}", asked, ("London", "City of London") if number else (HOSTILE,), DOCUMENTS, ("d0", "d2"),
        (("d0", 1), ("d2", 1)), kind=("bridge", "comparison")[number % 2],
    )  # fmt: skip


def result_of(one: Question, answer: Answer) -> Result:
    """Return the result of an answer, as `Engine.run` does; the documents are those of the example, or the question's own."""
    return answer_result(answer, {document.id: document for document in (*DOCUMENTS, *one.documents)})


def chained(one: Question) -> Result:
    """Answer by chains of triples, right but for the first."""
    evidence = Evidence(
        "triples", tuple(unit.text for unit in TRIPLES), ("d0", "d2"), {"d0": 5, "d2": 2}, ChainSearch(CHAINS)
    )
    answer = Answer(
        one.question, "London", "trace", evidence, {"select": USAGE}, {"select": 1.4, "read": 0.2}, ("cut",), 90
    )
    return result_of(one, answer)


def by_sentences(one: Question) -> Result:
    """Answer by chains of sentences, with words of one: right for even numbers."""
    chains = (Chain(UNITS, (-0.1, -0.2), -0.3, finished=False), Chain(UNITS[:1], (-0.1, -0.5), -0.6, finished=True))
    texts = tuple(f"[{DOCUMENTS[place].title}] {DOCUMENTS[place].text}" for place in (1, 2))
    evidence = Evidence("documents", texts, ("d1", "d2"), {"d1": 2, "d2": 1}, ChainSearch(chains))
    even = int(one.id[1:]) % 2 == 0
    answer = Answer(
        one.question, "in London" if even else "Hanover", "trace-doc", evidence, {"read": USAGE}, {"read": 0.5}, (), 40,
        places=(AnswerPlace("d2", 1, 12, 21) if even else AnswerPlace("d1", 1, 12, 19),),
        probability=0.71,
    )  # fmt: skip
    return result_of(one, answer)


def scoped(one: Question) -> Result:
    """Answer by coverage: wrong."""
    evidence = Evidence(
        "sentences",
        ("a sentence", HOSTILE),
        ("d0", "d3"),
        derivation=FeatureCover(COVERAGE, (("d0", 0), ("d2", 1), ("d4", -1))),
    )
    answer = Answer(one.question, "=HYPERLINK(1)", "scope-coe", evidence, {"judge": USAGE}, {"judge": 0.9}, (), 45)
    return result_of(one, answer)


def asked(one: Question) -> Result:
    """Answer by thoughts and a knowledge base: what is hostile, which is right for the first."""
    thoughts = ("First, the husband is Ernest Augustus.", HOSTILE)
    evidence = Evidence("facts", ("A fact.",), (), derivation=Reasoning(thoughts, QUERIES))
    answer = Answer(one.question, HOSTILE, "cok", evidence, {"think": USAGE}, {"think": 1.1}, (HOSTILE,), 30)
    return result_of(one, answer)


METHODS: dict[str, Callable[[Question], Result]] = {
    "trace": chained,
    "trace-doc": by_sentences,
    "scope-coe": scoped,
    "cok": asked,
}


def fill_run(store: RunStore, count: int, *, keep: bool = True) -> None:
    """Begin a run and answer so many questions by all methods; `scope-coe` fails at the fourth."""
    store.open_run(
        {
            "data": {"sha256": "ab" * 32},
            "settings": {"trace": {"beams": 5}, "ks-llm": {"x": 1}},
            "versions": {"pytrace": "1"},
        },
        notes={"data": "/somewhere/hotpot <b>.jsonl"},
    )
    questions = [question(number) for number in range(count)]
    if keep:
        store.keep_questions(questions)
    for name, method in METHODS.items():
        for one in questions:
            failed = name == "scope-coe" and one.id == "q3"
            result = None if failed else method(one)
            error = "ContextOverflowError: the prompt has 9,000 tokens" if failed else ""
            store.save(
                name,
                one.id,
                RunRow(name, one.id, one.question, one.answers, one.supporting_documents, one.kind, result, error),
            )
