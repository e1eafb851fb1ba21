"""The labelled responses about the example documents hold together, and the checker of claims agrees with their labels."""

from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.evaluation import auroc
from pytrace.documents import read_documents
from pytrace.records import Document

EXAMPLES = Path(__file__).parents[2] / "examples"
KINDS = {
    "true": 15, "paraphrased": 20, "multi-hop": 15, "swapped": 15, "negated": 12, "invented": 15, "partly": 18, "abstaining": 10,
}  # fmt: skip
# A few points from what is reached, which docs/certify.md says: few responses are supported, and fewer wrong ones.
MIN_SUPPORTED_SHARE, MAX_WRONG_SHARE, MIN_AUROC = 0.17, 0.10, 0.70


class LabelledResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of examples/responses.jsonl; `wrong` is the stretch of the response that is wrong, "" where it is supported."""

    id: str
    question: str
    response: str
    label: Literal["supported", "unsupported"]
    kind: str
    style: str
    wrong: str
    documents: tuple[str, ...]
    split: Literal["dev", "test"]


@pytest.fixture(scope="module")
def rows() -> list[LabelledResponse]:
    lines = (EXAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=LabelledResponse) for line in lines]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(read_documents(EXAMPLES / "docs"))


def test_rows_are_of_all_kinds_in_equal_splits_and_no_two_alike(rows):
    assert Counter(row.kind for row in rows) == KINDS
    assert Counter(row.split for row in rows) == {"dev": 60, "test": 60}
    assert len({row.id for row in rows}) == len({row.response for row in rows}) == len(rows)
    by_kind = Counter((row.kind, row.split) for row in rows)
    assert all(abs(by_kind[kind, "dev"] - by_kind[kind, "test"]) <= 1 for kind in KINDS)
    styles = Counter((row.style, row.split) for row in rows)
    assert all(abs(styles[style, "dev"] - styles[style, "test"]) <= 2 for style, _ in styles)


def test_what_is_wrong_stands_in_the_response_behind_its_thinking(rows):
    for row in rows:
        assert (row.label == "supported") == (row.wrong == ""), row.id
        assert row.wrong in row.response.rpartition("</think>")[2], row.id
        if row.kind != "abstaining":
            assert (row.label == "supported") == (row.kind in ("true", "paraphrased", "multi-hop")), row.id


def test_the_documents_of_a_row_exist(rows, documents):
    titles = {document.title for document in documents}
    assert not {title for row in rows for title in row.documents} - titles
    assert all(row.documents for row in rows)
    assert all(len(row.documents) > 1 for row in rows if row.kind == "multi-hop")


def test_the_checker_agrees_with_the_labels(rows, documents):
    checked = ClaimChecker().check_all([row.response for row in rows], documents)
    supported = np.array([all(claim.label == "supported" for claim in response.claims) for response in checked])
    least = np.array([min((claim.supported for claim in response.claims), default=1.0) for response in checked])
    wanted = np.array([row.label == "supported" for row in rows])
    assert supported[wanted].mean() >= MIN_SUPPORTED_SHARE
    assert supported[~wanted].mean() <= MAX_WRONG_SHARE
    assert auroc(least, wanted) >= MIN_AUROC
