"""The page of checked responses is one safe file that loses no character, and a browser shows claims with their sentences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytrace import Document
from pytrace.certify.claims import ClaimChecker
from pytrace.report.claims import claim_page
from pytrace.report.claims.claim_page import NamedResponse
from pytrace.report.html_page import write_page
from tests.report.test_certify_page import HOSTILE, browser, opened

__all__ = ["browser"]
LAKE = Document("lake", "Lake Volta", ("Lake Volta was made in 1965.", "It lies in Ghana."), "lakes.md")
TEXTS = (
    "😀 Lake Volta lies in Ghana. It was made in 1975! Sailors painted seven geese.",
    "",
    f"Lake Volta lies in Ghana. {HOSTILE} was made in 1965.",
)


def page(texts: tuple[str, ...] = TEXTS, **options: object) -> str:
    checked = ClaimChecker().check_all(texts, [LAKE])
    return claim_page([NamedResponse(f"r{k}", one) for k, one in enumerate(checked)], **options)  # type: ignore[arg-type]


def rows(written: str) -> list[dict]:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', written)[1])


def test_the_pieces_of_a_response_are_the_response():
    found = rows(page(("😀 Lake Volta lies in Ghana. It was made in 1975! Sailors painted seven geese.",)))
    (row,) = found
    assert "".join(text for text, _ in row["parts"]) == TEXTS[0]
    assert [claim["label"] for claim in row["claims"]] == ["supported", "contradicted", "not there"]
    for text, number in row["parts"]:
        if number >= 0:
            assert "".join(part for part, _ in row["claims"][number]["parts"]) == text
    assert row["claims"][1]["subject"] == "Lake Volta"
    assert [text for text, missing in row["claims"][1]["parts"] if missing >= 0] == ["1975"]
    assert row["claims"][0]["evidence"][0] == {
        "title": "Lake Volta",
        "text": "It lies in Ghana.",
        "source": "lakes.md",
        "date": "",
    }


def test_a_document_that_disagrees_is_told():
    other = Document("b", "Lakes", ("Lake Volta was made in 1971.",), "b.md")
    checked = ClaimChecker().check("Lake Volta was made in 1965.", [LAKE, other])
    (row,) = rows(claim_page([NamedResponse("r", checked)]))
    (against,) = row["claims"][0]["disagreeing"]
    assert (against["label"], against["text"], against["source"]) == (
        "contradicted",
        "Lake Volta was made in 1971.",
        "b.md",
    )


def test_texts_stay_texts_and_long_ones_are_cut():
    written = page()
    assert written.count("<script") == 2
    assert "onerror=alert(2)>" not in written.replace("\\u003e", "")
    assert "https:" not in written
    written.encode()
    (row,) = rows(page(("Lake Volta lies in Ghana. " * 4_000,)))
    assert len("".join(text for text, _ in row["parts"])) == 50_000
    assert row["left"] == 54_000
    assert len(row["claims"]) == 300
    assert row["moreClaims"] == 3_700
    assert rows(page(())) == []
    assert page() == page()


@pytest.mark.parametrize(
    ("fragment", "seen"), [("", 3), ("#label=contradicted", 1), ("#q=geese", 1), ("#order=score", 3)]
)
def test_a_browser_shows_claims_with_their_sentences(browser: str, tmp_path: Path, fragment: str, seen: int) -> None:
    path = tmp_path / "claims.html"
    write_page(path, page(title="Lakes", settings={"checked against": "lakes.md"}))
    dom, console = opened(browser, path, f"{fragment}{'&' if fragment else '#'}open=1", "--dump-dom")
    assert "Uncaught" not in console
    assert "Refused" not in console
    assert dom.count('<details class="response"') == seen
    assert dom.count('class="claim"') == 3
    assert dom.count('class="claimed ') == 3
    assert "It lies in Ghana.<div" in dom
    assert '<span class="missing">1975</span>' in dom
