"""Vectors kept on a card: whatever searches them finds what it finds on the processor, and they travel there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrace.certify.relation_reading import RelationReader
from pytrace.errors import DeviceUnavailableError
from pytrace.kernels import DeviceVectors, devices, top_k
from pytrace.kernels import device_vectors as kept_vectors
from pytrace.kg import KnowledgeBase
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries.relations import NearestRelations
from pytrace.methods.trace.ranker import Ranker, TripleIndex
from pytrace.methods.trace.trace import Trace, TraceSettings
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document, Sentence, Triple
from pytrace.retrieval import DenseRetriever, SentenceIndex

WORDS = ["ferry", "mail", "noon", "bread", "river", "tower", "bees", "town", "port", "harbour", "mayor", "lamp"]


@pytest.fixture
def uploads(card: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which each copy of kept vectors to a card adds how many they are."""
    del card
    counted: list[int] = []
    real = devices.to_device

    def to_device(array: Any, device: str = "cuda") -> Any:
        counted.append(len(array))
        return real(array, device)

    monkeypatch.setattr(kept_vectors, "to_device", to_device)
    return counted


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, 4)) for _ in range(count)]


def on_both(find: Callable[[HashEncoder], Any]) -> tuple[Any, Any]:
    """Return what is found with an encoder whose vectors are searched on the card, and on the processor."""
    return find(HashEncoder(dimension=24, device="cuda")), find(HashEncoder(dimension=24))


def test_searches_with_every_option_equal_the_processors_and_copy_the_vectors_once(uploads: list[int]) -> None:
    random = np.random.default_rng(1)
    vectors = random.standard_normal((30, 8), dtype=np.float32)
    queries = random.standard_normal((3, 8), dtype=np.float32)
    there, here = DeviceVectors(vectors, "cuda"), DeviceVectors(vectors)
    for k, options in (
        (4, {}),
        (4, {"metric": "l2"}),
        (3, {"offsets": [0, 10, 10, 30]}),
        (3, {"offsets": [0, 10, 30], "query_offsets": [0, 1, 3], "exclude": [[0], [11], []]}),
        (40, {"metric": "cosine"}),
    ):
        scores, rows = there.top_k(queries, k, **options)  # type: ignore[arg-type]
        expected_scores, expected_rows = here.top_k(queries, k, **options)  # type: ignore[arg-type]
        assert isinstance(scores, np.ndarray)
        assert isinstance(rows, np.ndarray)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-6)
    assert uploads == [30]
    assert (len(there), there.device, here.device) == (30, "cuda", "cpu")


def test_int8_vectors_are_searched_with_their_scales(uploads: list[int]) -> None:
    random = np.random.default_rng(2)
    vectors = random.integers(-127, 128, (30, 8), dtype=np.int8)
    scale = random.random(30, dtype=np.float32) + 0.1
    queries = random.standard_normal((3, 8), dtype=np.float32)
    expected_scores, expected_rows = top_k(queries, vectors * scale[:, None], 4)
    for device in ("cpu", "cuda"):
        scores, rows = DeviceVectors(vectors, device, scale=scale).top_k(queries, 4)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    assert uploads == [30]


def test_on_the_processor_vectors_are_searched_where_they_lie() -> None:
    vectors = np.eye(4, dtype=np.float32)
    kept = DeviceVectors(vectors)
    assert kept.vectors is vectors
    assert kept._placed() is vectors


def test_a_device_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or 'cuda:N', not 'gpu'"):
        DeviceVectors(np.eye(2, dtype=np.float32), "gpu")


def test_a_card_without_room_is_told_with_the_numbers(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("the card has no room for 12 MB (3 MB are free)")

    monkeypatch.setattr(kept_vectors, "to_device", full)
    with pytest.raises(
        DeviceUnavailableError, match=r"4 vectors of 4 numbers .* no room for 12 MB .* or use device 'cpu'"
    ):
        DeviceVectors(np.eye(4, dtype=np.float32), card).top_k(np.eye(4, dtype=np.float32), 1)


def test_the_ranker_offers_the_same_candidates_and_a_questions_triples_travel_once(uploads: list[int]) -> None:
    triples = [
        [Triple(f"{row} {number}", "has", text, str(number)) for number, text in enumerate(texts(size, row))]
        for row, size in enumerate((12, 0, 7))
    ]
    questions = ["Which ferry brings mail?", "Where is bread?", "Who is the mayor of the harbour town?"]

    def find(encoder: HashEncoder) -> Any:
        index, ranker = TripleIndex(triples, encoder), Ranker(encoder, candidates=5)
        first = ranker.rank(index, questions, [0, 1, 2], [[], [], []])
        return first, ranker.rank(index, questions, [0, 0, 2], [[1], [2, 3], [0]])

    there, here = on_both(find)
    for mine, expected in zip([*there[0], *there[1]], [*here[0], *here[1]], strict=True):
        assert [one.index for one in mine] == [one.index for one in expected]
        assert [one.score for one in mine] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert uploads == [19]


def test_trace_answers_with_the_same_chains(uploads: list[int]) -> None:
    documents = [
        Document("obs", "Orrin Head", ("Orrin Head was founded by Isaura Venn.", "It was built in 1871.")),
        Document("venn", "Isaura Venn", ("Isaura Venn was born in Quillhaven.", "She kept bees.")),
        Document("ferry", "Pellisk Ferry", ("The ferry leaves at noon.", "It carries mail.")),
    ]
    settings = TraceSettings(unit="sentence", scoring="ranker", candidates=4, length=2, beams=2, chains=2)

    def find(encoder: HashEncoder) -> Any:
        (answer,) = Trace(ScriptedModel(["Quillhaven"]), encoder, settings).answer(
            ["In which town was the founder of Orrin Head born?"], [documents]
        )
        return answer.text, [chain.units for chain in answer.evidence.chains]

    there, here = on_both(find)
    assert there == here
    assert uploads == [6]


def test_a_corpus_is_kept_once_for_all_questions(uploads: list[int]) -> None:
    documents = [Document(str(row), f"title {row}", tuple(texts(3, row))) for row in range(8)]

    def find(encoder: HashEncoder) -> Any:
        retriever = DenseRetriever(documents, encoder)
        return [
            [hit.document.id for hit in hits]
            for queries in (["ferry mail"], ["bread river", "tower bees"])
            for hits in retriever.retrieve(queries, 3)
        ]

    there, here = on_both(find)
    assert there == here
    assert uploads == [24]


def test_an_index_of_sentences_is_searched_exactly_and_kept_anew_when_it_has_grown(
    uploads: list[int], tmp_path: Path
) -> None:
    sentences = [Sentence("1", number, text) for number, text in enumerate(texts(40))]

    def find(encoder: HashEncoder) -> Any:
        found = []
        place = tmp_path / encoder.device
        with SentenceIndex.build(place, sentences[:25], encoder) as index:
            found += index.search(["ferry mail", "bread"], 5) + index.search(["tower"], 5)
            index.extend(sentences[25:])
            found += index.search(["ferry mail"], 5)
        with SentenceIndex.open(place, encoder) as index:
            found += index.search(["ferry mail"], 5)
            assert index.recall == 1
        return [[(hit.index, round(hit.distance, 4)) for hit in hits] for hits in found]

    there, here = on_both(find)
    assert there == here
    assert uploads == [25, 40, 40]


def test_where_a_graph_would_be_used_the_card_looks_at_every_sentence(uploads: list[int]) -> None:
    pytest.importorskip("hnswlib", reason="hnswlib is the extra `index`")
    sentences = [Sentence("1", number, text) for number, text in enumerate(texts(60))]

    def find(encoder: HashEncoder, exact_below: int) -> Any:
        index = SentenceIndex(encoder, exact_below=exact_below)
        index.extend(sentences)
        return [(hit.index, round(hit.distance, 4)) for hit in index.search(["ferry mail"], 9)[0]]

    assert find(HashEncoder(device="cuda"), 20) == find(HashEncoder(), 1000)
    assert uploads == [60]


def test_a_knowledge_base_in_memory_or_on_disk_finds_the_same_facts(uploads: list[int], tmp_path: Path) -> None:
    triples = [Triple(f"E{number}", "knows", text) for number, text in enumerate(texts(20))]

    def find(encoder: HashEncoder) -> Any:
        path = tmp_path / f"{encoder.device}.tsv"
        path.write_text("".join(f"{one.head}\t{one.relation}\t{one.tail}\n" for one in triples), encoding="utf-8")
        built = KnowledgeBase.build(path, tmp_path / encoder.device, encoder)
        queries = encoder.encode(["ferry mail", "bread river"])
        bases = (
            KnowledgeBase.in_memory(triples, encoder),
            built,
            KnowledgeBase.open(tmp_path / encoder.device, encoder),
        )
        found = [base.search(queries, 4) for base in bases for _ in range(2)]
        return [(rows.tolist(), scores.round(4).tolist()) for scores, rows in found]

    there, here = on_both(find)
    assert there == here
    assert uploads == [20, 20, 20]


def test_where_there_is_nothing_to_search_nothing_is_found(uploads: list[int]) -> None:
    encoder = HashEncoder(device="cuda")
    assert DenseRetriever([], encoder).retrieve(["ferry"], 2) == [[]]
    assert SentenceIndex(encoder).search(["ferry"], 2) == [[]]
    assert Ranker(encoder).rank(TripleIndex([[]], encoder), ["ferry"], [0], [[]]) == [[]]
    assert uploads == [0, 0]


def test_relations_are_kept_once_for_steps_and_for_questions(uploads: list[int]) -> None:
    triples = [Triple("A", f"{text.replace(' ', '_')}", "B") for text in dict.fromkeys(texts(9))]
    relations = [Relation(f"urn:{number}", text) for number, text in enumerate(dict.fromkeys(texts(9)))]

    def find(encoder: HashEncoder) -> Any:
        reader = RelationReader(KnowledgeBase.in_memory(triples, encoder), encoder)
        told = [reader.read(["X ferry Y", "X bread Y"], [0, 1]) for _ in range(2)]
        nearest = NearestRelations(relations, form="triplet", most=3, encoder=encoder)
        return [(one.nearest, round(one.cosine, 4)) for each in told for one in each], [
            nearest.find(["ferry mail?"]) for _ in range(2)
        ]

    there, here = on_both(find)
    assert there == here
    assert uploads == [len(triples), len(relations)]


def test_arrays_of_any_kind_come_to_the_processor(card: str) -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    there = devices.to_device(numbers, card)
    np.testing.assert_array_equal(devices.to_host(there), numbers)
    assert devices.to_host(numbers) is numbers
    assert devices.to_host([1, 2]).tolist() == [1, 2]

    class Foreign:
        __cuda_array_interface__ = there.__cuda_array_interface__

    np.testing.assert_array_equal(devices.to_host(Foreign()), numbers)
