"""Retrievers against plain re-computations: words, vectors, both fused, and functions of one's own."""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.errors import InputError, MissingDependencyError, ModelError
from pytrace.models.scripted import HashEncoder
from pytrace.records import Document
from pytrace.retrieval import (
    Bm25Retriever,
    CallableRetriever,
    DenseRetriever,
    FusedRetriever,
    Hit,
    OriginalOrderRetriever,
    fuse,
    make_retriever,
    nearest_documents,
    rank_each,
)
from pytrace.retrieval.bm25 import words

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("given", "dense", "bm25", "rrf")

BREAD = Document("bread", "Bread", ("Bread is baked at dawn.", "It is eaten warm."))
FERRY = Document("ferry", "Pellisk Ferry", ("The ferry to Pellisk leaves at noon.", "It carries mail."))
EMPTY = Document("empty", "Nothing", ())
CAT = Document("cat", "Cats", ("A cat sleeps.",))
CORPUS = [BREAD, EMPTY, FERRY, CAT]
QUESTION = "When leaves the ferry to Pellisk?"


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.document.id for hit in hits]


def document(number: int, text: str) -> Document:
    return Document(str(number), "T", (text,))


class Counting(HashEncoder):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(dimension=512)
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str], **options: Any) -> Any:
        self.calls.append(len(texts))
        return super().encode(texts, **options)


class Broken(HashEncoder):
    """Gives NaN for texts with a certain word, or vectors that are too few."""

    def __init__(self, word: str = "", *, short: bool = False) -> None:
        super().__init__()
        self._word, self._short = word, short

    def encode(self, texts: Sequence[str], **options: Any) -> Any:
        vectors = super().encode(texts, **options)
        for row, text in enumerate(texts):
            if self._word and self._word in text:
                vectors[row, 3] = np.nan
        return vectors[:-1] if self._short else vectors


class TestBm25:
    @given(
        st.lists(st.lists(st.sampled_from("abcde"), max_size=6).map(" ".join), max_size=8),
        st.lists(st.sampled_from("abcdez"), max_size=5).map(" ".join),
        st.sampled_from([(1.5, 0.75), (0.9, 0.4), (0.0, 1.0)]),
    )
    def test_scores_are_those_of_the_formula(self, texts: list[str], query: str, settings: tuple[float, float]) -> None:
        k1, b = settings
        corpus = [document(number, text) for number, text in enumerate(texts)]
        rows = [["t", *text.split()] for text in texts]
        expected = []
        for row in rows:
            length = sum(map(len, rows)) / len(rows)
            counts, score = Counter(row), 0.0
            for word in query.split():
                having = sum(word in other for other in rows)
                rarity = math.log(1 + (len(rows) - having + 0.5) / (having + 0.5))
                if counts[word]:
                    score += rarity * counts[word] / (counts[word] + k1 * (1 - b + b * len(row) / length))
            expected.append(score)
        (found,) = Bm25Retriever(corpus, k1=k1, b=b).retrieve([query], 100)
        assert sorted(ids(found)) == sorted(one.id for one in corpus)
        assert [hit.score for hit in found] == pytest.approx([expected[int(one)] for one in ids(found)], abs=1e-5)
        assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)

    def test_what_shares_no_word_comes_last_in_the_corpus_s_order_with_score_0(self) -> None:
        (found,) = Bm25Retriever(CORPUS).retrieve(["a ferry and a cat"], 4)
        assert ids(found) == ["cat", "ferry", "bread", "empty"]
        assert [hit.score > 0 for hit in found] == [True, True, False, False]
        assert ids(Bm25Retriever(CORPUS, unmatched=False).retrieve(["a ferry and a cat"], 4)[0]) == ["cat", "ferry"]
        assert ids(Bm25Retriever(CORPUS).retrieve(["a ferry and a cat"], 3)[0]) == ["cat", "ferry", "bread"]

    def test_equal_scores_keep_the_corpus_s_order_wherever_the_count_cuts(self) -> None:
        corpus = [document(number, "same words" if number % 2 else "other ones") for number in range(40)]
        odd, even = ([str(number) for number in range(start, 40, 2)] for start in (1, 0))
        for count in (1, 7, 20, 21, 40, 99):
            assert ids(Bm25Retriever(corpus).retrieve(["same"], count)[0]) == (odd + even)[:count]

    @pytest.mark.parametrize("query", ["", "???", "unknown words", "\ud800", "a\x00"])
    def test_a_query_without_known_words_gets_the_corpus_s_order(self, query: str) -> None:
        corpus = [BREAD, EMPTY, FERRY]
        (found,) = Bm25Retriever(corpus).retrieve([query], 3)
        assert (ids(found), [hit.score for hit in found]) == (["bread", "empty", "ferry"], [0.0] * 3)

    def test_corpora_without_words_or_documents_work(self) -> None:
        wordless = [Document(str(number), "…", ("!",) * number) for number in range(3)]
        assert [ids(found) for found in Bm25Retriever(wordless).retrieve(["a", ""], 2)] == [["0", "1"]] * 2
        assert Bm25Retriever([]).retrieve(["a", "b"], 5) == [[], []]
        assert Bm25Retriever(CORPUS).retrieve([], 5) == []

    def test_words_are_compared_without_case_and_spelling_of_characters(self) -> None:
        assert words("Straße STRASSE Ada_1 don't") == ["strasse", "strasse", "ada_1", "don", "t"]
        assert words("Ame\u0301lie") == words("AMÉLIE")
        assert words("\ud800x\udfff y" + " z" * 100_000)[:2] == ["x", "y"]

    def test_it_says_nothing_and_shows_no_progress(self, capfd: pytest.CaptureFixture[str]) -> None:
        Bm25Retriever(CORPUS).retrieve([QUESTION], 2)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("settings", [{"k1": -1.0}, {"k1": math.nan}, {"b": 1.5}, {"b": math.nan}])
    def test_settings_out_of_range_are_refused(self, settings: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="k1 must be 0 or more and b from 0 to 1"):
            Bm25Retriever(CORPUS, **settings)

    def test_without_the_package_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "bm25s", None)
        with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[eval\]"):
            Bm25Retriever(CORPUS)


class TestDense:
    @given(
        st.lists(st.lists(st.lists(st.sampled_from("abcde"), max_size=3).map(" ".join), max_size=4), max_size=7),
        st.lists(st.lists(st.sampled_from("abcde"), max_size=3).map(" ".join), max_size=3),
        st.integers(1, 9),
    )
    def test_a_document_is_as_near_as_its_nearest_sentence(
        self, corpus: list[list[str]], queries: list[str], count: int
    ) -> None:
        encoder = HashEncoder(dimension=64)
        documents = [Document(str(number), "t", tuple(own)) for number, own in enumerate(corpus)]
        found = DenseRetriever(documents, encoder).retrieve(queries, count)
        for query, hits in zip(queries, found, strict=True):
            (vector,) = encoder.encode([query])
            best = [
                max((float(row @ vector) for row in encoder.encode([f"[t] {one}" for one in own])), default=-math.inf)
                for own in corpus
            ]
            # Sums of the same numbers in another order differ in the last bits, so ties are told by rounding.
            order = sorted(range(len(best)), key=lambda number: -best[number])[:count]
            assert [hit.score for hit in hits] == pytest.approx([best[number] for number in order], abs=1e-6)
            assert [best[int(one)] for one in ids(hits)] == pytest.approx([hit.score for hit in hits], abs=1e-6)
            assert len(set(ids(hits))) == len(hits) == min(count, len(documents))

    def test_ties_keep_the_corpus_s_order_and_documents_without_sentences_come_last(self) -> None:
        twins = [document(1, "x"), EMPTY, document(2, "y"), document(3, "x"), Document("e", "E", ())]
        (found,) = DenseRetriever(twins, HashEncoder()).retrieve(["x"], 5)
        assert ids(found) == ["1", "3", "2", "empty", "e"]
        assert [hit.score for hit in found][3:] == [-math.inf] * 2

    def test_the_corpus_is_encoded_once_and_many_queries_in_one_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        encoder = Counting()
        retriever = DenseRetriever(CORPUS, encoder)
        together = retriever.retrieve([QUESTION, "cat", "bread"], 4)
        assert encoder.calls == [5, 3]
        monkeypatch.setattr("pytrace.retrieval.dense._ANSWERS", 1)  # a block for each query
        assert retriever.retrieve([QUESTION, "cat", "bread"], 4) == together
        assert [hits[0].document.id for hits in together] == ["ferry", "cat", "bread"]

    def test_nothing_in_nothing_out(self) -> None:
        assert DenseRetriever([], HashEncoder()).retrieve(["x"], 2) == [[]]
        assert DenseRetriever(CORPUS, HashEncoder()).retrieve([], 2) == []
        assert ids(DenseRetriever(CORPUS, HashEncoder()).retrieve(["", "\ud800"], 9)[0])[-1] == "empty"

    def test_a_broken_encoder_is_told(self) -> None:
        with pytest.raises(ModelError, match=r"NaN, infinity .* for 1 of 5 texts, first for number 3, '\[Pellisk"):
            DenseRetriever(CORPUS, Broken("mail"))
        with pytest.raises(ModelError, match=r"gives vectors \[4, 256\] for 5 texts where \[5, 256\] is due"):
            DenseRetriever(CORPUS, Broken(short=True))
        with pytest.raises(ModelError, match="NaN"):
            DenseRetriever(CORPUS, Broken("question")).retrieve(["a question"], 1)

    def test_nearest_documents_are_the_retriever_s(self) -> None:
        encoder = HashEncoder()
        (hits,) = DenseRetriever(CORPUS, encoder).retrieve([QUESTION], 2)
        assert nearest_documents(QUESTION, CORPUS, encoder, 2) == [hit.document for hit in hits]


class TestFusion:
    def test_ranks_are_added_up_as_the_paper_has_it(self) -> None:
        a, b, c = (Hit(document(number, "x"), 0.0) for number in range(3))
        found = fuse([[a, b, c], [c, b], []], 5)
        assert [(hit.document.id, hit.score) for hit in found] == [
            ("2", 1 / 63 + 1 / 61),
            ("1", 1 / 62 + 1 / 62),
            ("0", 1 / 61),
        ]
        assert ids(fuse([[a, b], [b, a]], 1)) == ["0"]
        assert [hit.score for hit in fuse([[a, a, b]], 5, k=0)] == [1.0, 0.5]
        assert fuse([], 3) == []

    def test_retrievers_are_asked_as_deep_as_it_takes(self) -> None:
        asked = []

        def search(query: str, count: int) -> list[Document]:
            asked.append((query, count))
            return [document(number, "x") for number in range(count + 5)]

        one = CallableRetriever(search)
        assert len(FusedRetriever([one]).retrieve(["q"], 3)[0]) == 3
        FusedRetriever([one]).retrieve(["q"], 300)
        assert len(FusedRetriever([one], depth=2).retrieve(["q"], 3)[0]) == 2
        assert asked == [("q", 100), ("q", 300), ("q", 2)]

    def test_what_a_retriever_gives_beyond_the_depth_does_not_count(self) -> None:
        class Eager:
            def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
                return [[Hit(document(number, "x"), 0.0) for number in range(count + 5)] for _ in queries]

        assert ids(FusedRetriever([Eager()], depth=2).retrieve(["q"], 9)[0]) == ["0", "1"]

    def test_settings_that_cannot_be_are_refused(self) -> None:
        with pytest.raises(ValueError, match="there is no retriever"):
            FusedRetriever([])
        with pytest.raises(ValueError, match="k must be at least 0, not -1"):
            FusedRetriever([OriginalOrderRetriever([])], k=-1)
        with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
            FusedRetriever([OriginalOrderRetriever([])], depth=0)


class TestCallable:
    def test_its_order_is_kept_repeats_go_and_what_is_too_much_is_cut(self) -> None:
        found = CallableRetriever(lambda _, count: [FERRY, FERRY, CAT, BREAD][: count + 2]).retrieve(["q", "r"], 2)
        assert found == [[Hit(FERRY, 1.0), Hit(CAT, 0.5)]] * 2
        assert CallableRetriever(lambda *_: ()).retrieve(["q"], 2) == [[]]

    @pytest.mark.parametrize(
        ("returned", "said"),
        [
            (None, "returned None for the query 'q'"),
            ("text", "an object of type str"),
            ({FERRY.id: FERRY}, "an object of type dict"),
            ([FERRY, "text"], "item 1 of the 2 .* is an object of type str"),
            ([None], "item 0 of the 1 .* is None"),
        ],
    )
    def test_what_is_no_list_of_documents_is_told(self, returned: Any, said: str) -> None:
        with pytest.raises(InputError, match=said):
            CallableRetriever(lambda *_: returned).retrieve(["q"], 2)

    def test_what_cannot_be_called_is_told(self) -> None:
        with pytest.raises(InputError, match="of type list and cannot be called"):
            CallableRetriever([])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
class TestByName:
    def test_each_question_s_own_documents_rank_as_a_corpus_of_their_own(self, name: Any) -> None:
        encoder = HashEncoder(dimension=2048)
        questions = [QUESTION, "Where does a cat sleep?", "x", "bread", "é"]
        own = [CORPUS, [CAT, FERRY], [], [EMPTY], [BREAD, CAT, BREAD]]
        for count in (1, 2, 9):
            expected = [
                make_retriever(name, documents, encoder).retrieve([question], count)[0]
                for question, documents in zip(questions, own, strict=True)
            ]
            assert rank_each(name, questions, own, encoder, count) == expected

    def test_what_is_asked_for_comes_first_unless_the_order_is_given(self, name: Any) -> None:
        (found,) = make_retriever(name, CORPUS, HashEncoder(dimension=2048)).retrieve([QUESTION], 2)
        assert found[0].document == (BREAD if name == "given" else FERRY)
        assert found[0].score >= found[1].score

    def test_misuse_is_refused(self, name: Any) -> None:
        retriever = make_retriever(name, CORPUS, HashEncoder())
        with pytest.raises(ValueError, match="count must be at least 1, not 0"):
            retriever.retrieve(["x"], 0)
        with pytest.raises(TypeError, match="not one str; put it in a list"):
            retriever.retrieve("x", 1)
        with pytest.raises(TypeError, match="item 1 is of type int"):
            retriever.retrieve(["x", 5], 1)  # type: ignore[list-item]
        with pytest.raises(ValueError, match="2 questions but 1 lists of documents"):
            rank_each(name, ["x", "y"], [CORPUS], HashEncoder(), 1)
        assert rank_each(name, [], [], HashEncoder(), 1) == []


def test_many_questions_cost_two_calls_of_the_encoder() -> None:
    for name in ("dense", "rrf"):
        encoder = Counting()
        rank_each(name, ["x"] * 30, [CORPUS] * 30, encoder, 2)  # type: ignore[arg-type]
        assert encoder.calls == [30, 150]


def test_in_fusion_documents_that_share_no_word_get_nothing_from_bm25() -> None:
    corpus = [*(Document(f"n{number}", "N", ("zzz",)) for number in range(3)), FERRY]
    (found,) = make_retriever("rrf", corpus, HashEncoder(dimension=2048)).retrieve([QUESTION], 4)
    assert found[0].score == 2 / 61
    assert [hit.score for hit in found[1:]] == [1 / 62, 1 / 63, 1 / 64]


def test_a_name_that_is_none_is_told() -> None:
    for call in (
        lambda: make_retriever("bm52", CORPUS, HashEncoder()),  # type: ignore[arg-type]
        lambda: rank_each("bm52", [], [], HashEncoder(), 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match="no retriever 'bm52'; choose one of given, dense, bm25, rrf"):
            call()


def test_the_package_comes_without_its_optional_parts() -> None:
    # Importing bm25s may cost seconds where numba is installed: nobody pays who does not ask for it.
    import subprocess

    code = "import sys, pytrace.retrieval; sys.exit(bool({'bm25s', 'hnswlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.models
def test_the_tiny_encoder_finds_documents_of_the_examples(tiny_models: dict[Any, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder

    encoder = OnnxEncoder(tiny_models["encoder"])
    documents = list(read_documents(EXAMPLES / "docs"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES[1:]:
            wanted = documents[-1]
            question = f"What is {wanted.title}?"
            (found,) = make_retriever(name, documents, encoder).retrieve([question], 3)  # type: ignore[arg-type]
            assert wanted in [hit.document for hit in found]
            assert rank_each(name, [question], [documents], encoder, 3)[0] == found  # type: ignore[arg-type]
