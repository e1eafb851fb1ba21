"""Replicas on Ray Serve: what one service does, two do; one that is killed loses what it had, and nothing is left behind."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytrace.cli.commands import click_command
from pytrace.cli.common import run
from pytrace.cli.serve import Serve
from tests.scripted_methods import WAIT
from tests.serve.service_process import ServiceProcess, build_index, served

QUESTION = "Who founded the company that owns the Marigold Tern?"
SEARCH = {"question": QUESTION, "chains": 2, "passages": 5}
ASK = {"question": QUESTION, "passages": 2, "method": "standard"}  # little to read
CLIENTS = 6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, tiny_models: object) -> Iterator[ServiceProcess]:
    """Serve the examples with two replicas; Ray takes its time to start."""
    del tiny_models
    for package in ("ray", "fastapi", "grpc_reflection"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(
                f"{package} is needed for Ray Serve, and is not installed: pip install 'pytrace-rag[serve-ray]'"
            )
    folder = tmp_path_factory.mktemp("replicas")
    index = build_index(folder / "index")
    with served(index, "--engine", "ray", "--replicas", "2", "--grace", "120", log=folder / "log") as running:
        yield running


def parents() -> dict[int, tuple[int, str]]:
    """Return the parent and the command line of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"^PPid:\t(\d+)", (path / "status").read_text(), re.MULTILINE)[1])  # type: ignore[index]
            found[int(path.name)] = (parent, (path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (OSError, UnicodeDecodeError):
            continue
    return found


def descendants(process: int) -> dict[int, str]:
    """Return the processes that one has started, and those that these have."""
    everyone = parents()
    found: dict[int, str] = {}
    while more := {
        pid: line for pid, (parent, line) in everyone.items() if parent in {process, *found} and pid not in found
    }:
        found.update(more)
    return found


def replicas(service: ServiceProcess) -> list[int]:
    """Return the processes of the replicas."""
    return sorted(pid for pid, line in descendants(service.process.pid).items() if line.startswith("ray::ServeReplica"))


def until(true: Callable[[], bool]) -> bool:
    """Wait until something is true, WAIT seconds at most; say whether it is."""
    end = time.monotonic() + WAIT
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def by_replica(service: ServiceProcess, path: str, body: object, count: int = 2) -> dict[str, Any]:
    """Ask until so many replicas have answered; return the answer of each."""
    answers: dict[str, Any] = {}

    def ask() -> bool:
        status, answer, headers = service.request("POST", path, body)
        assert status == 200, (status, answer)
        answers[headers["x-replica"]] = answer
        return len(answers) == count

    assert until(ask)
    return answers


def connected(service: ServiceProcess) -> http.client.HTTPConnection:
    """Return a connection of one's own."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    return http.client.HTTPConnection(host, int(port), timeout=60)


@pytest.mark.models
def test_both_replicas_find_the_same(service: ServiceProcess) -> None:
    one, other = by_replica(service, "/v1/search", SEARCH).values()
    assert one["evidence"] == other["evidence"]
    assert len([source for source in one["evidence"]["sources"] if "relevance" in source]) == 5
    status, answer, headers = service.request("POST", "/v1/search", {"question": ""}, headers={"x-request-id": "mine"})
    assert (status, headers["x-request-id"], answer["error"]["request_id"]) == (400, "mine", "mine")
    connection = connected(service)
    connection.putrequest("POST", "/v1/search")
    connection.putheader("content-length", str(33 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.models
def test_answers_come_whole_and_by_stages(service: ServiceProcess) -> None:
    whole = service.post("/v1/ask", ASK)
    status, stream, headers = service.request("POST", "/v1/ask", {**ASK, "stream": True})
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    events = dict(re.findall(r"event: (\w+)\ndata: (.*)\n", stream.decode()))
    assert list(events) == ["search", "evidence", "answer"]
    assert json.loads(events["answer"])["answer"] == whole["answer"]


@pytest.mark.models
def test_who_leaves_does_not_keep_a_replica_busy(service: ServiceProcess) -> None:
    connection = connected(service)
    body = json.dumps({"question": QUESTION, "method": "cot-sc", "stream": True})
    connection.request("POST", "/v1/ask", body, {"x-request-id": "leaving", "content-type": "application/json"})
    response = connection.getresponse()
    assert response.readline() == b"event: search\n"
    response.close()
    connection.close()

    def lines() -> list[dict[str, Any]]:
        return [line for line in service.log() if line.get("request") == "leaving"]

    assert until(lambda: bool(lines()))
    assert [line["status"] for line in lines()] == [499]


class Sent(NamedTuple):
    """A request of the load: when it was sent and answered, and the status (0: no answer)."""

    begun: float
    ended: float
    status: int


@pytest.mark.models
def test_a_killed_replica_loses_what_it_had_and_is_replaced(
    service: ServiceProcess, record_property: Callable[[str, object], None]
) -> None:
    victim, survivor = replicas(service)
    sent: list[Sent] = []
    struck, enough = threading.Event(), threading.Event()

    def search() -> None:
        while not enough.is_set():
            begun = time.monotonic()
            try:
                status = service.request("POST", "/v1/search", SEARCH)[0]
            except OSError:
                status = 0
            sent.append(Sent(begun, time.monotonic(), status))
            if struck.is_set():
                enough.wait(0.25)  # in which the new replica has the processor

    clients = [threading.Thread(target=search) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        assert until(lambda: len(sent) >= 60)
        before = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        struck.set()
        assert until(lambda: len([pid for pid in replicas(service) if pid != victim]) == 2)
        time.sleep(1.0)
    finally:
        enough.set()
        for client in clients:
            client.join()
    lost = [each for each in sent if each.status != 200]
    flying = [each for each in sent if each.begun <= killed and each.ended >= before]
    after = [each for each in sent if each.begun > killed]
    for name, value in (("sent", len(sent)), ("under way", len(flying)), ("lost", len(lost)), ("after", len(after))):
        record_property(name, value)
        print(name, value)
    assert len(flying) <= CLIENTS
    assert set(lost) <= set(flying)
    assert len(after) > CLIENTS
    assert survivor in replicas(service)
    by_replica(service, "/v1/search", SEARCH)


@pytest.mark.models
def test_a_document_added_is_found_through_both(service: ServiceProcess) -> None:
    text = "Zebulon Quark founded the observatory of Nether Wallop. It has a copper dome."
    service.post("/v1/documents", {"documents": [{"id": "quark", "title": "Zebulon Quark", "text": text}]})
    added = time.monotonic()
    asked = {"question": "Who founded the observatory of Nether Wallop?", "chains": 1, "passages": 1}

    def everywhere() -> bool:
        answers = by_replica(service, "/v1/search", asked).values()
        return all(answer["evidence"]["sources"][0]["document"] == "quark" for answer in answers)

    assert until(everywhere)
    print("found through both after", round(time.monotonic() - added, 1), "s")


@pytest.mark.models
def test_the_end_waits_for_what_is_under_way_and_leaves_nothing(service: ServiceProcess) -> None:
    started = descendants(service.process.pid)
    assert len(started) > 4
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(service.request("POST", "/v1/ask", ASK)[0]))
    asking.start()
    time.sleep(0.3)
    assert service.stop(timeout=150) == 0
    asking.join()
    assert answers == [200]
    assert until(lambda: not started.keys() & {pid for pid, (_, line) in parents().items() if line})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--replicas", "3"), "--replicas 3 is of --engine ray"),
        (("--ray-address", "auto"), "--ray-address auto is of --engine ray"),
        (("--engine", "ray", "--ray-address", "auto", "--port", "0"), "--port 0 would be another port on each machine"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(click_command(Serve), ["--index", str(tmp_path), *options]) == 2
    assert words in capsys.readouterr().err
