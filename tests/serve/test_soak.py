"""A short form of `benches/soak.py`: documents come and go, clients vanish, the service is killed, and nothing is lost or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from tests.serve.service_process import build_index

pytestmark = pytest.mark.models


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("tiny_models")
def test_documents_survive_a_kill_and_answers_stay_right_under_mixed_load(tmp_path: Path) -> None:
    from benches.soak import soak

    index = build_index(tmp_path / "index")
    questions = [
        "Who founded the company that owns the Marigold Tern?",
        "Which island has the observatory whose keeper wrote the almanac?",
        "What is the ferry to Skarra Isle called?",
    ]
    report = soak(
        index,
        questions,
        seconds=25.0,
        kills=1,
        threads=1,
        seed=0,
        log=tmp_path / "service.log",
        method="dense:top=1",
    )
    assert report.faults == []
    counts = report.counts
    # Each kind of check was made at all.
    assert sum(counts.get(name, 0) for name in ("killed in a change", "killed between changes")) == 1
    for name in ("documents found as they are", "answers compared", "POST /v1/documents: 200", "POST /v1/rerank: 200"):
        assert counts.get(name, 0) > 0, name
    for kind in ("vanished", "index "):
        assert sum(count for name, count in counts.items() if name.startswith(kind)) > 0, kind
    # What each life is short of warming up with; the bench itself holds half an hour to 5 %.
    assert all(growth < 0.5 for growth in [*report.growth, report.own_growth])
