"""Search across hops: what the question does not find is found through what it finds, and one hop loses nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pytrace.errors import InputError, StoreError
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document, TextUnit
from pytrace.retrieval.hops import HopSearch, SearchSettings, chain_evidence, load_weights
from pytrace.retrieval.hops.features import FEATURES, Pairs
from pytrace.retrieval.hops.learning import KnownQuestion, learn
from pytrace.retrieval.hops.search import PassageChain, Step
from pytrace.retrieval.hops.weights import Scored
from pytrace.retrieval.passages import IndexWriter, PassageIndex

ENCODER = HashEncoder(dimension=64)
CHECKOUT = Path(__file__).parents[2]
FERRY = Document(
    "ferry", "Marigold Tern", ("The Marigold Tern is a ferry.", "Brackwater Lines has owned it since 1931.")
)
LINES = Document(
    "lines", "Brackwater Lines", ("Brackwater Lines is a firm.", "It was founded by Tobias Rook in Pellisk.")
)
ROOK = Document("rook", "Tobias Rook", ("Tobias Rook was a retired pilot.", "He was born on Skarra Isle."))
OTHERS = [
    Document(f"other {number}", title, (f"{title} is a {kind}.", f"It was founded in {1800 + number} by the crown."))
    for number, (title, kind) in enumerate(
        (title, kind)
        for title in ("Ash Point", "Low Ferry", "Orrin Head", "Marsh End", "Thornwick")
        for kind in ("town", "mill", "light")
    )
]
QUESTION = "Who founded the firm that owns the Marigold Tern?"


def build(directory: Path, documents: Sequence[Document]) -> PassageIndex:
    with IndexWriter(directory, ENCODER, create=True) as writer:
        writer.add(documents)
        writer.commit()
    return PassageIndex.open(directory, ENCODER)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PassageIndex:
    return build(tmp_path_factory.mktemp("index"), [*OTHERS[:7], LINES, *OTHERS[7:], ROOK, FERRY])


@pytest.fixture
def search(index: PassageIndex) -> HopSearch:
    return HopSearch(index, ENCODER)


def ids(search: HopSearch, rows: Sequence[int]) -> list[str]:
    return [passage.id for passage in search.index.passages(rows)]


def test_the_second_passage_is_found_through_the_first(search: HopSearch) -> None:
    (ranking,) = search.search([QUESTION], 5)
    assert set(ids(search, ranking.rows[:2])) == {"ferry", "lines"}
    assert ids(search, ranking.chains[0].rows) == ["ferry", "lines"]
    assert ranking.chains[0].steps == (Step(), Step(0, "brackwater lines"))
    assert ranking.hops > 0.5
    # By itself the question is nearer to others.
    (pairs,) = search.pairs([QUESTION])
    alone = pairs.rows[np.argsort(-pairs.seed_scores, kind="stable")]
    assert set(ids(search, alone[:2].tolist())) != {"ferry", "lines"}


def test_links_lead_from_names_to_what_carries_them(index: PassageIndex) -> None:
    assert index.graph is not None
    rows = {passage.id: row for row, passage in enumerate(index.passages(range(len(index))))}
    links = index.graph.links(np.array([rows["ferry"]]))
    assert links.rows.tolist() == [rows["lines"]]
    assert links.forth[0] > 0
    assert links.back[0] == 0
    back = index.graph.links(np.array([rows["lines"]]))
    at = back.rows.tolist().index(rows["ferry"])
    assert back.forth[at] == 0
    assert back.back[at] == links.forth[0]
    for pair in ((rows["ferry"], rows["lines"]), (rows["lines"], rows["ferry"])):
        assert index.graph.link_name(*pair) == "brackwater lines"
    assert index.graph.link_name(rows["ferry"], rows["rook"]) == ""


def of_pairs(rows: Sequence[int], pairs: dict[tuple[int, int], float]) -> tuple[Pairs, Scored]:
    """Make pairs of places among rows with these probabilities, of a question that takes several passages for sure."""
    firsts, seconds = np.array([*pairs]).T
    made = Pairs(np.array(rows), firsts, seconds, np.zeros((len(pairs), len(FEATURES))), np.zeros(len(rows)))
    probabilities = np.array([*pairs.values()])
    return made, Scored(probabilities, np.full(len(rows), 1 / len(rows)), np.full(len(rows), 1 / len(rows)), 1.0)


def test_passages_that_answer_together_are_one_chain(search: HopSearch) -> None:
    at = {passage.id: row for row, passage in enumerate(search.index.passages(range(len(search.index))))}
    rows = [at[name] for name in ("rook", "lines", "ferry", "other 1")]
    pairs, scored = of_pairs(rows, {(2, 1): 0.5, (1, 2): 0.1, (1, 0): 0.2, (1, 3): 0.15, (3, 0): 0.05})
    (chain, *others) = search._chains(pairs, scored, [1, 2, 0], 5)
    assert ids(search, chain.rows) == ["ferry", "lines", "rook"]
    assert chain.steps == (Step(), Step(0, "brackwater lines"), Step(1, "tobias rook"))
    # Its probability is that of the pairs in it, which are no chains of their own.
    assert chain.probability == pytest.approx(0.8)
    assert {frozenset(ids(search, other.rows)) for other in others if other.probability} == {
        frozenset(("lines", "other 1")),
        frozenset(("rook", "other 1")),
    }
    (found,) = chain_evidence(QUESTION, chain, search.index.passages(chain.rows)).chains
    bodies = [unit.body for unit in found.units if isinstance(unit, TextUnit)]
    assert bodies == [FERRY.sentences[1], LINES.sentences[1], ROOK.sentences[0]]


def test_what_no_pair_leads_to_is_in_a_chain_by_the_question(search: HopSearch) -> None:
    pairs, scored = of_pairs([5, 6, 7, 8], {(0, 1): 0.3, (2, 3): 0.7})
    (chain, *_) = search._chains(pairs, scored, [2, 3, 0, 1], 3)
    assert chain.rows == (7, 8, 5, 6)
    assert [step.place for step in chain.steps] == [-1, 0, -1, 2]
    assert chain.probability == pytest.approx(1)


def test_chains_are_whole_however_few_passages_are_wanted(search: HopSearch) -> None:
    (few,), (many,) = search.search([QUESTION], 1), search.search([QUESTION], 9)
    assert len(few.rows) == 1
    assert few.chains == many.chains[:1]


def test_a_question_that_one_passage_answers_keeps_the_order_of_the_seeds(index: PassageIndex) -> None:
    # Where no pair is ever sure enough.
    search = HopSearch(index, ENCODER, weights=msgspec.structs.replace(load_weights(), surest=1e6, sharpness=40))
    (ranking,) = search.search(["Where was Tobias Rook, the pilot, born?"], 10)
    (pairs,) = search.pairs(["Where was Tobias Rook, the pilot, born?"])
    expected = pairs.rows[np.argsort(-pairs.seed_scores, kind="stable")][:10]
    assert ranking.rows == tuple(expected.tolist())
    assert ids(search, ranking.rows)[0] == "rook"
    assert [len(chain.rows) for chain in ranking.chains[:3]] == [1, 1, 1]


def test_results_do_not_depend_on_what_else_is_asked(search: HopSearch) -> None:
    questions = [QUESTION, "Where was the founder of Brackwater Lines born?", "mill", "???"]
    together = search.search(questions, 6)
    for question, expected in zip(questions, together, strict=True):
        (alone,) = search.search([question], 6)
        assert alone.rows == expected.rows
        assert np.allclose(alone.scores, expected.scores, atol=1e-6)


def test_scores_are_shares_of_one(search: HopSearch) -> None:
    (ranking,) = search.search([QUESTION], 1000)
    assert sum(ranking.scores) == pytest.approx(1)
    assert list(ranking.scores) == sorted(ranking.scores, reverse=True)
    assert len(set(ranking.rows)) == len(ranking.rows)
    chains = [frozenset(chain.rows) for chain in ranking.chains]
    assert len(set(chains)) == len(chains)
    assert sum(chain.probability for chain in ranking.chains) <= 1 + 1e-9


@pytest.mark.parametrize("question", ["?", "the", "zzyzx qwrtp", "Marigold Tern " * 500, "\ud800", "飛行機はどこ？"])
def test_any_question_is_answered_in_some_order(search: HopSearch, question: str) -> None:
    (ranking,) = search.search([question], 3)
    assert len(ranking.rows) == 3
    assert np.isfinite(ranking.scores).all()


def test_features_are_finite_and_as_many_as_their_names(search: HopSearch) -> None:
    (pairs,) = search.pairs([QUESTION])
    assert pairs.features.shape == (len(pairs.firsts), len(FEATURES))
    assert np.isfinite(pairs.features).all()
    assert (pairs.firsts != pairs.seconds).all()
    assert len(np.unique(np.stack([pairs.firsts, pairs.seconds]), axis=1).T) == len(pairs.firsts)


def test_features_say_what_their_names_say(search: HopSearch) -> None:
    (pairs,) = search.pairs([QUESTION])
    rows = {passage: place for place, passage in enumerate(ids(search, pairs.rows.tolist()))}
    at = np.flatnonzero((pairs.firsts == rows["ferry"]) & (pairs.seconds == rows["lines"]))
    assert len(at) == 1
    of = dict(zip(FEATURES, pairs.features[at[0]].tolist(), strict=True))
    assert of["link"] > 0
    assert of["link_back"] == 0
    assert of["names_it"] == pytest.approx(1)
    assert of["first_named"] == 1
    assert of["second_named"] == 0
    # "founded" and "firm" are what the first passage lacks and the second has.
    vectors = ENCODER.encode([QUESTION], kind="query")
    near = search.index.vectors(pairs.rows) @ vectors[0]
    assert of["second_near"] == pytest.approx(near[rows["lines"]], abs=1e-6)
    assert 0 < of["adds"] < 1
    assert of["first_covered"] + of["adds"] <= 1 + 1e-9


def test_a_search_needs_the_encoder_of_the_index(index: PassageIndex) -> None:
    with pytest.raises(StoreError, match="was made with encoder 'hash'"):
        HopSearch(index, HashEncoder(dimension=32))
    with pytest.raises(TypeError, match="must be a sequence of strings"):
        HopSearch(index, ENCODER).search(QUESTION)
    with pytest.raises(ValueError, match="count must be at least 1"):
        HopSearch(index, ENCODER).search([QUESTION], 0)


def test_narrow_settings_search_less(index: PassageIndex) -> None:
    narrow = HopSearch(index, ENCODER, settings=SearchSettings(seeds=3, firsts=1, seconds=1, led=1, links=1))
    wide = HopSearch(index, ENCODER)
    (few,), (many,) = narrow.pairs([QUESTION]), wide.pairs([QUESTION])
    assert len(few.firsts) < len(many.firsts)
    assert set(ids(wide, narrow.search([QUESTION], 2)[0].rows)) == {"ferry", "lines"}


def test_evidence_shows_the_sentences_that_lead_on() -> None:
    evidence = chain_evidence(
        QUESTION, PassageChain((0, 1), 0.5, (Step(), Step(0, "brackwater lines"))), [FERRY, LINES]
    )
    (chain,) = evidence.chains
    assert [unit.body for unit in chain.units if isinstance(unit, TextUnit)] == [FERRY.sentences[1], LINES.sentences[1]]
    assert evidence.document_ids == ("ferry", "lines")
    assert evidence.context[0].startswith("[Marigold Tern] The Marigold Tern is a ferry.")
    assert np.exp(chain.score) == pytest.approx(0.5)


def test_a_sentence_that_names_the_last_passage_leads_on_though_another_has_more_words_of_the_question() -> None:
    question = "How many people live in the town where the Lantern Tide is held?"
    tide = Document(
        "tide",
        "Lantern Tide",
        ("The Lantern Tide is a feast of Pellisk.", "The Lantern Tide is held where people live."),
    )
    town = Document("town", "Pellisk", ("Pellisk has 2,100 inhabitants.",))
    for passages, expected in (([tide, town], 0), ([tide, Document("x", "Quillhaven", town.sentences)], 1)):
        (chain,) = chain_evidence(question, PassageChain((0, 1), 0.5, (Step(), Step())), passages).chains
        assert chain.units[0].sentence == expected


def test_shipped_weights_have_every_feature() -> None:
    weights = load_weights()
    assert weights.vector().shape == (len(FEATURES),)
    assert "benches.hops" in weights.made_by
    with pytest.raises(InputError, match="have besides, the features nothing"):
        msgspec.structs.replace(weights, features={**weights.features, "nothing": 1.0}).vector()


def test_weights_are_learned_from_right_pairs_and_the_length_from_both_kinds() -> None:
    rng = np.random.default_rng(3)
    truth = rng.normal(size=len(FEATURES))
    rows = np.arange(31)
    firsts, seconds = np.repeat(0, 30), np.arange(1, 31)
    several, single = [], []
    for _ in range(200):
        features = rng.normal(size=(30, len(FEATURES)))
        right_pairs = np.arange(30) == np.argmax(features @ truth)
        right = np.concatenate([[True], right_pairs])
        several.append(KnownQuestion(Pairs(rows, firsts, seconds, features, rng.random(31)), right, right_pairs))
        scores = rng.random(31)
        unsure = Pairs(rows, firsts, seconds, 0.05 * rng.normal(size=(30, len(FEATURES))), scores)
        single.append(KnownQuestion(unsure, scores == scores.max(), np.zeros(30, dtype=bool)))
    learned = learn(several, single, made_by="a test")
    vector = learned.vector()
    assert vector @ truth / np.linalg.norm(vector) / np.linalg.norm(truth) > 0.95
    assert learned.made_by == "a test"
    surest = [np.exp(each.pairs.features @ vector) for each in several]
    surest = [(each / each.sum()).max() for each in surest]
    assert np.median(surest) > learned.surest > 1 / 30
    assert learned.sharpness > 0
    # The best seed is always right, so that the sharper the better.
    assert learned.seed_sharpness > 10
    with pytest.raises(InputError, match="none of 1 questions has a right and a wrong pair"):
        learn(single[:1])


def test_how_far_pairs_lead_on_is_learned() -> None:
    # The third passage is found by the second alone, which is a first as well.
    rng = np.random.default_rng(5)
    firsts, seconds = np.array([0] * 5 + [1] * 5), np.array([1, 3, 4, 5, 6, 2, 3, 4, 5, 6])

    def question(third: bool) -> KnownQuestion:
        features = 0.1 * rng.normal(size=(10, len(FEATURES)))
        features[0, 0], features[5, 0] = 5, 3
        right = np.isin(np.arange(7), [0, 1, 2] if third else [0, 1])
        pairs = Pairs(np.arange(7), firsts, seconds, features, np.array([1.0, 0, 0, 0, 0, 0, 0]))
        return KnownQuestion(pairs, right, right[firsts] & right[seconds])

    flat = Pairs(np.arange(7), firsts, seconds, np.zeros((10, len(FEATURES))), np.eye(7)[0])
    single = [KnownQuestion(flat, np.arange(7) == 0, np.zeros(10, dtype=bool))]
    of_three = learn([question(third=True) for _ in range(20)], single)
    of_two = learn([question(third=False) for _ in range(20)], single)
    assert of_three.onward > of_two.onward + 0.1
    scores = [
        msgspec.structs.replace(of_three, onward=onward).score(
            question(third=True).pairs.features, firsts, seconds, flat.seed_scores
        )
        for onward in (0.0, 0.5)
    ]
    assert scores[1].passages[2] > scores[0].passages[2]
    assert scores[1].passages.sum() == pytest.approx(1)


@pytest.mark.models
def test_the_front_door_builds_searches_and_asks(tmp_path: Path) -> None:
    import pytrace

    engine = pytrace.load("tiny", threads=1)
    corpus = pytrace.Corpus.build(tmp_path / "index", CHECKOUT / "examples/docs", engine)
    asked = "Who founded the foundry that cast the bell of the Lady Addle?"
    found = engine.search(asked, corpus).evidence
    assert [found.sources[step.source].title for step in found.chains[0].steps] == ["Lady Addle", "Orrin Bell Foundry"]
    question = "Who founded the company that owns the Marigold Tern?"
    first = {passage.title for passage in corpus.nearest(question, engine, 6)}
    assert {"Marigold Tern", "Brackwater Ferries"} <= first
    for place in (corpus, tmp_path / "index"):
        result = engine.ask(asked, place)
        assert "Matthias Garrow" in result.answer
        assert "Matthias Garrow" in result.evidence.chains[0].steps[-1].sentence
    corpus.close()


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("Who founded the firm that owns the Marigold Tern?", None),
        ("Who founded the firm that owns the Marigld Tern?", "Who founded the firm that owns the Marigold Tern?"),
        ("who owns the marigodl tern, I ask", "who owns the marigold tern, I ask"),
        ("Was Tobias Rookk a pilot, or Tobas Rook?", "Was Tobias Rook a pilot, or Tobias Rook?"),
        # A word of a name that stands alone needs a capital, and not one that any first word has.
        ("What did Brackwatre own?", "What did Brackwater own?"),
        ("what did brackwatre own?", None),
        ("Brackwatre owns what?", None),
        # Two letters, words that are no names', short ones, numbers, and scripts without spaces stay as they are.
        ("Who owns the Mariggoldd Tern?", None),
        ("Who foundedd the firmm of the crownn?", None),
        ("Is Ast Point a town?", None),
        ("Was it 19311?", None),
        ("Wem gehört die Fähre Rokk?", "Wem gehört die Fähre Rook?"),
        ("飛行機はどこ？", None),
        ("", None),
    ],
)
def test_names_with_a_wrong_letter_are_read_as_the_passages_spell_them(
    search: HopSearch, asked: str, read: str | None
) -> None:
    assert search.read([asked]) == [asked if read is None else read]


def test_a_word_that_is_far_too_long_costs_nothing(search: HopSearch) -> None:
    long = f"Who owns {'x' * 50_000}?"
    tracemalloc.start()
    try:
        assert search.read([long]) == [long]
        # Its misspellings alone would take gigabytes.
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_names_of_other_scripts_are_spelt_with_their_own_letters(tmp_path: Path) -> None:
    search = HopSearch(
        build(
            tmp_path / "index",
            [
                Document("1", "Мария Склодовская", ("Мария Склодовская родилась в Варшаве.",)),
                Document("2", "Älvdalens Järnväg", ("Älvdalens Järnväg är en bana.",)),
            ],
        ),
        ENCODER,
    )
    assert search.read(["где родилась мария складовская?"]) == ["где родилась мария склодовская?"]
    assert search.read(["Vem byggde Elvdalens Järnväg?"]) == ["Vem byggde Älvdalens Järnväg?"]


def test_a_question_is_searched_for_as_it_is_read(search: HopSearch) -> None:
    (right,), (wrong,) = search.search([QUESTION], 5), search.search([QUESTION.replace("gold", "glod")], 5)
    assert wrong == right
    assert wrong.question == QUESTION
