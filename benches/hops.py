"""Recall of search across hops over open corpora, by weights that never saw the questions, beside its parts and its peers.

    python -m benches.hops FOLDER… [--single FOLDER|FILE…] [--titles kept|three|note] [--work DIR] [--ablations] [--misspelt] [--heads] [--together]
        [--failures FILE] [--write FILE]

A folder has corpus.jsonl (id, title, text) and questions.jsonl (question, gold: ids). Each is ranked by weights that were learned
from the others, and by those that ship, with their titles kept and replaced; questions of --single folders take one passage, and are scored by nDCG, too.
With --misspelt a letter is wrong in a name of each question, as it comes and as `HopSearch.read` reads it; with --heads passages are
known by the heads of triples, too, which the rules for phrases find (`index build --kg`); with --together each folder's questions are
asked of one index of all folders' passages, too. With --write weights are learned from all folders, and written with the hashes of their questions.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import pytrace
from benches.hops_sets import (
    TITLES,
    index_passages,
    index_together,
    index_with_heads,
    misspelt,
    read_set,
    retitled,
)
from pytrace.evaluation.scores.metrics import precision_recall_f1
from pytrace.kernels import personalised_pagerank
from pytrace.retrieval.hops.features import FEATURES, Pairs
from pytrace.retrieval.hops.learning import KnownQuestion, known_question, learn
from pytrace.retrieval.hops.search import HopSearch, PassageRanking
from pytrace.retrieval.hops.weights import Weights, learned_questions, load_weights
from pytrace.retrieval.passages import PassageIndex
from pytrace.retrieval.passages.graph import Links
from pytrace.retrieval.passages.segment import document_id
from pytrace.storage.question_hashes import question_hash, save_question_hashes

_DEPTH = 50
_WITHOUT = {
    "links": ("link", "link_back"),
    "rare words": ("rarest_shared", "rarest_in_name", "shared"),
    "names": (
        *("both_named", "names_it", "name_weight", "named_by_it", "rarest_in_name"),
        *(f"{place}_{name}" for place in ("first", "second") for name in ("named", "name_rarity", "title")),
    ),
    "what the second adds": ("adds", "adds_of_rest", "first_covered"),
}

Ranking = list[str]


class Asked(NamedTuple):
    """A folder's questions: pairs, gold documents, each row's document, the rankings of the peers, and milliseconds a question.

    `others` are the same where something else is asked, or is known of the passages.
    """

    pairs: list[Pairs]
    others: dict[str, Asked]
    gold: list[frozenset[str]]
    owners: list[str]
    peers: dict[str, list[Ranking]]
    milliseconds: float


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--single",
        nargs="*",
        type=Path,
        default=[],
        help="folders, or claims in the form of WiCE, that take one passage",
    )
    parser.add_argument(
        "--titles", choices=TITLES, nargs="*", default=["kept"], help="what stands for titles where recall is measured"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/hops"), help="where indexes are kept for the next run")
    parser.add_argument("--ablations", action="store_true", help="print recall without each part, too")
    parser.add_argument("--misspelt", action="store_true", help="print recall where a letter of a name is wrong, too")
    parser.add_argument("--heads", action="store_true", help="print recall where heads of triples are names, too")
    parser.add_argument("--together", action="store_true", help="print recall among the passages of all folders, too")
    parser.add_argument("--failures", type=Path, help="write the questions whose support is not all among the first 5")
    parser.add_argument("--write", type=Path, help="write weights that are learned from all folders")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    engine = pytrace.load("tiny", threads=options.threads)
    asked = {
        (folder, titles): _ask(
            folder, titles, options.work, engine, with_misspelt=options.misspelt, with_heads=options.heads
        )
        for folder in options.folders
        for titles in dict.fromkeys(("kept", "note", *options.titles))
    }
    asked |= {(folder, "kept"): _ask(folder, "kept", options.work, engine) for folder in options.single}
    for titles in options.titles if options.together else ():
        search = HopSearch(
            index_together([*options.folders, *options.single], titles, options.work, engine), engine.encoder
        )
        for folder in options.folders:
            asked[folder, titles].others["among all sets' passages"] = _among_all(folder, search)
    print(f"python -m benches.hops {' '.join(sys.argv[1:])}", flush=True)
    failures: list[dict[str, Any]] = []
    for folder in (*options.folders, *options.single):
        weights = _learned(asked, options.folders, options.single, leave_out=folder)
        seen = len({*map(question_hash, questions_of([folder]))} & (learned_questions() or frozenset()))
        shipped = f"as shipped ({seen} seen)"
        for titles in options.titles if folder in options.folders else ["kept"]:
            one = asked[folder, titles]
            print(
                f"\n{folder.name}, titles {titles}: {len(set(one.owners)):,} documents, {len(one.owners):,} passages, "
                f"{len(one.gold)} questions, {one.milliseconds:.1f} ms a question without the encoder"
            )
            for name, rankings in one.peers.items():
                _print(name, rankings, one.gold)
            ranked = _ranked(one, weights)
            _print("search across hops", ranked, one.gold)
            _print(shipped, _ranked(one, load_weights()), one.gold)
            for name, chosen in _chosen(one, weights).items():
                _print_chosen(name, chosen, one.gold)
            if options.failures and titles == "kept" and folder in options.folders:
                failures += _failures(folder, one, ranked)
            for name, other in one.others.items():
                _print(f"  {name}", _ranked(other, weights), other.gold)
                for peer in ("BM25", "vectors", "RRF of both", "walk alone") if other.peers is not one.peers else ():
                    _print(f"    {peer}", other.peers[peer], other.gold)
            for name, left_out in _WITHOUT.items() if options.ablations else ():
                fewer = _learned(asked, options.folders, options.single, leave_out=folder, without=left_out)
                _print(f"  without {name}", _ranked(one, fewer), one.gold)
            if options.ablations:
                _print("  several hops always", _ranked(one, msgspec.structs.replace(weights, surest=1e-6)), one.gold)
                _print("  pairs alone, no step on", _ranked(one, msgspec.structs.replace(weights, onward=0)), one.gold)
    if options.failures:
        options.failures.write_bytes(b"".join(msgspec.json.encode(failure) + b"\n" for failure in failures))
    if options.write:
        every = _learned(asked, options.folders, options.single)
        rounded = {name: round(value, 3) for name, value in every.features.items()}
        made_by = f"python -m benches.hops {' '.join(Path(each).name for each in sys.argv[1:])}"
        every = Weights(
            features=rounded,
            surest=round(every.surest, 3),
            sharpness=round(every.sharpness, 3),
            seed_sharpness=round(every.seed_sharpness, 3),
            onward=round(every.onward, 3),
            made_by=made_by,
        )
        options.write.write_bytes(msgspec.json.format(msgspec.json.encode(every), indent=2) + b"\n")
        save_question_hashes(options.write, questions_of([*options.folders, *options.single]), made_by=made_by)
    return 0


def questions_of(sets: Sequence[Path]) -> list[str]:
    """Return the questions that are learned from."""
    return [question["question"] for path in sets for question in read_set(path)[1]]


def _ask(
    folder: Path,
    titles: str,
    work: Path,
    engine: pytrace.Engine,
    *,
    with_misspelt: bool = False,
    with_heads: bool = False,
) -> Asked:
    passages, questions = read_set(folder)
    index = index_passages(retitled(passages, titles), work / f"{folder.stem}-{titles}", engine)
    search = HopSearch(index, engine.encoder)
    texts = search.read([question["question"] for question in questions])
    asked = _asked(search, texts, [frozenset(question["gold"]) for question in questions])
    if with_misspelt:
        wrong = [misspelt(text, np.random.default_rng(number)) for number, text in enumerate(texts)]
        for name, some in (("as it comes", wrong), ("read by names", search.read(wrong))):
            asked.others[f"a letter wrong, {name}"] = asked._replace(pairs=list(search.pairs(some)))
    if with_heads:
        named = index_with_heads(folder, titles, work, engine)
        asked.others["heads of triples are names"] = asked._replace(
            pairs=list(HopSearch(named, engine.encoder).pairs(texts)), owners=_owners(named)
        )
    return asked


def _asked(search: HopSearch, texts: Sequence[str], gold: list[frozenset[str]]) -> Asked:
    """Make the pairs of questions, and the rankings of the peers."""
    index, encode = search.index, partial(search.encoder.encode, kind="query")
    encode(texts)  # so that sessions and files are warm
    started = time.perf_counter()
    vectors = encode(texts)
    encoding = time.perf_counter() - started
    started = time.perf_counter()
    pairs = list(search.pairs(texts))
    milliseconds = 1000 * (time.perf_counter() - started - encoding) / len(texts)
    owners = _owners(index)
    assert index.graph is not None
    links = index.graph.links(np.arange(len(index)))
    words, near = index.words.top(texts, _DEPTH)[1], index.nearest(vectors, _DEPTH)[1]
    peers = {
        "BM25": [_documents(rows, owners) for rows in words],
        "vectors": [_documents(rows, owners) for rows in near],
        "RRF of both": [_fused(one, other, owners) for one, other in zip(words, near, strict=True)],
        "seeds alone": [_by(each.seed_scores, each, owners) for each in pairs],
        "walk alone": [_walked(links, each, owners) for each in pairs],
    }
    return Asked(pairs, {}, gold, owners, peers, milliseconds)


def _among_all(folder: Path, search: HopSearch) -> Asked:
    """Ask a folder's questions of an index of all folders."""
    questions = read_set(folder)[1]
    gold = [frozenset(f"{folder.stem}/{name}" for name in question["gold"]) for question in questions]
    return _asked(search, search.read([question["question"] for question in questions]), gold)


def _owners(index: PassageIndex) -> list[str]:
    return [document_id(index.passage(row)) for row in range(len(index))]


def _documents(rows: NDArray[np.int64], owners: Sequence[str]) -> Ranking:
    return list(dict.fromkeys(owners[row] for row in rows.tolist() if row >= 0))


def _by(scores: NDArray[np.float64], pairs: Pairs, owners: Sequence[str]) -> Ranking:
    return _documents(pairs.rows[np.argsort(-scores, kind="stable")], owners)


def _walked(links: Links, pairs: Pairs, owners: Sequence[str]) -> Ranking:
    """Rank by personalised PageRank over the links from the 30 best seeds; restart and weights are the best of a few."""
    best = np.argsort(-pairs.seed_scores, kind="stable")[:30]
    ranking = personalised_pagerank(
        links.offsets,
        links.rows,
        pairs.rows[best],
        weights=links.forth + np.float32(0.5) * links.back,
        seed_weights=np.exp(8 * (pairs.seed_scores[best] - pairs.seed_scores.max(initial=0))),
        restart=0.6,
        tolerance=1e-5,
        k=240,
    )
    return _documents(ranking.nodes, owners)


def _fused(one: NDArray[np.int64], other: NDArray[np.int64], owners: Sequence[str]) -> Ranking:
    scores: dict[str, float] = {}
    for ranking in (_documents(one, owners), _documents(other, owners)):
        for rank, name in enumerate(ranking, 1):
            scores[name] = scores.get(name, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda name: -scores[name])


def _ranked(asked: Asked, weights: Weights) -> list[Ranking]:
    if set(weights.features) != set(FEATURES):
        weights = msgspec.structs.replace(
            weights, features={name: weights.features.get(name, 0.0) for name in FEATURES}
        )
    rankings = []
    for each in asked.pairs:
        scored = weights.score(each.features, each.firsts, each.seconds, each.seed_scores)
        rankings.append(_by(scored.passages, each, asked.owners))
    return rankings


def _learned(
    asked: dict[tuple[Path, str], Asked],
    several: Sequence[Path],
    single: Sequence[Path],
    *,
    leave_out: Path | None = None,
    without: Sequence[str] = (),
) -> Weights:
    """Learn from all folders but one."""
    kept = np.array([float(name not in without) for name in FEATURES])
    pairs = [
        _known(each, gold, one.owners, kept)
        for folder in several
        for titles in (("kept", "note") if folder != leave_out else ())
        for one in [asked[folder, titles]]
        for each, gold in zip(one.pairs, one.gold, strict=True)
    ]
    alone = [
        _known(each, gold, one.owners, kept)
        for folder in single
        if folder != leave_out
        for one in [asked[folder, "kept"]]
        for each, gold in zip(one.pairs, one.gold, strict=True)
    ]
    return learn(pairs, alone)


def _known(pairs: Pairs, gold: frozenset[str], owners: Sequence[str], kept: NDArray[np.float64]) -> KnownQuestion:
    of_rows = [owners[row] for row in pairs.rows.tolist()]
    return known_question(pairs._replace(features=pairs.features * kept), of_rows, gold)


def _chosen(asked: Asked, weights: Weights) -> dict[str, list[set[str]]]:
    """Return the documents of the passages that answer together, four at most, and of always two."""
    chosen: dict[str, list[set[str]]] = {"answer together": [], "always two": []}
    for each in asked.pairs:
        scored = weights.score(each.features, each.firsts, each.seconds, each.seed_scores)
        order = np.argsort(-scored.passages, kind="stable")
        ranking = PassageRanking(tuple(order.tolist()), tuple(scored.passages[order].tolist()), (), scored.hops)
        for name, places in (("answer together", ranking.together(4)), ("always two", ranking.rows[:2])):
            chosen[name].append({asked.owners[int(each.rows[place])] for place in places})
    return chosen


def _print_chosen(name: str, chosen: Sequence[set[str]], gold: Sequence[frozenset[str]]) -> None:
    scores = [
        precision_recall_f1(len(some & right), len(some), len(right)) for some, right in zip(chosen, gold, strict=True)
    ]
    precision, recall, f1 = (100 * np.array(scores, dtype=np.float64).mean(axis=0)).tolist()
    sizes = " ".join(f"{count} of {size}" for size, count in sorted(Counter(map(len, chosen)).items()))
    print(f"  {name:30s} precision {precision:5.1f}  recall {recall:5.1f}  F1 {f1:5.1f}   {sizes}", flush=True)


def _failures(folder: Path, asked: Asked, rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Tell of each question with a supporting document behind the first 5 where all of them stand, in the seeds' order, too."""
    texts = [question["question"] for question in read_set(folder)[1]]
    seeds = asked.peers["seeds alone"]
    return [
        {
            "set": folder.name,
            "question": text,
            "supporting": [
                {"id": name, "rank": _rank(ranking, name), "seed": _rank(seed, name)} for name in sorted(gold)
            ],
            "first": ranking[:5],
        }
        for text, gold, ranking, seed in zip(texts, asked.gold, rankings, seeds, strict=True)
        if not gold <= set(ranking[:5])
    ]


def _rank(ranking: Ranking, name: str) -> int | None:
    """Return a document's rank from 1, None if it was not looked at."""
    return ranking.index(name) + 1 if name in ranking else None


def _print(name: str, rankings: Sequence[Ranking], gold: Sequence[frozenset[str]]) -> None:
    recall = {
        k: 100
        * np.mean([len(right & set(ranking[:k])) / len(right) for ranking, right in zip(rankings, gold, strict=True)])
        for k in (2, 5, 10, 20)
    }
    whole = {
        k: 100 * np.mean([right <= set(ranking[:k]) for ranking, right in zip(rankings, gold, strict=True)])
        for k in (5, 10)
    }
    gain = 100 * np.mean([_ndcg(ranking, right) for ranking, right in zip(rankings, gold, strict=True)])
    print(
        f"  {name:30s} recall at 2, 5, 10, 20: {recall[2]:5.1f} {recall[5]:5.1f} {recall[10]:5.1f} {recall[20]:5.1f}   all "
        f"among 5, 10: {whole[5]:5.1f} {whole[10]:5.1f}   nDCG at 10: {gain:5.1f}",
        flush=True,
    )


def _ndcg(ranking: Ranking, gold: frozenset[str]) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank, name in enumerate(ranking[:10], 1) if name in gold)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(gold)) + 1))


if __name__ == "__main__":
    sys.exit(main())
