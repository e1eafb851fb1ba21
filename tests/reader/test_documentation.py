"""A documentation site is read whole: headings and code are answers, each with its place, and nothing is lost on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.documents.passages import Block, Extracted, cut_passages
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.answers import clean_answer, normalise_answer
from pytrace.reader.evidence import all_documents, document_text
from pytrace.reader.places import answer_places
from pytrace.reader.spans.candidates import are_english, read_entries, spans_of
from pytrace.reader.spans.features import candidates
from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.reader import SpanReader
from pytrace.reader.spans.words import _PLAIN_WORD, _SIGN, _WORD, stem, words
from pytrace.records import Document, Evidence, TextUnit

PAGES = {
    "packages.md": """---
title: Packages of others
---
# Packages of others

Many people build tools on top of the Ferry client. Here are some of them, in no order.

## Plugins

### ferry-cache

[GitHub](https://example.com/ferry-cache) - [Documentation](https://cache.example.com/)

An elegant cache for Ferry, which keeps what was sent until its time is over.

### ferry-ws

[GitHub](https://example.com/ferry-ws) - [Documentation](https://ws.example.com/)

WebSocket support for Ferry.

### Ferry-Auth

[GitHub](https://example.com/ferry_auth)

Provides classes that sign a request, for `Client(auth=...)` and for the functions of the module.

## Libraries

### tide.py

[GitHub](https://example.com/tide)

A library for tides that can fetch them by Ferry.

## Abandoned
""",
    "api.md": """# Developer interface

## `ferry.Client`

A client keeps connections open. Its limits are given by `ferry.Limits`, its timeouts by ferry.Timeout. Create it by
`ferry.Client(http2=True, timeout=5.0)`, and end it by `.close()`.

```python
limits = ferry.Limits(max_connections=10)
client = ferry.Client(limits=limits)
```

## `ferry.Limits`

The pool has these limits:

- `max_connections`, the number of connections that are allowed, or `None` for as many as there are. (Default 100)
- `max_keepalive_connections`, the number of connections that are kept open. (Default 20)
- `keepalive_expiry`, the seconds that such a connection is kept. (Default 5)

## Command line

Give `--http2` to speak HTTP/2, and `-v` to see headers. `ferry GET /tides?x=1.5 --json` prints what comes. Settings are in `pyproject.toml`.
""",
    "steps.md": """# Contribute

Every change is made so:

1. Fork the repository and clone your fork. Then install version 3.11.2 of the language.
2. Run `scripts/install`, which makes an environment in `.venv`. It takes a minute.
3. Make your change. A change has:
    - a test that fails without it,
    - a line in `CHANGELOG.md`,
    - an answer to `mail@example.com` if it is about security. Do not open an issue for that.
4. Run `scripts/check`. Nothing may fail.
5. Open a pull request. Name the issue that it closes, and wait for two people to look at it. They may ask for more.
""",
    "environment.md": """# Environment variables

Ferry reads these variables unless `trust_env=False` is given.

## `FERRY_PROXY`, `NO_PROXY`

Valid values: a URL

The proxy for all requests, such as http://proxy.example.com:8080/. Requests to localhost:8000 never go there.

## `SSL_CERT_FILE`

Valid values: a file name

Certificates are read of this file in place of those of the system.
""",
}
QUESTION = "Which package adds WebSocket support?"


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    folder = tmp_path_factory.mktemp("site")
    for name, text in PAGES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(read_documents(folder, words=40))


def named(passages: Sequence[Document], end: str) -> Document:
    """Return the first passage whose title ends so."""
    return next(passage for passage in passages if passage.title.endswith(end))


def found_in(*passages: Document, question: str = QUESTION) -> dict[str, Any]:
    """Return the features of each candidate of passages, and check that each place holds it."""
    evidence = all_documents(passages)
    found = {}
    for candidate in candidates(question, evidence.context):
        places = answer_places(candidate.spans, evidence, passages)
        assert places, candidate.text
        by_id = {passage.id: passage for passage in passages}
        for place in places:
            assert normalise_answer(place.cut(by_id[place.document_id])[1]) == normalise_answer(candidate.text)
        found[candidate.text] = candidate.features
    return found


def test_a_passage_is_read_below_its_headings_and_its_own_is_an_answer_with_its_place(passages: list[Document]) -> None:
    passage = named(passages, "> ferry-ws")
    assert document_text(passage) == (
        "[Packages of others > Plugins > ferry-ws] GitHub - Documentation\nWebSocket support for Ferry."
    )
    found = found_in(passage)
    assert "title focus" in found["ferry-ws"]
    # Those above say what many passages are about; none is the name of an article.
    assert not {"Plugins", "Packages of others"} & found.keys()
    assert "a title" not in found["ferry-ws"]
    evidence = all_documents([passage])
    (ws,) = [one for one in candidates(QUESTION, evidence.context) if one.text == "ferry-ws"]
    (place,) = answer_places(ws.spans, evidence, [passage])
    assert (place.document_id, place.sentence, place.cut(passage)) == (
        passage.id, -1, ("Packages of others > Plugins > ", "ferry-ws", "")
    )  # fmt: skip
    assert not any(">" in text for text in found)


def test_a_heading_is_taken_from_the_passage_below_it_though_others_say_it(passages: list[Document]) -> None:
    other = Document("x", "Other", ("Plugins", "ferry-ws"))
    wanted = named(passages, "> ferry-ws")
    evidence = all_documents([other, wanted])
    (ws,) = [one for one in candidates(QUESTION, evidence.context) if one.text == "ferry-ws"]
    places = answer_places(ws.spans, evidence, [other, wanted])
    assert {(place.document_id, place.sentence) for place in places} == {("x", 1), (wanted.id, -1)}


def test_every_heading_is_read(passages: list[Document]) -> None:
    read = "\n".join(map(document_text, passages))
    for text in PAGES.values():
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
            assert heading.replace("`", "") in read
    assert document_text(next(each for each in passages if "Abandoned" in each.sentences)).endswith("] Abandoned")


def test_headings_name_code_without_marks_and_each_name_is_an_answer(passages: list[Document]) -> None:
    passage = named(passages, "NO_PROXY")
    assert passage.title == "Environment variables > FERRY_PROXY, NO_PROXY"
    found = found_in(passage)
    assert {"FERRY_PROXY, NO_PROXY", "FERRY_PROXY", "NO_PROXY"} <= found.keys()
    assert {"http://proxy.example.com:8080/", "localhost:8000"} <= found.keys()
    assert not any(text in found for text in ("FERRY", "PROXY", "proxy.example.com", "localhost", "8080", "8000"))


def test_code_is_an_answer_as_a_whole_and_never_cut(passages: list[Document]) -> None:
    found = found_in(*passages)
    code = {
        "ferry.Limits", "ferry.Timeout", "ferry.Client(http2=True, timeout=5.0)", ".close()", "max_keepalive_connections",
        "None", "--http2", "-v", "ferry GET /tides?x=1.5 --json", "pyproject.toml", "trust_env=False", "max_connections=10",
        "SSL_CERT_FILE", "scripts/install", ".venv", "CHANGELOG.md", "mail@example.com", "Client(auth=...)",
    }  # fmt: skip
    assert code <= found.keys()
    assert all(found[text].get("is code") == 1 for text in code - {"SSL_CERT_FILE", "None"})
    assert "3.11.2" in found
    for text in found:
        assert text.count("`") % 2 == 0
        assert text.strip("`") in code or not any(
            re.search(rf"(?<![\w.]){re.escape(part)}$", text)
            for part in ("max_keepalive", "pyproject", "CHANGELOG", "3.11", "mail", "trust_env", "GET", "/tides")
        )


def test_items_are_read_with_their_sentence(passages: list[Document]) -> None:
    limits = named(passages, "> ferry.Limits")
    assert limits.sentences[0] == "The pool has these limits:"
    steps = [passage for passage in passages if passage.title == "Contribute"]
    assert len(steps) > 1
    assert all(passage.sentences[0].startswith("Every change is made so:") for passage in steps)
    (joined,) = all_documents(steps[::-1]).context
    assert joined.count("Every change is made so") == 1
    assert "A change has:\na test that fails without it,\na line in `CHANGELOG.md`,\n" in joined
    assert [line.partition(" ")[0] for line in joined.split("\n")[1:]] == [
        "Fork", "Run", "Make", "a", "a", "an", "Run", "Open",
    ]  # fmt: skip


def test_offsets_are_those_of_the_text_that_was_read(passages: list[Document]) -> None:
    for name in PAGES:
        texts: dict[int, str] = {}
        for passage in passages:
            if passage.source.endswith(name):
                assert passage.origin is not None
                for start, sentence in zip(passage.origin.sentences, passage.sentences, strict=True):
                    assert texts.setdefault(start, sentence) == sentence
        ends = [start + len(sentence) for start, sentence in sorted(texts.items())]
        assert all(end < start for end, start in zip(ends, sorted(texts)[1:], strict=False))


def test_no_word_of_a_page_is_lost(passages: list[Document]) -> None:
    for name, text in PAGES.items():
        read = " ".join(document_text(passage) for passage in passages if passage.source.endswith(name))
        said = re.sub(r"\]\([^)]*\)|^---$|^title: |^#+ |^\d\. |```\w*|`", " ", text, flags=re.MULTILINE)
        assert set(re.findall(r"\w+", said)) <= set(re.findall(r"\w+", read))


def test_sentences_as_units_have_their_headings_in_front(passages: list[Document]) -> None:
    passage = named(passages, "> ferry-ws")
    unit = TextUnit(passage.title, passage.sentences[1], passage.id, 1)
    evidence = Evidence("sentences", (unit.text,), (passage.id,))
    found = {one.text: one for one in candidates(QUESTION, evidence.context)}
    (place,) = answer_places(found["ferry-ws"].spans, evidence, [passage])
    assert (place.sentence, place.cut(passage)[1]) == (-1, "ferry-ws")


@pytest.mark.parametrize("text", ["`ferry.Limits`", "`--http2`", "`pool.timeout=5.0`", "`GET /path`"])
def test_marks_of_code_are_no_part_of_an_answer(text: str) -> None:
    assert clean_answer(text) == text.strip("`")
    assert normalise_answer(text) == normalise_answer(text.strip("`")) != ""


CODE = (
    "ferry.Limits", "--flag", "--limit=3.5", "-x", "pool.timeout=5.0", "pyproject.toml", "https://x.org/a_(b)?c=1", "a_b", "SSL_CERT_FILE",
    "__init__.py", "foo.bar()", "std::vector", "./src/a_b.py", "/etc/ssl/certs", "~/.netrc", ".env", "*.py", "C++", "C#", "1.0b3", "2.0.0-rc.1",
    "ferry[http2]", "python>=3.8", "localhost:8000", "$HOME", "@app.get", "ann@example.org", "max-keep_alive",
)  # fmt: skip
WORDS = (
    "The",
    "town",
    "of",
    "Ada",
    "Foah",
    "1,200.5",
    "in",
    "U.S.",
    "is",
    "well-known",
    "東京",
    "D.C.",
    "and/or",
    "O'Brien",
)
AFTER = (" ", ", ", ". ", " (", ") ", '" ', "; ", "\n")

prose = st.lists(
    st.tuples(st.sampled_from((*CODE, *WORDS)), st.sampled_from(AFTER), st.booleans()), min_size=1, max_size=12
)


def written(parts: Sequence[tuple[str, str, bool]]) -> str:
    return "".join(f"`{word}`{after}" if marked else f"{word}{after}" for word, after, marked in parts)


@given(prose)
def test_code_is_one_word_or_one_span(parts: list[tuple[str, str, bool]]) -> None:
    text = written(parts)
    found = words(text)
    assert all(text[word.start : word.end] == word.text for word in found)
    assert all(before.end <= after.start for before, after in pairwise(found))
    left = iter(found)
    for expected, _, marked in parts:
        if marked:
            first = next(word for word in left if word.span)
            inside = [first, *(word for word in found if word.span == first.span and word.start > first.start)]
            assert text[first.start : inside[-1].end] == expected
        elif expected in CODE:
            assert any(word.text == expected and word.kind == "code" for word in left)


@given(prose)
def test_no_candidate_cuts_code_and_every_code_is_one(parts: list[tuple[str, str, bool]]) -> None:
    entry = f"[Title > Head `of` it] {written(parts)}"
    sentences = read_entries([entry])
    english = are_english(sentences)
    spans = [
        (span.start, span.end)
        for number, sentence in enumerate(sentences)
        for span in spans_of(number, sentence, english=english)
    ]
    for start, end in spans:
        assert entry[start:end] == entry[start:end].strip()
        assert entry[start:end].count("`") % 2 == 0
    for sentence in sentences:
        for word in sentence.words:
            at = sentence.start + word.start, sentence.start + word.end
            if word.kind == "code" and not word.span:
                assert at in spans or sentence.is_title
                assert not any(at[0] < border < at[1] for span in spans for border in span)
        for number in {word.span for word in sentence.words} - {0}:
            inside = [word for word in sentence.words if word.span == number]
            at = sentence.start + inside[0].start, sentence.start + inside[-1].end
            assert at in spans or sentence.is_title
            assert sentence.is_title or not any(at[0] < border < at[1] for span in spans for border in span)


@pytest.mark.parametrize(
    ("question", "thing"),
    [
        ("Which package adds WebSocket support?", "package"),
        ("Which environment variable lists the hosts?", "variable"),
        ("What is the name of the class that sets the limits?", "class"),
        ("What argument turns it on?", "argument"),
        ("What are the command-line options?", "options"),
        ("Which class of ships was she of?", ""),
        ("What is the default timeout?", ""),
        ("Who wrote the library?", ""),
    ],
)
def test_a_question_for_what_programs_name_is_known_by_its_thing(question: str, thing: str) -> None:
    asked = read_question(question)
    assert asked.identifier == bool(thing)
    if thing:
        assert stem(thing) not in asked.stems


def test_code_and_own_headings_alone_answer_what_programs_name(passages: list[Document]) -> None:
    reader = SpanReader(ScriptedModel(["unused"]))
    evidence = all_documents([named(passages, "> ferry-ws"), named(passages, "NO_PROXY")])
    ranked = [one.candidate.text for one in reader.rank("Which package adds WebSocket support?", evidence)]
    assert ranked[0] == "ferry-ws"
    assert not {"Ferry", "GitHub", "Plugins"} & {*ranked}
    # Prose has none, and any phrase may be what is asked for.
    prose = all_documents([Document("x", "Ferry", ("The ferry uses the method of least squares.",))])
    assert "least squares" in [one.candidate.text for one in reader.rank("Which method does the ferry use?", prose)]


def test_names_in_software_are_told_apart_by_what_is_said_of_them() -> None:
    entries = [
        "[Packages > Plugins > ferry-cache] GitHub\nAn elegant cache for Ferry, which adds much.",
        "[Packages > Plugins > ferry-ws] GitHub\nWebSocket support for Ferry.",
    ]
    for order in (entries, entries[::-1]):
        evidence = Evidence("documents", tuple(order), ("a", "b"))
        ranked = [
            one.candidate.text
            for one in SpanReader(ScriptedModel()).rank("Which package adds WebSocket support?", evidence)
        ]
        assert ranked == ["ferry-ws", "ferry-cache"]


@given(st.text(alphabet="aB1 _/@=$#:()+[].-*~", max_size=20))
def test_a_text_without_signs_of_code_has_no_code(text: str) -> None:
    if not _SIGN.search(text):
        assert [match[0] for match in _WORD.finditer(text)] == [match[0] for match in _PLAIN_WORD.finditer(text)]


headings = st.lists(
    st.sampled_from(["Plugins", "ferry-ws", "The `a.b` class", "Array[int]", "C++", "Was ist das?", "東京"]),
    min_size=1,
    max_size=4,
)


@given(headings=headings, parts=prose)
def test_the_last_heading_of_a_path_is_an_answer_in_its_place(
    headings: list[str], parts: list[tuple[str, str, bool]]
) -> None:
    blocks = [Block(heading, level=level) for level, heading in enumerate(headings, 1)]
    text = " ".join(written(parts).split())
    document = Document("doc", "File", (), "file.md")
    (passage,) = cut_passages(
        document, Extracted("Title", [*blocks, Block(text), Block("Last", level=1)]), words=1_000
    )[:1]
    passage = Document(passage.id, " > ".join(["Title", *headings]), passage.sentences, passage.source, passage.origin)
    evidence = all_documents([passage])
    found = {normalise_answer(one.text): one for one in candidates("Which?", evidence.context)}
    places = answer_places(found[normalise_answer(headings[-1])].spans, evidence, [passage])
    assert any(place.sentence == -1 and place.cut(passage)[1] == headings[-1] for place in places)


@given(blocks=st.lists(prose.map(lambda parts: " ".join(written(parts).split())), min_size=1, max_size=4))
def test_no_sentence_that_is_read_crosses_a_block(blocks: list[str]) -> None:
    document = Document("doc", "File", (), "file.md")
    passages = cut_passages(document, Extracted("Title", [Block(text) for text in blocks]), words=10_000)
    (entry,) = all_documents(passages).context
    read = [sentence.text for sentence in read_entries([entry]) if not sentence.is_title]
    assert "".join("".join(read).split()) == "".join("".join(blocks).split())
    assert all(any(text in block for block in blocks) for text in read)
