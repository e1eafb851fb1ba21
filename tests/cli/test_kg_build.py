"""`pytrace kg build` at work: what it says while it runs and when it fails, who may look on, and what a kill costs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.triples.graph import TripleStore

# The tiny profile takes phrases as triples.
WRITTEN = ("--set", "extraction=written")

Run = Callable[..., tuple[int, str, str]]


def write(path: Path, numbers: range | list[int], **changes: Any) -> Path:
    rows = [
        {"id": f"h{number}", "title": f"House {number}", "text": f"House {number} has a roof.", **changes}
        for number in numbers
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def script(prompt: str) -> str:
    number = int(re.findall(r"House (\d+)", prompt)[-1])
    if number == 3:
        raise ContextOverflowError("a prompt of 9000 tokens does not fit")
    if number == 5:
        return "I see no facts."
    if number == 7:
        return " has; a roof>\n<House 7; has; " + "very " * 400
    return " has; a roof>"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, ["kg", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def test_failures_are_counted_named_and_listed_by_show(run: Run, tmp_path: Path) -> None:
    docs, graph = write(tmp_path / "docs.jsonl", range(10)), tmp_path / "kg"
    status, output, errors = run("build", *WRITTEN, "--docs", docs, "--out", graph)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0].startswith(f"{graph}: 10 documents, 10 triples")
    assert lines[2:5] == [
        "failed: House 3: a prompt of 9000 tokens does not fit; the document's sentences stand in",
        "failed: House 5: no sound triple in 1 lines; the document's sentences stand in",
        f"2 of 10 texts failed, 1 were cut off: 'pytrace kg show {graph} --failures' lists them",
    ]
    status, output, errors = run("show", graph, "--failures")
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        "failed: h3: a prompt of 9000 tokens does not fit; the document's sentences stand in",
        "failed: h5: no sound triple in 1 lines; the document's sentences stand in",
        "cut off: h7: House 7",
    ]
    told = json.loads(run("show", graph, "--failures", "--json")[1])
    assert [one["document_id"] for one in told["failures"]] == ["h3", "h5"]
    assert told["failures"][0]["reason"].startswith("a prompt of 9000 tokens")
    assert told["cut_off"] == [{"document_id": "h7", "title": "House 7"}]
    status, _, errors = run("show", graph, "--failures", "--document", "h3")
    assert (status, errors.count("\n")) == (2, 1)
    told = json.loads(run("build", *WRITTEN, "--docs", docs, "--out", graph, "--resume", "--retry", "--json")[1])
    assert (told["extracted"], told["failed"], told["cut_off"], told["statistics"]["failures"]) == (2, 2, 0, 2)


def test_a_thousand_failures_are_named_and_all_of_them_listed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(["nonsense"]))
    docs, graph = write(tmp_path / "docs.jsonl", range(1300)), tmp_path / "kg"
    told = json.loads(run("build", *WRITTEN, "--docs", docs, "--out", graph, "--json")[1])
    assert (told["failed"], len(told["failures"]), told["statistics"]["failures"]) == (1300, 1000, 1300)
    assert len(json.loads(run("show", graph, "--failures", "--json")[1])["failures"]) == 1300
    assert run("show", graph, "--failures")[1].count("\n") == 1300
    clean = tmp_path / "clean"
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel([" has; a roof>"]))
    assert run("build", *WRITTEN, "--docs", docs, "--out", clean)[0] == 0
    assert run("show", clean, "--failures")[1] == "no document failed or was cut off\n"
    assert json.loads(run("show", clean, "--failures", "--json")[1])["failures"] == []


def test_a_broken_line_leaves_the_graph_as_it_was_and_says_so(run: Run, tmp_path: Path) -> None:
    docs, graph = write(tmp_path / "docs.jsonl", range(20)), tmp_path / "kg"
    broken = tmp_path / "broken.jsonl"
    lines = write(broken, range(10, 40)).read_text(encoding="utf-8").splitlines()
    lines[14] = '{"title": "House'
    broken.write_text("\n".join(lines), encoding="utf-8")
    status, output, errors = run("build", *WRITTEN, "--docs", broken, "--out", graph)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert f"{broken}:15: not JSON" in errors
    assert errors.endswith(f"; nothing was stored in {graph}\n")
    assert run("build", *WRITTEN, "--docs", docs, "--out", graph)[0] == 0
    before = run("export", graph, "--out", "-")[1]
    status, output, errors = run("build", *WRITTEN, "--docs", broken, "--out", graph, "--resume")
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert f"{broken}:15: not JSON" in errors
    assert errors.endswith(f"; the 20 documents in {graph} stay as they were\n")
    assert run("export", graph, "--out", "-")[1] == before


def test_a_broken_file_is_skipped_where_that_is_asked_for_and_what_is_known_of_it_stays(
    run: Run, tmp_path: Path
) -> None:
    docs, graph = tmp_path / "docs", tmp_path / "kg"
    docs.mkdir()
    write(docs / "a.jsonl", range(10, 20))
    broken = write(docs / "b.jsonl", range(20, 30))
    assert run("build", *WRITTEN, "--docs", docs, "--out", graph, "--skip-bad")[0] == 0
    lines = broken.read_text(encoding="utf-8").splitlines()
    lines[4] = '{"title": "House'
    broken.write_text("\n".join(lines), encoding="utf-8")
    status, output, errors = run("build", *WRITTEN, "--docs", docs, "--out", graph, "--skip-bad", "--resume")
    assert status == 3
    assert errors.splitlines()[-1].startswith(f"pytrace: not read: {broken}: line 5: not JSON")
    assert "20 documents, 20 triples" in output
    assert "0 documents extracted now, 20 known before, 0 removed" in output


def test_documents_met_again_are_named_with_both_places_and_other_words_under_one_id_refused(
    run: Run, tmp_path: Path
) -> None:
    docs, graph = tmp_path / "docs", tmp_path / "kg"
    docs.mkdir()
    write(docs / "a.jsonl", range(4))
    write(docs / "b.jsonl", [2, 8])
    status, output, errors = run("build", *WRITTEN, "--docs", docs, "--out", graph, "--json")
    told = json.loads(output)
    assert (status, told["extracted"], told["changes"]["repeated"]) == (0, 5, 1)
    assert errors == f"pytrace: skipped {docs}/b.jsonl:1 (House 2): the same document as {docs}/a.jsonl:3\n"
    write(docs / "b.jsonl", [2], text="Other words.")
    status, _, errors = run("build", *WRITTEN, "--docs", docs, "--out", graph, "--resume")
    assert (status, errors.count("\n")) == (2, 1)
    assert f"(in {docs}/a.jsonl:3 and {docs}/b.jsonl:1)" in errors


def test_a_model_that_breaks_on_the_way_leaves_what_was_done_and_says_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(prompt: str) -> str:
        number = int((re.findall(r"House (\d+)", prompt) or ["99"])[-1])
        if number >= 6:
            raise ModelError("the model was closed; load it again")
        return " has; a roof>"

    docs, graph = write(tmp_path / "docs.jsonl", range(10)), tmp_path / "kg"
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(breaks))
    status, output, errors = run("build", *WRITTEN, "--docs", docs, "--out", graph)
    assert (status, output) == (1, "")
    assert errors.splitlines() == [
        "pytrace: stopped after 6 of 10 documents; they are stored, go on with --resume",
        "pytrace: the model was closed; load it again",
    ]
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel([" has; a roof>"]))
    assert json.loads(run("build", *WRITTEN, "--docs", docs, "--out", graph, "--resume", "--json")[1])["extracted"] == 4


OWN = {"text": "Bo sails the Tern.", "triples": [["Bo", "sails", "Tern"]]}


def test_own_labelled_texts_are_shown_and_the_graph_goes_on_with_them_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(["Tern; sails to; Oslo>"])
    monkeypatch.setattr(loading.Engine, "model", model)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "log 7.txt").write_text("The Tern sails to Oslo.")
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps(OWN) + "\n")
    build = ("build", *WRITTEN, "--docs", tmp_path / "docs", "--out", tmp_path / "kg")
    assert run(*build, "--demonstrations", own)[0] == 0
    assert "Text: Bo sails the Tern.\nTriples:\n<Bo; sails; Tern>" in model.prompts[0]
    with TripleStore.open(tmp_path / "kg", mode="read") as graph:
        assert [triple.text for triple in graph.triples()] == ["<Tern; sails to; Oslo>"]
    assert run(*build, "--demonstrations", own, "--resume")[0] == 0
    status, _, errors = run(*build, "--resume")
    assert (status, errors.count("\n")) == (2, 1)
    assert "prompt is" in errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the demonstrations"),
        ("", "holds no demonstration; give at least one line of "),
        (json.dumps({**OWN, "triples": [["Bo", "sails", "Gull"]]}), ":1: the tail 'Gull' is no span of the text"),
    ],
)
def test_a_wrong_file_of_labelled_texts_is_one_sentence(
    run: Run, tmp_path: Path, content: str | None, said: str
) -> None:
    own = tmp_path / "own.jsonl"
    if content is not None:
        own.write_text(content)
    docs = write(tmp_path / "docs.jsonl", range(2))
    status, output, errors = run("build", *WRITTEN, "--docs", docs, "--out", tmp_path / "kg", "--demonstrations", own)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert str(own) in errors
    assert said in errors
    assert not (tmp_path / "kg").exists()


def test_labelled_texts_that_nobody_would_read_are_refused(run: Run, tmp_path: Path) -> None:
    docs = write(tmp_path / "docs.jsonl", range(2))
    status, _, errors = run("build", "--docs", docs, "--out", tmp_path / "kg", "--demonstrations", docs)
    assert (status, errors.count("\n")) == (2, 1)
    assert "--set extraction=written" in errors


def test_a_graph_that_was_begun_with_titles_as_heads_goes_on_with_them(run: Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "log 7.txt").write_text("The Tern sails to Oslo.")
    build = ("build", "--docs", docs, "--out", tmp_path / "kg")
    assert run(*build, "--set", "heads=title")[0] == 0
    (docs / "log 8.txt").write_text("The Gull sails to Bergen.")
    assert json.loads(run(*build, "--resume", "--json")[1])["extracted"] == 1
    with TripleStore.open(tmp_path / "kg", mode="read") as graph:
        assert {triple.head for triple in graph.triples()} == {"log 7", "log 8"}
        assert "heads" not in graph.recipe.options
    status, _, errors = run(*build, "--resume", "--set", "heads=open")
    assert (status, errors.count("\n")) == (2, 1)
    assert "heads is '(not set)' there and 'open' here" in errors
    assert run("build", "--docs", docs, "--out", tmp_path / "new", "--resume")[0] == 0
    with TripleStore.open(tmp_path / "new", mode="read") as graph:
        assert {triple.head for triple in graph.triples()} == {"Tern", "Gull"}


SLOW = """
import os, re, time
from pathlib import Path
from pytrace.__main__ import main
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.models.scripted import HashEncoder, ScriptedModel

def answer(prompt):
    with Path(os.environ["TEST_LOG"]).open("a") as file:
        file.write(re.findall("House ([0-9]+)", prompt)[-1] + "\\n")
    time.sleep(float(os.environ["TEST_PAUSE"]))
    return " has; a roof>"

common.PLAIN_INTERVAL = 0.3
loading.Engine.model = ScriptedModel(answer)
loading.Engine.encoder = HashEncoder()
main()
"""


class Building:
    """Builds of one graph in processes of their own, with a scripted model that writes down what it is asked."""

    def __init__(self, folder: Path, count: int) -> None:
        self.docs = write(folder / "docs.jsonl", range(count))
        self.graph = folder / "kg"
        self._log = folder / "log"

    def asked(self) -> list[int]:
        if not self._log.exists():
            return []
        return [int(line) for line in re.findall(r"(\d+)\n", self._log.read_text(encoding="utf-8"))]

    def start(self, *options: str, pause: float, code: str = SLOW, **how: Any) -> subprocess.Popen[str]:
        arguments = [
            "kg",
            "build",
            "--docs",
            str(self.docs),
            "--out",
            str(self.graph),
            "--set",
            "extraction=written",
            *options,
        ]
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        environment = {**os.environ, "TEST_LOG": str(self._log), "TEST_PAUSE": str(pause), "COLUMNS": "120"}
        return subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, env=environment, **how)

    def wait(self, process: subprocess.Popen[str], asked: int) -> None:
        deadline = time.monotonic() + 120
        while len(self.asked()) < asked:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def stored(self) -> list[int]:
        with TripleStore.open(self.graph, mode="read") as graph:
            waiting = {document.id for document in graph.pending()}
            return [int(document.id[1:]) for document in graph.documents() if document.id not in waiting]


def test_a_build_killed_again_and_again_asks_at_most_one_document_a_kill_twice(tmp_path: Path) -> None:
    building, rng, kills = Building(tmp_path, 150), random.Random(3), 4
    for _ in range(kills):
        before = len(building.asked())
        process = building.start("--resume", pause=0.003)
        building.wait(process, before + rng.randint(1, 40))
        time.sleep(rng.uniform(0, 0.006))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert set(building.asked()) - set(building.stored()) <= {building.asked()[-1]}
    before, stored = len(building.asked()), building.stored()
    process = building.start("--resume", "--json", pause=0)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert json.loads(output)["extracted"] == 150 - len(stored)
    assert building.asked()[before:] == sorted(set(range(150)) - set(stored))
    assert building.stored() == list(range(150))
    assert len(building.asked()) <= 150 + kills


LOOK_ON = """
import sys
from pytrace.triples.graph import TripleStore
counts = set()
with TripleStore.open(sys.argv[1], mode="read") as graph:
    while not counts or max(counts) < int(sys.argv[2]):
        with graph.snapshot() as frozen:
            waiting = {document.id for document in frozen.pending()}
            done = [document for document in frozen.documents() if document.id not in waiting]
            assert [triple.text for triple in frozen.triples(done)] == [f"<{one.title}; has; a roof>" for one in done]
            counts.add(len(done))
print(len(counts))
"""


def test_others_read_while_a_build_writes_and_a_second_build_is_refused(tmp_path: Path) -> None:
    building = Building(tmp_path, 120)
    # Long enough for two more processes to start while it goes on.
    process = building.start(pause=0.05)
    building.wait(process, 2)
    reader = subprocess.Popen(
        [sys.executable, "-c", LOOK_ON, str(building.graph), "120"], stdout=subprocess.PIPE, text=True
    )
    second = building.start("--resume", pause=0)
    output, errors = second.communicate(timeout=60)
    assert (second.returncode, output) == (2, "")
    assert errors == (
        f"pytrace: process {process.pid} is writing to the knowledge graph in {building.graph}; "
        "wait until it ends, or stop it (it can be resumed)\n"
    )
    seen, _ = reader.communicate(timeout=120)
    process.communicate(timeout=60)
    assert (reader.returncode, process.returncode) == (0, 0)
    assert int(seen) > 3, "the reader never saw the graph grow"


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupted_build_says_what_is_stored(tmp_path: Path) -> None:
    building = Building(tmp_path, 100)
    process = building.start(pause=0.01)
    building.wait(process, 12)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    found = re.fullmatch(
        r"(?:pytrace: extracting triples: .*\n)*"
        r"pytrace: interrupted; stopped after (\d+) of 100 documents; they are stored, go on with --resume\n",
        errors,
    )
    assert found, errors
    assert len(building.stored()) == int(found[1]) >= 11


def test_a_pipe_gets_rate_tokens_and_time_left_on_stderr_and_the_result_alone_on_stdout(tmp_path: Path) -> None:
    process = Building(tmp_path, 80).start("--json", pause=0.02)
    output, errors = process.communicate(timeout=60)
    assert json.loads(output)["extracted"] == 80
    lines = errors.splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(
            r"pytrace: extracting triples: \d+ of 80, \d+\.\d\d a second, [\d.]+ tokens a second, about \d+ s left",
            line,
        ), line


def test_a_terminal_gets_a_bar_with_rate_and_time_left_on_stderr(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = Building(tmp_path, 150).start("--json", pause=0.02, stderr=theirs)
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # raised when the other end is closed
        while select.select([ours], [], [], 60)[0]:
            drawn += os.read(ours, 65536)
    os.close(ours)
    output, _ = process.communicate(timeout=60)
    assert json.loads(output)["extracted"] == 150
    assert re.search(rb"\d+/150.*\d+\.\d\d a second, [\d.]+ tokens a second, about \d+ s left", drawn)


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = common.Pace(0.0)
    pace.add(100.0, 1, 10)  # a slow start
    for second in range(1, 121):
        pace.add(100.0 + second, 1 + 2 * second, 10 + 30 * second)
    assert pace.words(220.0, 241, 3610, 7441) == "2.00 a second, 30 tokens a second, about 60 min left"
    assert pace.words(220.0, 241, 0, None) == "2.00 a second"
    assert common.Pace(0.0).words(5.0, 0, 0, 10) == "0.00 a second"
    assert common.Pace(0.0).words(100.0, 2, 250, 101) == "1.2 a minute, 2.5 tokens a second, about 82 min left"
    assert common.Pace(0.0).words(10.0, 5000, 0, 200_000) == "500 a second, about 6 min left"
    assert common.Pace(0.0).words(10.0, 1, 0, 9000) == "0.10 a second", "of one item no time left can be told"
