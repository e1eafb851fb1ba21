"""Small stores of every kind that damage is done to: how each is made, and all that can be read of it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document, Origin, Triple

_ENCODER = HashEncoder(dimension=32)
_PLACES = ("Pellisk", "Quillhaven", "Thornwick", "Orrin Head", "Skarra Isle")
_QUESTIONS = ("Which mayor came from Pellisk?", "Who lies near Orrin Head?")


class Store(NamedTuple):
    """How a store is made, and all that can be read of it; `read` ends with what verifies it, if anything does.

    `verify` is the command that does, and `word` stands in the store's largest file.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    verify: tuple[str, ...] = ()
    word: bytes = b""


def _given(place: Path, name: str) -> Path:
    """Return where a file is that a store is made of: neither in it nor on its disk."""
    folder = place.parent.parent / "given"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _documents() -> list[list[Document]]:
    rng = random.Random(5)
    documents = []
    for name in ("ash", "birch", "cedar", "dogwood", "elm"):
        made = []
        for number in range(3):
            words = (
                f"{name.title()} {number} lies near {rng.choice(_PLACES)}.",
                f"Its mayor came from {rng.choice(_PLACES)}.",
            )
            origin = Origin(name, name.title(), start=10 * number, metadata={"version": 3})
            made.append(Document(f"{name}#{number}", name.title(), words, f"{name}.txt", origin))
        documents.append(made)
    return documents


def _triples(document: Document) -> list[Triple]:
    place = document.sentences[0].partition(" near ")[2].rstrip(".")
    return [
        Triple(document.title, "lies near", place, document.id, 0, 90.0),
        Triple(place, "has", "mayor", document.id, 1),
    ]


def _make_index(place: Path) -> None:
    from pytrace.retrieval.hops.weights import load_weights, save_weights
    from pytrace.retrieval.passages import IndexWriter

    with IndexWriter(place, _ENCODER, create=True, reading={"words": 100}) as writer:
        writer.add(passage for document in _documents() for passage in document)
        writer.commit()
    save_weights(place, load_weights(), _QUESTIONS)


def _read_index(place: Path) -> object:
    from pytrace.retrieval.hops import HopSearch
    from pytrace.retrieval.hops.weights import learned_questions
    from pytrace.retrieval.passages import PassageIndex

    with PassageIndex.open(place, _ENCODER) as index:
        rankings = HopSearch(index, _ENCODER).search(_QUESTIONS, 5)
        found = [(ranking.rows, [round(float(score), 6) for score in ranking.scores]) for ranking in rankings]
        passages = index.passages(range(len(index)))
        near = [each.tolist() for each in index.nearest(_ENCODER.encode(_QUESTIONS), 4)]
        entries = list(index.entries())
        index.verify()
        return found, passages, near, entries, index.manifest.reading, index.documents, learned_questions(place)


def _make_base(place: Path) -> None:
    from pytrace.kg import KnowledgeBase, is_knowledge_base

    source = _given(place, "facts.tsv")
    facts = [triple for document in _documents() for passage in document for triple in _triples(passage)]
    source.write_text("".join(f"{fact.head}\t{fact.relation}\t{fact.tail}\n" for fact in facts))
    if not is_knowledge_base(place):
        KnowledgeBase.build(source, place, _ENCODER)


def _read_base(place: Path) -> object:
    from pytrace.kg import KnowledgeBase

    base = KnowledgeBase.open(place, _ENCODER)
    scores, numbers = base.search(_ENCODER.encode(_QUESTIONS), 3)
    texts = [base.text(number) for number in range(len(base))]
    triples = [(base.triple(number), base.named(number)) for number in range(len(base))]
    entities = [base.entity(key) for key in base.columns.entity_keys]
    ends = [(base.with_head(n).tolist(), base.with_tail(n).tolist()) for n in range(len(base.columns.entity_keys))]
    found = base.find_entities("pelisk"), base.find_entities("head orrin")
    mentions = base.columns.mentions.find(list(_QUESTIONS))
    base.verify()
    return scores.tolist(), numbers.tolist(), texts, triples, entities, ends, found, mentions


def _make_begun_base(place: Path) -> None:
    """Leave what a build has that was killed after its first batch."""
    from pytrace.kg import columns, knowledge_base
    from pytrace.kg.building import Building

    place.mkdir(parents=True)
    table = columns.compile_triples(triple for document in _documents() for triple in _triples(document[0]))
    with Building(place / "base", _ENCODER) as building:
        building.begin(table)
        building.append(next(knowledge_base._encoded(table, _ENCODER, 0))[:4])


def _read_begun_base(place: Path) -> object:
    from pytrace.kg import KnowledgeBase

    source = _given(place, "facts.tsv")
    facts = [triple for document in _documents() for triple in _triples(document[0])]
    source.write_text("".join(f"{fact.head}\t{fact.relation}\t{fact.tail}\n" for fact in facts))
    KnowledgeBase.build(source, place / "base", _ENCODER)
    found = _read_base(place / "base")
    shutil.rmtree(place / "base")
    return found


def _make_sentences(place: Path) -> None:
    from pytrace.retrieval import SentenceIndex

    begun = (place / "index.json").exists()
    with (
        SentenceIndex.open(place, _ENCODER, mode="write")
        if begun
        else SentenceIndex.build(place, [], _ENCODER) as index
    ):
        index.add_documents(passage for document in _documents() for passage in document)


def _read_sentences(place: Path) -> object:
    from pytrace.retrieval import SentenceIndex

    with SentenceIndex.open(place, _ENCODER) as index:
        found = index.search(_QUESTIONS, len(index))
        index.verify()
        return found


def _make_graph(place: Path) -> None:
    from pytrace.triples.graph import ExtractionStatistics, Recipe, TripleStore

    with TripleStore.open(place, recipe=Recipe("attack", "model", options={"n": 3}), mode="resume") as graph:
        passages = [passage for document in _documents() for passage in document]
        graph.sync([*passages, Document("waits", "Waits", ("Nothing yet.",), "w.txt")])
        for number, passage in enumerate(passages):
            failure = "" if number % 5 else "no line could be read"
            graph.add(passage, _triples(passage), ExtractionStatistics(4, 2, 1, 1, number % 7 == 0, failure))


def _read_graph(place: Path) -> object:
    from pytrace.triples.graph import TripleStore

    with TripleStore.open(place, mode="read") as graph:
        stored = [
            (each.document, each.statistics, each.edited, list(each.triples)) for each in graph.stored_documents()
        ]
        about = [graph.triples_about(name) for name in _PLACES]
        by_id = [graph.document(each.id) for each, *_ in stored]
        listed = list(graph.entities()), graph.relations(), list(graph.failures()), list(graph.cut_off())
        counts = graph.statistics(), graph.count_pending(), graph.count_pending(failed=True), len(graph), graph.recipe
        graph.verify()
        return stored, about, by_id, listed, counts


def _make_run(place: Path) -> None:
    from pytrace.evaluation.run.run_store import RunStore
    from pytrace.evaluation.run.runner import evaluate
    from tests.example_runs import METHODS, question

    with RunStore(place / "run.sqlite") as store:
        store.open_run({"data": {"sha256": "ab" * 32}, "n": 3}, resume=True, notes={"data": "hotpot.jsonl"})
        evaluate(METHODS, [question(number) for number in range(4)], store=store)


def _read_run(place: Path) -> object:
    from pytrace.evaluation.run.run_store import RunStore

    with RunStore(place / "run.sqlite") as store:
        rows = {name: list(store.rows(name)) for name in store.methods()}
        found = store.settings, store.notes, store.asked(), list(store.questions())
        assert store.started
        store.verify()
        return rows, found


def _answers(prompt: str) -> str:
    return f"An answer to {prompt}"


def _read_responses(place: Path) -> object:
    from pytrace.models.response_cache import CachedModel

    place.mkdir(parents=True, exist_ok=True)
    prompts = [f"{question} {number}" for question in _QUESTIONS for number in range(10)]
    with CachedModel(ScriptedModel(_answers), place / "answers.sqlite") as model:
        written = model.generate(prompts, max_tokens=20)
        scored = model.score_options(prompts[:3], [["yes", "no"]] * 3)
        return written, [(score.log_probabilities.tolist(), score.outside, score.bounded) for score in scored]


def _read_endpoint_answers(place: Path) -> object:
    from pytrace.kg.answer_cache import AnswerCache

    cache = AnswerCache(place)
    try:
        found = []
        for number in range(30):
            request, answer = ("GET", f"query {number}"), f"row {number} ".encode() * 20
            # What is not there is asked for again.
            if (held := cache.get(request)) is None:
                cache.put(request, answer)
            found.append(held or answer)
        return found
    finally:
        cache.close()


def _read_vectors(place: Path) -> object:
    from pytrace.models.encoders.vector_cache import VectorCache

    texts = [f"text {number}" for number in range(40)]
    keys, vectors = [sha256(text.encode()).digest()[:16] for text in texts], _ENCODER.encode(texts)
    cache = VectorCache(place, fingerprint="attack", dimension=32)
    known, held = cache.get(keys)
    # What is not there is encoded again.
    cache.put([key for key, is_known in zip(keys, known, strict=True) if not is_known], vectors[~known])
    vectors = vectors.copy()
    vectors[known] = held
    return vectors.tolist()


def _make_models(place: Path) -> None:
    from pytrace.models import registry

    files = {"model.gguf": b"GGUF" + random.Random(1).randbytes(5000)}
    encoder = {"model.onnx": random.Random(2).randbytes(4000), "tokenizer.json": b'{"a": "b"}' * 20}
    place.mkdir(parents=True, exist_ok=True)
    models = []
    for name, role, parts in (("m", "language-model", files), ("e", "encoder", encoder)):
        described = []
        for path, content in parts.items():
            source = _given(place, path)
            source.write_bytes(content)
            pin = {"sha256": sha256(content).hexdigest(), "size": len(content)}
            described.append({"path": path, "sources": [{"uri": str(source)}], **pin})
        model: dict[str, Any] = {"name": name, "role": role, "description": "", "license": "none", "files": described}
        if role == "encoder":
            model["settings"] = {"pooling": "mean", "max_tokens": 64, "normalize": True}
        models.append(model)
    if not (place / "catalog.json").exists():  # the user's own file, and no part of the store
        (place / "catalog.json").write_bytes(msgspec.json.encode({"models": models}))
    os.environ["PYTRACE_HOME"] = str(place)
    for name in ("m", "e"):
        registry.pull(name)


def _read_models(place: Path) -> object:
    from pytrace.models import registry

    os.environ["PYTRACE_HOME"] = str(place)
    folder = registry.resolve("e", "encoder")
    content = [
        path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")
    ]
    return registry.resolve("m", "language-model").read_bytes(), content


STORES = {
    "index": Store(_make_index, _read_index, ("index", "verify", "{}")),
    "knowledge base": Store(_make_base, _read_base, ("kg", "verify", "{}")),
    "knowledge base that was begun": Store(_make_begun_base, _read_begun_base),
    "sentences": Store(_make_sentences, _read_sentences, ("index", "verify", "{}")),
    "graph": Store(_make_graph, _read_graph, ("kg", "verify", "{}"), b" lies near"),
    "run": Store(_make_run, _read_run, ("report", "{}", "--verify"), b"King of Hanover"),
    "responses": Store(_read_responses, _read_responses),
    "answers of endpoints": Store(_read_endpoint_answers, _read_endpoint_answers),
    "vectors": Store(_read_vectors, _read_vectors),
    "models": Store(_make_models, _read_models),
}
