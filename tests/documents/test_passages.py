"""Documents are cut into passages: nothing is lost, every passage fits, and each says where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.documents.markdown import read_markdown
from pytrace.documents.passages import Block, Extracted, cut_passages, size_of
from pytrace.documents.plain import read_plain
from pytrace.errors import InputError
from pytrace.records import Document

WHOLE = Document("doc", "File", (), "file.txt")

texts = st.text(alphabet="ab. ,!?é漢字", max_size=60).map(lambda text: " ".join(text.split()))
blocks = st.lists(
    st.builds(Block, text=texts, whole=st.booleans(), level=st.integers(0, 3), depth=st.integers(0, 3)), max_size=8
)


def text_of(extracted: Extracted) -> str:
    return "\n\n".join(block.text for block in extracted.blocks if block.text)


@given(blocks=blocks, title=st.sampled_from(["", "Title"]), words=st.integers(1, 20), overlap=st.integers(0, 3))
def test_passages_fit_lose_nothing_and_know_their_characters(
    blocks: list[Block], title: str, words: int, overlap: int
) -> None:
    extracted = Extracted(title, blocks, 1 if title else 0)
    passages = cut_passages(WHOLE, extracted, words=words, overlap=overlap)
    text = text_of(extracted)
    covered = set[int]()
    for passage in passages:
        origin = passage.origin
        assert origin is not None
        assert origin.document == "doc"
        assert size_of(passage.text) <= words
        for start, sentence in zip(origin.sentences, passage.sentences, strict=True):
            assert text[start : start + len(sentence)] == sentence
            covered |= set(range(start, start + len(sentence)))
        # The sentence before a list that was cut is repeated, and the passage begins behind it.
        assert origin.start in origin.sentences
        assert origin.end == origin.sentences[-1] + len(passage.sentences[-1])
    headings = {block.text for block in blocks if block.level} if len(passages) > 1 else set()
    lost = "".join(character for at, character in enumerate(text) if at not in covered)
    named = " ".join([*headings, *(passage.title for passage in passages)])
    assert all(character.isspace() or character in named for character in lost)
    assert len({passage.id for passage in passages}) == len(passages)


def test_a_short_document_is_one_passage_with_its_own_id() -> None:
    extracted = Extracted("A", [Block("One two."), Block("More", level=2), Block("Three.")])
    (passage,) = cut_passages(WHOLE, extracted, words=4)
    assert (passage.id, passage.title, passage.sentences) == ("doc", "A", ("One two.", "More", "Three."))


def test_headings_of_the_title_s_level_are_not_below_it() -> None:
    text = "# Ada\n\nA b c d.\n\n## Life\n\nE f g.\n\n# Bob\n\nH i.\n\n## Works\n"
    passages = cut_passages(WHOLE, read_markdown(text), words=5)
    assert [(passage.title, passage.sentences) for passage in passages] == [
        ("Ada", ("A b c d.",)),
        ("Ada > Life", ("E f g.",)),
        ("Bob", ("H i.",)),
        ("Bob", ("Works",)),  # a heading with nothing below it is text
    ]


def test_the_file_s_name_is_the_title_only_where_there_is_nothing_else() -> None:
    passages = cut_passages(WHOLE, Extracted("", [Block("A b."), Block("Life", level=1), Block("C d.")]), words=2)
    assert [passage.title for passage in passages] == ["File", "Life"]


def test_a_passage_repeats_the_last_sentences_of_the_one_before_below_the_same_heading() -> None:
    extracted = Extracted("T", [Block("One two. Three four. Five six."), Block("H", level=1), Block("Seven.")])
    passages = cut_passages(WHOLE, extracted, words=4, overlap=1)
    assert [passage.sentences for passage in passages] == [
        ("One two.", "Three four."),
        ("Three four.", "Five six."),
        ("Seven.",),
    ]


def test_a_sentence_that_is_too_long_is_cut_behind_a_clause_or_a_word() -> None:
    passages = cut_passages(WHOLE, Extracted("", [Block("a b c, d e f g h i j")]), words=4)
    assert [passage.text for passage in passages] == ["a b c,", "d e f g", "h i j"]


def test_characters_of_unspaced_scripts_count_as_words() -> None:
    passages = cut_passages(WHOLE, Extracted("", [Block("東京は日本の首都である。人口が多い。")]), words=12)
    assert [passage.text for passage in passages] == ["東京は日本の首都である。", "人口が多い。"]


def test_long_texts_take_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text("word " * 400_000, encoding="utf-8")
    passages = list(read_documents(path))
    assert len(passages) == -(-400_000 // 120)
    assert sum(len(passage.text.split()) for passage in passages) == 400_000


def test_misuse_is_told() -> None:
    with pytest.raises(InputError, match="passages of 0 words"):
        cut_passages(WHOLE, Extracted("", []), words=0)


@pytest.mark.parametrize(
    ("text", "title", "levels"),
    [
        ("Ada Foah\n\nIt is a town.\n", "Ada Foah", [0]),
        ("Ada Foah\n========\nIt is a town.\n", "Ada Foah", [0]),
        ("It is a town.\n\nAda Foah\n\nIt lies there.", "", [0, 1, 0]),
        ("It is a town.\n\nAda Foah", "", [0, 0]),  # nothing is below it
        ("- one\n\nIt is a town.", "", [0, 0]),
        ("a list\n\nb list\n\nc list", "", [0, 0, 0]),
        ("", "", []),
    ],
)
def test_headings_of_plain_texts(text: str, title: str, levels: list[int]) -> None:
    extracted = read_plain(text)
    assert (extracted.title, [block.level for block in extracted.blocks]) == (title, levels)


def test_a_row_s_document_is_cut_only_where_it_is_long(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "title": "A", "text": "One two three. Four five six."}', encoding="utf-8")
    assert [(passage.id, passage.origin) for passage in read_documents(path, words=3)] == [("a", None)]
    assert [passage.id for passage in read_documents(path, words=2)] == ["a#1", "a#2", "a#3", "a#4"]
