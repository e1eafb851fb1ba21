"""Labelled claims and responses: how they are read, judged and scored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pytrace import Document
from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.evaluation import (
    Verdict,
    agreement,
    auroc,
    balanced_accuracy,
    calibration_error,
    judge,
    read_labelled,
)
from pytrace.cli import common, program
from pytrace.errors import DataError
from pytrace.storage.question_hashes import question_hash

LAKE = ["Lake Volta was made in 1965.", "It lies in Ghana."]
ROWS = [
    {"id": "a", "claim": "Lake Volta lies in Ghana.", "evidence": LAKE, "label": "SUPPORTS", "title": "Lake Volta"},
    {"claim": "Lake Volta was made in 1975.", "evidence": " ".join(LAKE), "label": "refuted", "kind": "number"},
    {"claim": "Geese fly to Norway.", "evidence": LAKE, "label": "NOT ENOUGH INFO"},
    {
        "response": "Lake Volta was made in 1965. It was painted blue by sailors.",
        "contexts": [" ".join(LAKE)],
        "label": "partially_supported",
        "kind": "response",
    },
    {"answer": "", "contexts": LAKE, "label": True, "kind": "response"},
]


def written(tmp_path: Path, rows: list[dict[str, object]]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return path


def test_rows_of_several_data_sets_are_read(tmp_path):
    rows = list(read_labelled(written(tmp_path, ROWS)))
    assert [row.label for row in rows] == ["supported", "contradicted", "not there", "not there", "supported"]
    assert [row.is_claim for row in rows] == [True, True, True, False, False]
    assert [row.id for row in rows] == ["a", "2", "3", "4", "5"]
    assert [row.kind for row in rows] == ["", "number", "", "response", "response"]
    (document,) = rows[0].documents
    assert (document.title, list(document.sentences)) == ("Lake Volta", LAKE)
    assert list(rows[1].documents[0].sentences) == LAKE
    assert len(list(read_labelled(written(tmp_path, ROWS), limit=2))) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"claim": "A."}, "label is None; give supported"),
        ({"claim": "A.", "label": "perhaps"}, "label is 'perhaps'"),
        ({"claim": 3, "label": 1}, "claim is int"),
        ({"claim": "A.", "label": 1, "evidence": [3]}, "evidence"),
        ({"label": 1}, "the row has no response"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_line(tmp_path, row, message):
    with pytest.raises(DataError) as raised:
        list(read_labelled(written(tmp_path, [*ROWS, row])))
    assert "rows.jsonl:6" in str(raised.value)
    assert message.split(" is ")[0] in str(raised.value)


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no row"):
        list(read_labelled(written(tmp_path, [])))


def test_the_worst_claim_of_a_response_counts_and_one_that_claims_nothing_is_supported(tmp_path):
    rows = list(read_labelled(written(tmp_path, ROWS)))
    judged = judge(rows, ClaimChecker(), [])
    assert [verdict.found for verdict in judged.verdicts] == [row.label for row in rows]
    response = judged.verdicts[3]
    assert len(response.claims) == 2
    assert response.supported == min(claim.supported for claim in response.claims)
    assert judged.verdicts[4].supported == 1.0
    assert judged.claims_a_second > 0


def test_rows_without_evidence_are_judged_by_shared_documents_as_by_their_own(tmp_path):
    bare = [{key: value for key, value in row.items() if key not in ("evidence", "contexts")} for row in ROWS]
    rows = list(read_labelled(written(tmp_path, bare)))
    assert all(row.documents is None for row in rows)
    lake = Document("lake", "", tuple(LAKE))
    together = judge(rows, ClaimChecker(), [lake]).verdicts
    apart = judge(rows, ClaimChecker(), lambda _: [lake]).verdicts
    assert together == apart
    assert [verdict.found for verdict in together] == [row.label for row in rows]


def verdict(label: str, supported: float) -> Verdict:
    found = "supported" if supported >= 0.5 else "not there"
    return Verdict("", "", label, found, supported, 0.0, ())  # type: ignore[arg-type]


def test_agreement_counts_what_it_says():
    verdicts = [verdict("supported", 0.9), verdict("supported", 0.4), verdict("contradicted", 0.2), verdict("not there", 0.6)]  # fmt: skip
    scores = agreement(verdicts)
    assert scores.n == 4
    assert scores.balanced_accuracy.value == 0.5
    assert scores.auroc.value == 0.75
    assert scores.unsupported_f1 == 0.5
    assert scores.brier == pytest.approx((0.01 + 0.36 + 0.04 + 0.36) / 4)
    assert scores.confusion["supported"] == {"supported": 1, "contradicted": 0, "not there": 1}
    assert scores.balanced_accuracy.low <= 0.5 <= scores.balanced_accuracy.high
    only = agreement(verdicts[:2])
    assert only.balanced_accuracy is None
    assert only.auroc is None
    assert agreement([verdict("supported", 1.0)]).unsupported_f1 == 1.0


def test_auroc_is_the_share_of_ordered_pairs_with_ties_by_half():
    rng = np.random.default_rng(0)
    scores, wanted = rng.integers(0, 5, 60) / 4, rng.random(60) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in scores[wanted] for b in scores[~wanted]]
    assert auroc(scores, wanted) == pytest.approx(np.mean(pairs))
    assert balanced_accuracy(wanted, wanted) == 1.0
    assert calibration_error(wanted.astype(float), wanted) == 0.0
    assert calibration_error(np.full(60, 0.5), wanted) == pytest.approx(abs(wanted.mean() - 0.5))


def test_the_command_prints_a_table_and_writes_verdicts(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ROWS)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(program, ["eval-claims", *arguments])
        return (status, *capfd.readouterr())

    status, out, err = call("rows.jsonl", "--out", "verdicts.jsonl")
    assert status == 0, err
    assert "100.0 (100.0 to 100.0)" in out
    assert "rows.jsonl, number" in out
    assert "claims a second" in out
    lines = [json.loads(line) for line in Path("verdicts.jsonl").read_text("utf-8").splitlines()]
    assert [line["verdict"]["found"] for line in lines] == [line["verdict"]["label"] for line in lines]
    status, out, err = call("rows.jsonl", "--json")
    scores = json.loads(out)["scores"]
    assert scores["rows.jsonl"]["balanced_accuracy"]["value"] == 1.0
    assert scores["rows.jsonl, response"]["n"] == 2
    assert json.loads(out)["notices"]["rows.jsonl"] == (
        "none of the 5 claims was used to train the weights of the claim checker and the small model"
    )
    written(tmp_path, [{"claim": "Lake Volta lies in Ghana.", "label": "supported"}])
    status, out, err = call("rows.jsonl")
    assert status == 2
    assert "the row 1 has no evidence, and neither --docs nor --index" in err
    Path("docs").mkdir()
    Path("docs/lake.md").write_text(f"# Lake Volta\n\n{' '.join(LAKE)}\n", "utf-8")
    status, out, err = call("rows.jsonl", "--docs", "docs", "--json")
    assert json.loads(out)["scores"]["rows.jsonl"]["confusion"]["supported"]["supported"] == 1
    assert call("rows.jsonl", "--docs", "docs", "--index", "x")[0] == 2


def test_claims_that_the_weights_have_seen_are_named_and_the_others_scored_once_more(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ROWS)
    known = frozenset(map(question_hash, ("lake volta lies in GHANA.", "Geese fly to Norway.")))
    monkeypatch.setattr("pytrace.certify.claims.weights.learned_claims", lambda: known)
    assert common.run(program, ["eval-claims", "rows.jsonl", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["scores"]["rows.jsonl"]["n"], told["scores"]["rows.jsonl, unseen"]["n"]) == (5, 3)
    assert told["notices"]["rows.jsonl"] == (
        "2 of 5 claims were used to train the claim checker's weights; figures of the 3 unseen claims are shown next to those of all"
    )
    monkeypatch.setattr("pytrace.certify.claims.weights.learned_claims", lambda: None)
    assert common.run(program, ["eval-claims", "rows.jsonl"]) == 0
    out = capfd.readouterr().out
    assert "rows.jsonl: it is not known which claims were used to train the claim checker's weights" in out
    assert "unseen" not in out
