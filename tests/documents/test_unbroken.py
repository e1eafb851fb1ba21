"""No sentence, passage or chunk ends within a code span, a dotted name, an address or a number."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import split_document, split_sentences
from pytrace.documents.passages import Block, Extracted, cut_passages, size_of
from pytrace.documents.sentences import sentence_spans
from pytrace.documents.unbroken import CODE_SPAN, as_code, code_as_words
from pytrace.records import Document

WHOLE = Document("doc", "File", (), "file.txt")
LANGUAGES = ("en", "de", "fr", "es", "it", "ru", "ar", "ja", "zh", "hi", "xx")
UNBROKEN = (
    "`a. B c`", "`GET /x? Yes! No`", "``x. Y = 1``", "`f(a, b); G`", "httpx.Limits", "example.com", "www.Example.com", "foo.bar().Baz",
    "v1.2.3", "1.0.Beta", "std::vector.Size", "3.5", "1,200", "10.000,50", "https://x.org/a.html?q=Is.It!&b=1", "ftp://a.B/c.D",
    "ann.Lee@mail.Example.org", "index.HTML", "a/b.C",
)  # fmt: skip
PROSE = (
    "It is so",
    "Then she left",
    "Warum",
    "東京は首都です。",
    "نعم",
    "Он ушёл",
    "no capital",
    "Dr. Ann Reed",
    "U.S. Army",
    '"Yes!"',
)
MARKS = (". ", "! ", "? ", ", ", ": ", " ", " (", ") ", "… ", "。", "。 ", ".\n", "\n\n")

pieces = st.lists(st.sampled_from((*UNBROKEN, *PROSE)), min_size=1, max_size=12)
texts = st.builds(
    lambda pieces, marks: "".join(f"{piece}{mark}" for piece, mark in zip(pieces, marks, strict=False)),
    pieces,
    st.lists(st.sampled_from(MARKS), min_size=12, max_size=12),
)


def squeezed(text: str) -> str:
    return "".join(text.split())


def stretches(text: str) -> list[tuple[int, int]]:
    """Return where code, names, addresses and numbers stand, told by where they were put."""
    return [match.span() for match in re.finditer("|".join(map(re.escape, sorted(UNBROKEN, key=len)[::-1])), text)]


@given(text=texts, language=st.sampled_from(LANGUAGES))
def test_no_sentence_ends_within_a_stretch_and_no_word_is_lost(text: str, language: str) -> None:
    sentences = split_sentences(text, language=language)
    assert squeezed("".join(sentences)) == squeezed(text)
    found = [sentence[start:stop] for sentence in sentences for start, stop in stretches(sentence)]
    assert found == [text[start:stop] for start, stop in stretches(text)]


@given(texts)
def test_sentence_spans_are_the_sentences_of_each_line(text: str) -> None:
    spans = sentence_spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert squeezed("".join(text[start:end] for start, end in spans)) == squeezed(text)
    assert not any("\n" in text[start:end] for start, end in spans)


@given(text=texts, words=st.integers(12, 20))
def test_a_long_sentence_is_cut_beside_a_stretch(text: str, words: int) -> None:
    block = Block(" ".join(text.split()), whole=True)
    passages = cut_passages(WHOLE, Extracted("T", [block]), words=words)
    assert squeezed("".join(passage.text for passage in passages)) == squeezed(text)
    assert all(size_of(passage.text) <= words for passage in passages)
    found = [passage.text[start:stop] for passage in passages for start, stop in stretches(passage.text)]
    assert found == [block.text[start:stop] for start, stop in stretches(block.text)]


@given(text=texts)
def test_a_chunk_is_cut_beside_code(text: str) -> None:
    text = " ".join(text.replace("。", " ").split())
    parts = split_document(Document("a", "A", (text,)), 20, len)
    assert squeezed("".join(part.document.text for part in parts)) == squeezed(text)
    found = [match[0] for part in parts for match in CODE_SPAN.finditer(part.document.text)]
    assert found == [match[0] for match in CODE_SPAN.finditer(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Pass httpx.Limits. Then stop.", ["Pass httpx.Limits.", "Then stop."]),
        ("Run `make. All`. `It` works.", ["Run `make. All`.", "`It` works."]),
        ("See https://x.org/a?B. Then www.X.org. End", ["See https://x.org/a?B.", "Then www.X.org.", "End"]),
        ("It costs 3.5. Or 1,200. Or v1.2.3. No", ["It costs 3.5.", "Or 1,200.", "Or v1.2.3.", "No"]),
        ("The U.S. Army came. In 1990. The end", ["The U.S. Army came.", "In 1990.", "The end"]),
        ("3. Run it. 4. Stop", ["3. Run it.", "4.", "Stop"]),  # only at the beginning is it the number of an item
        ("版本3.5。使用httpx.Limits。好", ["版本3.5。", "使用httpx.Limits。", "好"]),
    ],
)
def test_sentences_end_behind_stretches(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_a_code_span_on_the_border_of_two_windows_stays_whole() -> None:
    for before in range(4_050, 4_100, 7):
        text = "word " * (before // 5) + "`a. B" + " c. D" * 10 + "` and so. The end."
        assert split_sentences(text)[-2:] == [text[: -len(" The end.")], "The end."]


@given(st.text(alphabet="ab`. \n", max_size=40))
def test_code_as_words_keeps_every_place(text: str) -> None:
    shown = code_as_words(text)
    assert len(shown) == len(text)
    inside = {place for match in CODE_SPAN.finditer(text) for place in range(*match.span())}
    assert all(shown[place] == text[place] for place in range(len(text)) if place not in inside)
    marked = as_code(text.strip())
    assert marked == text.strip() or CODE_SPAN.fullmatch(marked) is not None
