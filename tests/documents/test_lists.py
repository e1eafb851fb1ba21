"""A list stays with the sentence that introduces it, and an item with the items that it is below, whatever the format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.documents.formats.markup import markup_blocks
from pytrace.documents.markdown import read_markdown
from pytrace.documents.passages import Block, Extracted, cut_passages, size_of
from pytrace.documents.plain import read_plain
from pytrace.reader.evidence import all_documents, document_text
from pytrace.records import Document, Origin

WHOLE = Document("doc", "File", (), "file.txt")
INTRO = "The following options exist:"


def origin_of(passage: Document) -> Origin:
    assert passage.origin is not None
    return passage.origin


def depths(blocks: list[Block]) -> list[tuple[str, int]]:
    return [(block.text, block.depth) for block in blocks]


def passages_of(blocks: list[Block], words: int, overlap: int = 0) -> list[Document]:
    return cut_passages(WHOLE, Extracted("T", blocks), words=words, overlap=overlap)


def test_items_are_deeper_than_what_they_are_below_in_markdown() -> None:
    text = "Intro:\n\n* one\n  goes on\n\n  more of one\n\n  ```\n  code\n  ```\n  1. below one\n* two\n\nAfter."
    assert depths(list(read_markdown(text).blocks)) == [
        ("Intro:", 0), ("one goes on", 1), ("more of one", 2), ("code", 2), ("below one", 3), ("two", 1), ("After.", 0),
    ]  # fmt: skip


def test_definitions_are_deeper_than_their_terms_in_markdown() -> None:
    text = "Intro:\n\n`a.b`\n: The first\n  goes on.\n: The second.\n\nTerm\n\n: Of a paragraph.\n\nAt 10: 30 it ends."
    assert depths(list(read_markdown(text).blocks)) == [
        ("Intro:", 0), ("`a.b`", 1), ("The first goes on.", 2), ("The second.", 2), ("Term", 1), ("Of a paragraph.", 2),
        ("At 10: 30 it ends.", 0),
    ]  # fmt: skip


HTML = """<h2><code>a</code> of it<a href="#x">¶</a></h2><p>Intro <code>a.b</code>:</p>
<ul><li>one <code>--flag</code>.<ul><li>below one</li></ul></li><li><p>two</p><p>more</p><pre><code>x = 1\ny = 2</code></pre></li></ul>
<dl><dt>term</dt><dd>The first.</dd><dd>The second.</dd></dl><p>After.</p>
<table><tr><th>Name</th><th>Value</th></tr><tr><td><code>x.y</code></td><td>3</td></tr></table>"""
READ = [
    ("Intro `a.b`:", 0), ("one `--flag`.", 1), ("below one", 3), ("two", 1), ("more", 2), ("x = 1", 2), ("y = 2", 2),
    ("term", 1), ("The first.", 2), ("The second.", 2), ("After.", 0), ("Name: `x.y`; Value: 3", 0),
]  # fmt: skip


def test_items_and_definitions_of_markup() -> None:
    heading, *blocks = markup_blocks(HTML)
    assert (heading.text, heading.level) == ("a of it", 2)
    assert depths(blocks) == READ


def test_items_and_definitions_of_a_page(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura", reason="trafilatura reads HTML; it comes with the extra docs")
    from pytrace.documents.formats.html import read_html

    text = "This is the documentation of a program whose options are told below, one after the other, with all their names. "
    path = tmp_path / "a.html"
    path.write_text(f"<html><body><main><h1>Options</h1><p>{text * 3}</p>{HTML}</main></body></html>", encoding="utf-8")
    blocks = read_html(path).blocks
    assert [block.text for block in blocks if block.level] == ["a of it"]
    assert [each for each in depths(list(blocks)) if each in READ] == READ
    assert not any("¶" in block.text for block in blocks)


def test_items_of_word_files_and_slides(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx", reason="python-docx reads Word files; it comes with the extra docs")
    pptx = pytest.importorskip("pptx", reason="python-pptx reads slides; it comes with the extra docs")
    from pytrace.documents.formats.docx import read_docx
    from pytrace.documents.formats.pptx import read_pptx

    document = docx.Document()
    for text, style in (("Intro:", None), ("one", "List Bullet"), ("below", "List Bullet 2"), ("two", "List Number")):
        document.add_paragraph(text, style=style)
    document.save(str(tmp_path / "a.docx"))
    assert depths(list(read_docx(tmp_path / "a.docx").blocks)) == [("Intro:", 0), ("one", 1), ("below", 2), ("two", 1)]
    slides = pptx.Presentation()
    frame = slides.slides.add_slide(slides.slide_layouts[1]).placeholders[1].text_frame
    frame.text = "one"
    below = frame.add_paragraph()
    below.text, below.level = "below", 1
    slides.save(str(tmp_path / "a.pptx"))
    assert depths(list(read_pptx(tmp_path / "a.pptx").blocks)) == [("one", 0), ("below", 1)]


def test_items_of_a_text() -> None:
    text = "The options are:\n- one\n  goes on\n    * below\n- two\n\n1. Run it. Then\n2. Stop.\n\nin the year\n- or so they say"
    assert depths(list(read_plain(text).blocks)) == [
        ("The options are:", 0), ("one goes on", 1), ("below", 2), ("two", 1), ("1. Run it. Then", 1), ("2. Stop.", 1),
        ("in the year - or so they say", 0),
    ]  # fmt: skip


def test_a_list_that_a_passage_takes_is_not_cut() -> None:
    blocks = [Block("Some words before it, ten of them in all. More."), Block(INTRO)]
    blocks += [Block(f"item {number} is here", depth=1) for number in range(4)]
    first, second, *_ = passages_of(blocks, 22)
    assert first.sentences == ("Some words before it, ten of them in all.", "More.")
    assert second.sentences == (INTRO, *(f"item {number} is here" for number in range(4)))


def test_where_a_list_is_cut_its_sentence_and_the_items_above_are_repeated() -> None:
    blocks = [Block(f"Before. {INTRO}")]
    blocks += [Block(f"option {number} does this and that", depth=1) for number in range(4)]
    blocks += [Block(f"of option 3 part {number}", depth=3) for number in range(3)]
    passages = passages_of(blocks, 16)
    assert [passage.sentences for passage in passages] == [
        ("Before.", INTRO, "option 0 does this and that"),
        (INTRO, "option 1 does this and that", "option 2 does this and that"),
        (INTRO, "option 3 does this and that", "of option 3 part 0"),
        (
            "option 3 does this and that",
            "of option 3 part 1",
            "of option 3 part 2",
        ),  # all does not fit in half a passage
    ]
    starts = [origin_of(passage).start for passage in passages]
    assert starts == sorted(set(starts)), "a passage begins at its own first sentence"
    last = passages[-1]
    assert last.citation(0).endswith(f"characters {origin_of(last).sentences[0]}-{origin_of(last).sentences[0] + 27}")
    assert last.citation().endswith(f"characters {origin_of(last).start}-{origin_of(last).end}")


def test_headings_end_what_introduces_a_list() -> None:
    blocks = [Block("Intro:"), Block("Head", level=1), Block("one two three four", depth=1), Block("five six", depth=1)]
    assert [passage.sentences for passage in passages_of(blocks, 4)] == [
        ("Intro:",),
        ("one two three four",),
        ("five six",),
    ]


sentences = st.lists(
    st.sampled_from(["One two.", "Three four five.", "Six:", "Seven eight nine ten eleven."]), min_size=1, max_size=3
)
blocks = st.lists(
    st.builds(Block, text=sentences.map(" ".join), level=st.sampled_from([0, 0, 0, 0, 1, 2]), depth=st.integers(0, 4)), max_size=14
)  # fmt: skip


@given(blocks=blocks, words=st.integers(5, 30), overlap=st.integers(0, 2))
def test_passages_of_lists_fit_lose_nothing_and_repeat_in_front(blocks: list[Block], words: int, overlap: int) -> None:
    text = "\n\n".join(block.text for block in blocks)
    covered = set[int]()
    passages = passages_of(blocks, words, overlap)
    for passage in passages:
        origin = origin_of(passage)
        assert size_of(passage.text) <= words
        assert list(origin.sentences) == sorted(set(origin.sentences))
        for start, sentence in zip(origin.sentences, passage.sentences, strict=True):
            assert text[start : start + len(sentence)] == sentence
            covered |= set(range(start, start + len(sentence)))
        own = [start for start in origin.sentences if start >= origin.start]
        assert own[0] == origin.start
        assert origin.end == origin.sentences[-1] + len(passage.sentences[-1])
        repeated = sum(map(size_of, passage.sentences[: len(origin.sentences) - len(own)]))
        assert repeated <= words - words // 2
    headings = {block.text for block in blocks if block.level}
    lost = "".join(character for at, character in enumerate(text) if at not in covered).split("\n\n")
    assert all(part.strip() in headings or not part.strip() for part in lost)


@given(blocks=blocks, words=st.integers(5, 30), overlap=st.integers(0, 2))
def test_passages_of_a_section_are_read_as_the_section(blocks: list[Block], words: int, overlap: int) -> None:
    blocks = [block._replace(level=0) for block in blocks]
    passages = passages_of(blocks, words, overlap)
    whole = cut_passages(WHOLE, Extracted("T", blocks), words=10_000)
    assert all_documents(passages).context == all_documents(whole).context
    assert all_documents(passages[::-1]).context == all_documents(whole).context
    for passage in passages:
        assert document_text(passage).split("] ", 1)[1].replace("\n", " ") == passage.text


@given(
    st.recursive(
        st.sampled_from(["one `a.b`", "two. And", "three"]),
        lambda inner: st.lists(inner, min_size=1, max_size=3),
        max_leaves=12,
    )
)
def test_nested_lists_are_as_deep_as_they_are_written(tree: str | list[object]) -> None:
    lines, expected = ["Intro:", ""], [("Intro:", 0)]

    def write(node: object, depth: int) -> None:
        if isinstance(node, str):
            lines.append(f"{'  ' * depth}- {node}")
            expected.append((node, 2 * depth + 1))
        elif isinstance(node, list):
            lines.append(f"{'  ' * depth}- item")
            expected.append(("item", 2 * depth + 1))
            for each in node:
                write(each, depth + 1)

    write(tree, 0)
    assert depths(list(read_markdown("\n".join(lines)).blocks)) == expected


def test_notes_and_tabs_of_mkdocs_are_text(tmp_path: Path) -> None:
    text = """# Title {#title}

!!! note "Be **careful**"
    Only use these functions
    in a console. See `a.b`.

    ```py
    x = 1
    ```

    !!! warning
        It is
        nested.

After it.

=== "One"

    In a tab.

!!! not followed by anything

```
!!! note
    code
```
"""
    path = tmp_path / "a.md"
    path.write_text(text, encoding="utf-8")
    (document,) = read_documents(path)
    assert (document.title, document.sentences) == (
        "Title",
        (
            "Be careful", "Only use these functions in a console.", "See `a.b`.", "x = 1", "Warning", "It is nested.",
            "After it.", "One", "In a tab.", "!!! not followed by anything", "!!! note", "code",
        ),
    )  # fmt: skip


def test_a_first_heading_that_repeats_the_title_is_not_read_twice() -> None:
    extracted = read_markdown("---\ntitle: Guide\n---\n# Guide\n\nText.\n\n## More\n\nText.\n\n# Guide\n")
    assert (extracted.title, extracted.level, len(extracted.blocks)) == ("Guide", 1, 4)
