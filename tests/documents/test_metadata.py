"""What documents say of themselves: front matter, rows, and filters on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytrace.documents import ReadReport, read_documents
from pytrace.documents.filters import Filter, matches, parse_filters
from pytrace.documents.front_matter import split_front_matter
from pytrace.errors import DataError, InputError
from pytrace.records import Document, Origin

YAML = """---
Title: The light of Skerry
author: Isaura Venn
tags: [Tides, light]
date: 2021-03-04
seen: {by: 3, at: 2021-03-04 10:00:00}
draft: true
nothing:
---
# Intro

The light was built in 1887.
"""
TOML = """+++
title = "The light of Skerry"
date = 2021-03-04
tags = ["Tides"]
+++
The light was built in 1887.
"""


def metadata_of(path: Path, report: ReadReport | None = None) -> tuple[str, dict[str, Any]]:
    (document,) = read_documents(path, report=report)
    assert document.origin is not None
    return document.title, document.origin.metadata


def test_front_matter_is_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(YAML)
    title, fields = metadata_of(tmp_path / "a.md")
    assert title == "The light of Skerry"
    assert fields == {
        "author": "Isaura Venn",
        "tags": ["Tides", "light"],
        "date": "2021-03-04",
        "seen": {"by": 3, "at": "2021-03-04T10:00:00"},
        "draft": True,
    }
    (tmp_path / "b.md").write_text(TOML)
    assert metadata_of(tmp_path / "b.md") == (title, {"date": "2021-03-04", "tags": ["Tides"]})


@pytest.mark.parametrize(
    ("front", "says"),
    [
        ("title: [The\nauthor: x", "was not understood"),
        ("title: a\nb: &b [x, x]\nc: *b", "has aliases"),
        ("title: 'a'\nb: !!python/object/apply:os.system ['true']", "was not understood"),
        ("a=b: c\n", ""),
        ("a: " + "[" * 5_000, "was not understood"),
    ],
)
def test_front_matter_that_is_not_understood_is_one_warning(tmp_path: Path, front: str, says: str) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"---\n{front}\n---\nThe light was built in 1887.\n")
    report = ReadReport()
    (document,) = read_documents(path, report=report)
    assert document.text == "The light was built in 1887."
    assert [says in warning for warning in report.warnings] == [True] * bool(says)


def test_metadata_of_rows_travels_to_their_passages(tmp_path: Path) -> None:
    rows = [
        {"title": "A", "text": "One two. " * 200, "metadata": {"author": "Venn", "pages": [1, 2]}},
        {"title": "B", "text": "Three.", "metadata": {"author": "Marr"}},
        {"title": "C", "text": "Four.", "metadata": None},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    passages = list(read_documents(path))
    authors = [None if passage.origin is None else passage.origin.metadata.get("author") for passage in passages]
    assert authors == ["Venn"] * (len(passages) - 2) + ["Marr", None]
    assert len(passages) > 4
    assert passages[-2].origin == Origin(passages[-2].id, "B", end=6, sentences=(0,), metadata={"author": "Marr"})
    assert [passage.title for passage in read_documents(path, where=["author=m*"])] == ["B"]
    assert [passage.title for passage in read_documents(path, where=["author!=Venn"])] == ["B", "C"]


METADATA = {
    "author": "Isaura Venn",
    "year": 2021,
    "date": "2021-03-04",
    "tags": ["tides", "Light"],
    "draft": True,
    "f": "1.5",
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("author=isaura venn", True),
        ("author=Isaura", False),
        ("author=*venn", True),
        ("author=[Ii]saura venn", False),
        ("author!=Isaura", True),
        ("year=2021", True),
        ("year>2020", True),
        ("year<900", False),
        ("f<=1.50", True),
        ("date>=2021", True),
        ("date<2021-03-04", False),
        ("date<=2021-03-04", True),
        ("tags=light", True),
        ("tags!=light", False),
        ("tags=fog", False),
        ("draft=true", True),
        ("nothing=1", False),
        ("nothing!=1", True),
        ("nothing>1", False),
        ("title=The light", True),
        ("source=reports/*", True),
        ("source=*.pdf", False),
        (" year = 2021 ", True),
        ("author=", False),
    ],
)
def test_a_filter_says_which_documents_match(text: str, matches: bool) -> None:
    document = Document("1", "The light", ("A.",), "reports/a.md", Origin("1", "The light", metadata=METADATA))
    assert Filter.parse(text).matches(document) is matches
    assert Filter.parse(text).matches(Document("1", "x", ("A.",), "y")) is (text[7:9] == "!=" or "!=" in text)


def test_filters_that_are_none_or_match_nothing_are_told(tmp_path: Path) -> None:
    for text in ("", "author", "=x", "~a"):
        with pytest.raises(InputError, match="is no filter; write FIELD=VALUE"):
            read_documents(tmp_path, where=[text])
    (tmp_path / "a.txt").write_text("One two.")
    with pytest.raises(DataError, match="none of 1 documents matches author=Venn, year>3"):
        list(read_documents(tmp_path, where=["author=Venn", "year>3"]))


@pytest.mark.parametrize(
    "field",
    ["a: !!timestamp x", "a: .inf", "a: 99999999999999999999", "a: " + "[" * 500, "a: [" + "[],\n" * 1_000 + "]", "a: 2020-13-45",
     "a: " + "word " * 30_000],
)  # fmt: skip
def test_front_matter_that_cannot_be_read_costs_a_warning(field: str) -> None:
    front = split_front_matter(f"---\ntitle: Tern\n{field}\n---\nText.\n")
    assert (front.fields, front.text) == ({"title": "Tern"}, "Text.\n")
    assert front.warning.startswith("its front matter was not understood (")
    assert "\n" not in front.warning


def test_half_characters_of_front_matter_are_replaced() -> None:
    assert split_front_matter('---\ntitle: "a\\ud800"\n---\n').fields == {"title": "a?"}


@pytest.mark.parametrize(
    ("text", "matches_it"),
    [("title=a*c*e", True), ("title=*", True), ("title=*b*", True), ("title=abcde*", True), ("title=abc*cde", False),
     ("title=a*x*e", False), ("title=*d", False), ("title= ABCDE ", True)],
)  # fmt: skip
def test_stars_stand_for_any_characters(text: str, matches_it: bool) -> None:
    assert matches(Document("1", "abcde", ()), parse_filters([text])) is matches_it


def test_filters_are_read_and_compared_in_time_linear_in_their_length() -> None:
    with pytest.raises(InputError, match="is no filter"):
        parse_filters(["\n" * 200_000])
    assert not matches(Document("1", "a" * 50_000, ()), parse_filters(["title=" + "a*" * 500 + "b"]))
