"""Our own interface over the wire: a real service with the tiny models, on the examples."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace import cli
from pytrace.cli import common
from pytrace.engine.corpus import Corpus
from pytrace.engine.loading import load
from pytrace.engine.questions import NOT_A_QUESTION
from pytrace.engine.running import DEFAULT_METHOD, NOT_FOUND
from pytrace.results import VERSION, Result
from pytrace.serve.settings import KEY_VARIABLE
from tests.scripted_methods import WAIT
from tests.serve.service_process import EXAMPLES, ServiceProcess, served

pytestmark = pytest.mark.models

QUESTION = "Who founded the company that owns the Marigold Tern?"
# Reads no documents, so that it takes a second.
SHORT = {"question": "Who is Tobias Rook?", "method": "standard"}
# Thinks for a minute.
LONG = {"question": QUESTION, "method": "cot-sc", "settings": ["samples=40"]}
# An answer is given however likely it is, so that these tests hold for any weights of the reader.
ANSWERED = {"question": QUESTION, "check": True, "min_confidence": 0.0}
STAGES = ["search", "evidence", "answer"]
KEYS = ("k" * 16, "second-key-of-the-test", "third-key-of-the-test")


@pytest.fixture(scope="module")
def index(examples_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the index that this module changes."""
    return shutil.copytree(examples_index, tmp_path_factory.mktemp("api") / "index")


@pytest.fixture(scope="module")
def service(index: Path) -> Iterator[ServiceProcess]:
    with served(index, log=index.parent / "log") as service:
        yield service


@pytest.fixture(scope="module")
def strict(examples_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Serve with keys, to be read alone, one question at a time, small bodies and 300 requests a minute."""
    options = ["--read-only", "--answering", "1", "--waiting", "0", "--max-body", "1", "--rate", "300", "--log-texts"]
    log = tmp_path_factory.mktemp("strict") / "log"
    with served(examples_index, *options, log=log, environment={KEY_VARIABLE: ", ".join(KEYS)}) as service:
        yield service


@pytest.fixture(scope="module")
def answered(service: ServiceProcess) -> dict[str, Any]:
    """Return the answer by the default method, checked."""
    result: dict[str, Any] = service.post("/v1/ask", ANSWERED)
    return result


def comparable(result: dict[str, Any]) -> Any:
    """Return what is the same of a result wherever it is made: without costs, and with few digits of numbers."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(each) for each in value]
        return round(value, 2) if isinstance(value, float) else value

    return rounded({key: value for key, value in result.items() if key not in ("seconds", "usage")})


def key(number: int = 0) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[number]}"}


def error_of(asked: tuple[int, Any, dict[str, str]], status: int, told: str) -> dict[str, str]:
    """Check that a request was refused, in a sentence; return the headers."""
    assert asked[0] == status, asked
    error = asked[1]["error"]
    assert re.search(told, error["message"]), error
    assert error["type"]
    assert error["request_id"] == asked[2]["x-request-id"]
    return asked[2]


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def metric(service: ServiceProcess, name: str, **options: Any) -> float:
    """Return a number of the metrics; 0 where it is not there."""
    text = service.get("/metrics", **options).decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def line_of(service: ServiceProcess, request: str) -> dict[str, Any]:
    """Return the log's line of a request, once it is there."""
    wait_until(lambda: any(line.get("request") == request for line in service.log()))
    return next(line for line in service.log() if line.get("request") == request)


def begin(
    service: ServiceProcess, body: dict[str, Any], request: str, headers: dict[str, str] | None = None
) -> socket.socket:
    """Send a question and return the connection, before any answer."""
    url = urlsplit(service.url)
    connection = socket.create_connection((url.hostname, url.port), 60)
    data = json.dumps(body).encode()
    lines = {"host": url.netloc, "content-length": str(len(data)), "x-request-id": request, **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    connection.sendall(f"POST /v1/ask HTTP/1.1\r\n{head}\r\n".encode() + data)
    return connection


def events(service: ServiceProcess, path: str, body: dict[str, Any], **headers: str) -> list[tuple[str, Any]]:
    """Return the events of a stream."""
    status, content, told = service.request("POST", path, body, headers=headers)
    assert status == 200
    assert told["content-type"].startswith("text/event-stream")
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", content.decode())
    return [(name, json.loads(data)) for name, data in found]


# ---- search


def test_a_search_finds_what_the_library_finds(service: ServiceProcess, examples_index: Path) -> None:
    found = service.post("/v1/search", {"question": QUESTION, "chains": 3, "passages": 7})
    corpus = Corpus.open(examples_index)
    with closing(load("tiny", threads=1)) as engine, closing(corpus):
        expected = engine.search(QUESTION, corpus, chains=3, passages=7)
    assert comparable(found) == comparable(msgspec.to_builtins(expected))
    assert msgspec.convert(found, Result).version == VERSION
    sources = found["evidence"]["sources"]
    scores = [each["relevance"] for each in sources[:7]]
    assert scores == pytest.approx([source.relevance for source in expected.evidence.sources[:7]], abs=1e-3)
    assert scores == sorted(scores, reverse=True)
    best, second = (chain["steps"] for chain in found["evidence"]["chains"][:2])
    assert [sources[step["source"]]["title"] for step in best] == ["Marigold Tern"]
    assert [sources[step["source"]]["title"] for step in second] == ["Marigold Tern", "Hobb and Lasker"]
    assert [step.get("after", 0) for step in second] == [0, 1]
    assert second[1]["link"]
    assert second[1]["location"]


def test_searches_of_many_are_each_their_own(service: ServiceProcess) -> None:
    questions = [
        f"Where is {name}?" for name in ("Quillhaven", "Skarra Isle", "Pellisk", "Thornwick", "the Salt Almanac")
    ]
    alone = [service.post("/v1/search", {"question": question}) for question in questions]
    with ThreadPoolExecutor(20) as pool:
        together = list(
            pool.map(lambda number: service.post("/v1/search", {"question": questions[number % 5]}), range(40))
        )
    for number, found in enumerate(together):
        expected = alone[number % 5]
        assert found["question"] == questions[number % 5]
        assert found["evidence"]["sources"][0]["id"] == expected["evidence"]["sources"][0]["id"]


# ---- answers


def test_an_answer_is_that_of_the_command(
    answered: dict[str, Any], examples_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ask", QUESTION, "--index", str(examples_index), "--certify", "--json", "--threads", "1"]
    arguments += ["--min-confidence", "0"]
    assert common.run(cli.program, arguments) == 0
    assert comparable(answered) == comparable(json.loads(capsys.readouterr().out))
    assert answered["method"] == DEFAULT_METHOD
    evidence = answered["evidence"]
    last = evidence["chains"][0]["steps"][-1]
    start, end = last["answer"]
    assert last["sentence"][start:end].casefold() == answered["answer"].casefold()
    assert last["location"]
    assert evidence["sources"][last["source"]]["read"]
    # These chains are made of sentences, which no graph could check.
    assert "certificates" not in answered["check"]
    assert [claim["evidence"][0]["text"] for claim in answered["check"]["claims"]]
    assert set(answered["seconds"]) >= {"search", "read"}


def test_stages_come_in_their_order_and_the_last_is_the_answer(
    service: ServiceProcess, answered: dict[str, Any]
) -> None:
    stages = events(service, "/v1/ask", {**ANSWERED, "stream": True})
    assert [name for name, _ in stages] == STAGES
    for _, so_far in stages:
        assert msgspec.convert(so_far, Result).question == QUESTION
    search, evidence, answer = (result for _, result in stages)
    assert comparable(answer) == comparable(answered)
    assert search["evidence"]["sources"]
    assert not search["answer"] + evidence["answer"]
    assert {source["id"] for source in evidence["evidence"]["sources"]} >= {
        source["id"] for source in answer["evidence"]["sources"] if source.get("read")
    }
    by_header = events(service, "/v1/ask", SHORT, accept="text/event-stream", **{"x-request-id": "staged"})
    assert [name for name, _ in by_header] == STAGES
    assert line_of(service, "staged")["status"] == 200


def test_what_fails_after_a_stage_is_the_last_event(service: ServiceProcess) -> None:
    stages = events(service, "/v1/ask", {**SHORT, "method": "cok", "stream": True})
    assert [name for name, _ in stages] == ["error"]  # before anything is searched
    assert "knowledge base" in stages[-1][1]["message"]
    # What is wrong with the request itself comes before any stage.
    error_of(service.request("POST", "/v1/ask", {**SHORT, "method": "nonsense", "stream": True}), 400, "nonsense")
    error_of(service.request("POST", "/v1/ask", {**SHORT, "settings": ["beams=many"], "stream": True}), 400, "beams")


def test_an_answer_below_the_confidence_asked_for_is_withheld(
    service: ServiceProcess, answered: dict[str, Any]
) -> None:
    result = service.post("/v1/ask", {"question": QUESTION, "min_confidence": 1.0})
    assert (result["answer"], result["abstained"], result["withheld"]) == ("", True, answered["answer"])
    assert result["reason"] == NOT_FOUND
    assert result["confidence"] == pytest.approx(answered["confidence"], abs=1e-3)
    closest = result["evidence"]["sources"]
    assert 0 < len(closest) <= 3
    assert all(source["text"] for source in closest)
    given = service.post("/v1/ask", {"question": QUESTION, "min_confidence": 0.0})
    assert (given["answer"], given["abstained"]) == (answered["answer"], False)


def test_a_greeting_is_said_to_be_no_question(service: ServiceProcess) -> None:
    result = service.post("/v1/ask", {"question": "Hello!"})
    assert (result["answer"], result["abstained"], result["reason"]) == ("", True, NOT_A_QUESTION)


def test_an_answer_without_documents_is_given_unchecked(service: ServiceProcess) -> None:
    # Reads no document, and is given none.
    result = service.post("/v1/ask", {**SHORT, "where": ["title=No such title"], "check": True})
    assert result["answer"]
    assert result["check"] == {}


def test_usage_of_answers_under_way_together_is_each_ones_own_and_adds_up(service: ServiceProcess) -> None:
    kinds = ("prompt", "generated", "evaluated")

    def spent() -> dict[str, float]:
        return {kind: metric(service, f'pytrace_model_tokens_total{{kind="{kind}"}}') for kind in kinds}

    def usage_of(answer: dict[str, Any]) -> dict[str, int]:
        return {kind: sum(stage[f"{kind}_tokens"] for stage in answer["usage"].values()) for kind in kinds}

    names = ("Tobias Rook", "Dessa Wrayburn", "Isaura Venn", "Grey Halloran")
    questions = [{"question": f"Who is {name}?", "method": "standard"} for name in names]
    alone = [service.post("/v1/ask", question) for question in questions]
    before = spent()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda number: service.post("/v1/ask", questions[number % 4]), range(8)))
    after = spent()
    for number, answer in enumerate(together):
        mine, expected = usage_of(answer), usage_of(alone[number % 4])
        assert mine["prompt"] == expected["prompt"]
        if answer["answer"] == alone[number % 4]["answer"]:  # near ties may fall otherwise in a batch of another shape
            assert mine["generated"] == expected["generated"]
    for kind in kinds:
        assert sum(usage_of(answer)[kind] for answer in together) == after[kind] - before[kind]


def test_a_client_that_leaves_frees_its_place(service: ServiceProcess) -> None:
    for number, stream in enumerate((False, True)):
        request = f"leaving-{number}"
        with begin(service, {**LONG, "stream": stream}, request):
            wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 1)
            time.sleep(0.3)
        assert line_of(service, request)["status"] == 499
        wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 0)
    assert service.post("/v1/ask", SHORT)["answer"]


def test_a_client_may_give_less_time(service: ServiceProcess) -> None:
    begun = time.monotonic()
    asked = service.request("POST", "/v1/ask", LONG, headers={"x-request-timeout": "0.5"})
    error_of(asked, 504, "took longer than it may")
    assert time.monotonic() - begun < 10
    wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 0)
    assert metric(service, 'pytrace_requests_total{route="/v1/ask",status="504"}') == 1
    for wrong in ("soon", "-1", "nan", "0"):
        asked = service.request("POST", "/v1/search", {"question": "x"}, headers={"x-request-timeout": wrong})
        error_of(asked, 400, "x-request-timeout .* is no number of seconds")


# ---- what is refused


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("GET", "/v1/nothing", None, 404, "there is nothing at '/v1/nothing'; /openapi.json lists"),
        ("GET", "/v1/search", None, 405, "'GET' is not what '/v1/search' is for"),
        ("POST", "/v1/search", b"", 400, "the body is empty; send JSON, as /openapi.json shows it for /v1/search"),
        ("POST", "/v1/search", b"{", 400, "the body cannot be used: .*; see /openapi.json"),
        ("POST", "/v1/search", b"\xff", 400, "the body cannot be used"),
        ("POST", "/v1/search", b'{"question": "\xff"}', 400, "the body is not valid UTF-8; send JSON in UTF-8"),
        ("POST", "/v1/search", {}, 400, "missing required field `question`"),
        ("POST", "/v1/search", {"question": ""}, 400, r"\$.question"),
        ("POST", "/v1/search", {"question": " \n"}, 400, "the question is empty; ask something"),
        ("POST", "/v1/search", {"question": "x" * 8193}, 400, r"length <= 8192.*\$.question"),
        ("POST", "/v1/search", {"question": "a\x00b"}, 400, "no text"),
        ("POST", "/v1/search", {"question": "x", "chains": 0}, 400, r"\$.chains"),
        ("POST", "/v1/search", {"question": "x", "k": 3}, 400, "unknown field `k`"),
        ("POST", "/v1/search", {"question": "x", "where": ["nonsense"]}, 400, "nonsense"),
        ("POST", "/v1/ask", {"question": "x", "method": "nonsense"}, 400, "nonsense"),
        ("POST", "/v1/ask", {"question": "x", "method": "gold"}, 400, "gold reads the supporting documents of a data set"),
        ("POST", "/v1/ask", {"question": "x", "method": "trace", "settings": ["demonstrations_file=/etc/passwd"]}, 400, "a file of the server"),
        ("POST", "/v1/ask", {"question": "x", "method": "standard", "settings": ["nonsense=1"]}, 400, "nonsense"),
        ("POST", "/v1/certify", {"responses": [{"question": "x", "text": "y"}]}, 400, "no graph to certify against; give facts"),
        ("POST", "/v1/certify", {"responses": []}, 400, r"\$.responses"),
        ("GET", "/v1/neighbours", None, 400, "the parameter passage is missing"),
        ("GET", "/v1/neighbours?passage=nothing", None, 404, "no document or passage 'nothing'"),
        ("GET", "/v1/neighbours?passage=skarra-wren&limit=0", None, 400, "limit is '0'; give a whole number from 1 to 200"),
        ("GET", "/v1/documents?limit=many", None, 400, "limit is 'many'"),
        ("GET", "/v1/documents?page=2", None, 400, "no parameter 'page' here"),
        ("GET", "/v1/documents/text?id=nothing", None, 404, "no document or passage 'nothing'"),
        ("GET", "/v1/documents/page?id=skarra-wren&page=1", None, 404, "no PDF file"),
        ("POST", "/v1/documents", {"documents": []}, 400, r"\$.documents"),
        ("POST", "/v1/documents", {"documents": [{"text": " "}]}, 400, r"documents\[0\] has no text"),
        ("POST", "/v1/documents?filename=tool.exe", b"x", 400, "none of the formats"),
        ("POST", "/v1/documents?filename=..", b"x", 400, "no name of a file"),
        ("POST", "/v1/documents?filename=a.pdf", b"x", 400, r"^a\.pdf: is named \.pdf, and is none"),
        ("POST", "/v1/documents?filename=a.md", b"", 400, "the body is empty; send the file's content"),
        ("DELETE", "/v1/documents", None, 400, "the parameter id is missing"),
        ("DELETE", "/v1/documents?id=nothing", None, 404, "no document 'nothing' in the index, and nothing was removed"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_in_a_sentence(
    service: ServiceProcess, method: str, path: str, body: object, status: int, told: str
) -> None:
    error_of(service.request(method, path, body), status, told)


def test_the_service_says_what_it_has(service: ServiceProcess) -> None:
    info = service.get("/v1/info")
    assert info["documents"] > 60
    assert info["passages"] >= info["documents"]
    assert {method["name"] for method in info["methods"]} >= {"trace", "rag", "cot"}
    assert "gold" not in {method["name"] for method in info["methods"]}
    assert not info["read_only"]
    assert ".pdf" in info["formats"]
    assert service.get("/health") == {"status": "ok"}
    assert service.get("/ready") == {"status": "ready"}
    assert service.request("HEAD", "/")[0] == 200
    assert b"<html" in service.request("GET", "/")[1]


def test_a_chain_of_thought_is_certified(service: ServiceProcess) -> None:
    response = {"question": "In which country is Ada Foah?", "answers": ["Ghana"]}
    texts = (
        "1. Ada Foah is in the country Ghana. So the answer is (Ghana).",
        "1. Ada Foah is in the country Togo. So the answer is (Togo).",
    )
    body = {"responses": [{**response, "text": text} for text in texts], "facts": [["Ada Foah", "country", "Ghana"]]}
    right, wrong = service.post("/v1/certify", body)["certificates"]
    assert right["answer_correct"]
    assert not wrong["answer_correct"]
    assert right["kind"] != wrong["kind"]


# ---- documents


def test_documents_are_listed_read_and_linked(service: ServiceProcess) -> None:
    everything = service.get("/v1/documents?limit=1000")
    assert everything["total"] == len(everything["documents"])
    some = service.get("/v1/documents?offset=5&limit=10")
    assert some["documents"] == everything["documents"][5:15]
    assert some["total"] == everything["total"]
    assert [each["id"] for each in service.get("/v1/documents?query=skarra%20wren")["documents"]] == ["skarra-wren"]
    (tern,) = [each for each in everything["documents"] if each["title"] == "Marigold Tern"]
    read = service.get(f"/v1/documents/text?id={quote(tern['id'])}")
    assert read["passages"] == len(read["text"]) == tern["passages"]
    text = (EXAMPLES / "marigold-tern.md").read_text(encoding="utf-8")
    assert all(sentence in " ".join(text.split()) for passage in read["text"] for sentence in passage["sentences"])
    passage = read["text"][0]["id"]
    assert service.get(f"/v1/documents/text?id={quote(passage)}")["id"] == tern["id"]
    linked = service.get(f"/v1/neighbours?passage={quote(passage)}&limit=5")["neighbours"]
    assert 0 < len(linked) <= 5
    assert "Hobb and Lasker" in {each["title"] for each in linked}
    strengths = [each["forth"] + each["back"] for each in linked]
    assert strengths == sorted(strengths, reverse=True)


def test_documents_that_are_added_are_found_filtered_and_removed(service: ServiceProcess) -> None:
    rows = [
        {"id": "ada-foah", "title": "Ada Foah", "text": "Ada Foah is a town in Ghana.", "metadata": {"year": 1998}},
        {"id": "keta", "title": "Keta", "text": "Keta is a town in Ghana, on a lagoon.", "metadata": {"year": 2004}},
    ]
    before = service.get("/v1/info")["documents"]
    changed = service.post("/v1/documents", {"documents": rows})
    assert (changed["added"], changed["encoded"], changed["ids"]) == (2, 2, ["ada-foah", "keta"])
    found = service.post("/v1/search", {"question": "Which towns are in Ghana?", "where": ["year>=2000"]})
    assert [each["id"] for each in found["evidence"]["sources"]] == ["keta"]
    found = service.post("/v1/search", {"question": "Which towns are in Ghana?", "passages": 2})
    # Chains may have other passages than the two that are ranked.
    ranked = {each["id"] for each in found["evidence"]["sources"] if "relevance" in each}
    assert ranked == {"ada-foah", "keta"}
    file = b"# Sogakope\n\nSogakope is a town on the Volta. It has a bridge.\n"
    changed = service.post("/v1/documents?filename=sogakope.md", file)
    assert changed["added"] == 1
    assert service.get("/v1/info")["documents"] == before + 3
    found = service.post("/v1/search", {"question": "Which town on the Volta has a bridge?", "passages": 1})
    assert found["evidence"]["sources"][0]["document"] == changed["ids"][0]
    removed = service.request("DELETE", f"/v1/documents?id=ada-foah&id=keta&id={changed['ids'][0]}")
    assert removed[1]["removed"] == 3
    assert service.get("/v1/info")["documents"] == before


def test_many_change_the_index_while_others_search_it(service: ServiceProcess) -> None:
    before = service.get("/v1/info")["documents"]

    def change(number: int) -> int:
        row = {"id": f"town-{number}", "title": f"Town {number}", "text": f"Town {number} has {number} wells."}
        changed = service.post("/v1/documents", {"documents": [row]})
        assert (changed["added"], changed["ids"]) == (1, [f"town-{number}"])
        assert service.get(f"/v1/documents/text?id=town-{number}")["title"] == f"Town {number}"
        return int(service.request("DELETE", f"/v1/documents?id=town-{number}")[1]["removed"])

    def search(number: int) -> str:
        del number
        found = service.post("/v1/search", {"question": QUESTION})
        evidence = found["evidence"]
        return str(evidence["sources"][evidence["chains"][0]["steps"][-1]["source"]]["title"])

    with ThreadPoolExecutor(12) as pool:
        changing = [pool.submit(change, number) for number in range(8)]
        searching = [pool.submit(search, number) for number in range(24)]
        assert [future.result(120) for future in changing] == [1] * 8
        assert {future.result(120) for future in searching} == {"Marigold Tern"}
    assert service.get("/v1/info")["documents"] == before


def test_what_the_command_adds_is_served_within_seconds(service: ServiceProcess, index: Path, tmp_path: Path) -> None:
    (tmp_path / "akosombo.txt").write_text(
        "Akosombo is a town with a dam. The dam was opened in 1965.", encoding="utf-8"
    )
    reloads = metric(service, "pytrace_index_reloads")
    assert common.run(cli.program, ["index", "add", str(index), "--docs", str(tmp_path), "--threads", "1"]) == 0
    wait_until(lambda: service.get("/v1/documents?query=akosombo")["total"] == 1)
    found = service.post("/v1/search", {"question": "Which town has a dam?", "passages": 1})
    assert found["evidence"]["sources"][0]["title"] == "akosombo"
    assert metric(service, "pytrace_index_reloads") == reloads + 1
    assert metric(service, "pytrace_index_passages") == service.get("/v1/info")["passages"]


# ---- limits and keys


def test_a_key_is_needed_where_keys_are_set(strict: ServiceProcess) -> None:
    for headers in ({}, {"authorization": f"Bearer {KEYS[0]}x"}, {"authorization": f"Basic {KEYS[0]}"}):
        told = error_of(strict.request("GET", "/v1/info", headers=headers), 401, "a key is needed")
        assert told["www-authenticate"] == "Bearer"
    for number in range(2):
        assert strict.get("/v1/info", headers=key(number))["read_only"]
    assert strict.get("/health") == {"status": "ok"}
    assert strict.request("GET", "/metrics")[0] == 401


def test_an_index_that_is_read_only_is_not_changed(strict: ServiceProcess) -> None:
    told = "started with --read-only; change the index with 'pytrace index'"
    row = {"documents": [{"text": "x"}]}
    error_of(strict.request("POST", "/v1/documents", row, headers=key()), 400, told)
    error_of(strict.request("POST", "/v1/documents?filename=a.md", b"x", headers=key()), 400, told)
    error_of(strict.request("DELETE", "/v1/documents?id=skarra-wren", headers=key()), 400, told)


def test_a_body_that_is_too_large_is_refused(strict: ServiceProcess) -> None:
    large = b"x" * ((1 << 20) + 1)
    pieces = (large[start : start + 65_536] for start in range(0, len(large), 65_536))
    url = urlsplit(strict.url)
    for body, told in (
        (large, "the body has 1,048,577 bytes, and the service takes 1,048,576"),
        (pieces, "the body has more than 1,048,576 bytes"),  # chunked, so that nobody knows before
    ):
        with closing(http.client.HTTPConnection(str(url.hostname), url.port, timeout=30)) as connection:
            connection.request("POST", "/v1/search", body, headers=key(), encode_chunked=body is pieces)
            response = connection.getresponse()
            assert response.status == 413
            assert told in json.loads(response.read())["error"]["message"]


def test_more_questions_than_fit_are_told_to_come_again(strict: ServiceProcess) -> None:
    with begin(strict, LONG, "first", key()):
        wait_until(lambda: metric(strict, 'pytrace_waiting{work="answers"}', headers=key(1)) == 1)
        told = error_of(
            strict.request("POST", "/v1/ask", SHORT, headers=key()), 429, "questions are running or waiting"
        )
        assert 1 <= int(told["retry-after"]) <= 60
        found = strict.post("/v1/search", {"question": QUESTION}, headers=key())  # which needs no such place
        assert found["evidence"]["sources"]
    assert line_of(strict, "first")["status"] == 499
    wait_until(lambda: strict.request("POST", "/v1/ask", SHORT, headers=key())[0] == 200)


def test_each_key_has_its_own_rate(strict: ServiceProcess) -> None:
    asked = [strict.request("GET", "/v1/models", headers=key(2)) for _ in range(320)]
    refused = [each for each in asked if each[0] != 200]
    assert 1 <= len(refused) <= 20
    told = error_of(refused[0], 429, r"300 requests a minute are allowed to each client; try again in \d s")
    assert 1 <= int(told["retry-after"]) <= 2
    assert strict.request("GET", "/v1/models", headers=key(1))[0] == 200


# ---- what is told


def test_requests_have_ids_and_a_line_in_the_log_without_their_words(
    service: ServiceProcess, strict: ServiceProcess
) -> None:
    for name, given in ((None, {}), ("mine.1", {"x-request-id": "mine.1"}), (None, {"x-request-id": "not mine"})):
        told = service.request("POST", "/v1/search", {"question": "Where is Zanzibar?"}, headers=given)[2]
        assert told["x-request-id"] == name or (name is None and re.fullmatch("[0-9a-f]{32}", told["x-request-id"]))
    line = line_of(service, "mine.1")
    assert (line["event"], line["method"], line["route"], line["status"]) == ("request", "POST", "/v1/search", 200)
    assert line["ms"] > 0
    assert line["sent"] > line["received"] > 0
    log = service.log_path.read_text(encoding="utf-8")
    assert "Zanzibar" not in log
    assert "Marigold" not in log
    assert all(each.startswith(("{", "pytrace: serving")) for each in log.splitlines()), log
    strict.post("/v1/search", {"question": "Where is Zanzibar?"}, headers={**key(1), "x-request-id": "told"})
    assert line_of(strict, "told")["text"] == "Where is Zanzibar?"
    assert line_of(strict, "told")["client"] == "key-2"
    assert not any(each in strict.log_path.read_text(encoding="utf-8") for each in KEYS)


def test_metrics_count_what_was_done(service: ServiceProcess) -> None:
    name = 'pytrace_requests_total{route="/v1/search",status="200"}'
    seconds = 'pytrace_request_seconds_count{route="/v1/search"}'
    batches = 'pytrace_batch_items_sum{work="search"}'
    before = [metric(service, each) for each in (name, seconds, batches)]
    for _ in range(3):
        service.post("/v1/search", {"question": QUESTION})
    service.request("GET", "/v1/no/such/place")
    assert [metric(service, each) for each in (name, seconds, batches)] == [count + 3 for count in before]
    assert metric(service, "pytrace_requests_under_way") == 1  # the one that asks for them
    text = service.get("/metrics").decode()
    assert "/no/such" not in text
    assert set(re.findall(r'route="([^"]+)"', text)) <= {
        "/", "/explorer", "/health", "/mcp", "/metrics", "/openapi.json", "/ready", "other",
        *(path for path in service.get("/openapi.json")["paths"]),
    }  # fmt: skip


# ---- how it starts and ends


def test_a_signal_lets_what_is_under_way_end(examples_index: Path, tmp_path: Path) -> None:
    with served(examples_index, log=tmp_path / "log") as service, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(service.post, "/v1/ask", SHORT)
        wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 1)
        service.process.send_signal(signal.SIGTERM)
        assert asking.result(60)["answer"]
        with pytest.raises(urllib.error.URLError):
            service.request("GET", "/health")
        assert service.process.wait(30) == 0
        assert all(line.startswith(("{", "pytrace: serving")) for line in service.log_path.read_text().splitlines())


def test_a_second_signal_ends_it_at_once_and_the_time_to_end_is_limited(examples_index: Path, tmp_path: Path) -> None:
    with (
        served(examples_index, "--grace", "1", log=tmp_path / "log") as service,
        begin(service, {**LONG, "stream": True}, "long") as connection,
    ):
        wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 1)
        begun = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(20) == 0
        assert time.monotonic() - begun < 15
        connection.settimeout(5)
        while connection.recv(65_536):
            pass
        assert line_of(service, "long")["status"] == 503
        assert not [line for line in service.log() if "Exception" in line["event"]]
    with served(examples_index, log=tmp_path / "log") as service, begin(service, LONG, "long"):
        wait_until(lambda: metric(service, 'pytrace_waiting{work="answers"}') == 1)
        service.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert service.process.poll() is None
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(5) in (-signal.SIGINT, 128 + signal.SIGINT)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--port", "{taken}"], r"127\.0\.0\.1:\d+ cannot be served at \(.*in use\); choose another --port or --host"),
        (["--index", "nowhere"], "there is no index at nowhere; .*'pytrace index build nowhere --docs PATH'"),
        (["--host", "0.0.0.0"], f"0.0.0.0 can be reached from other machines; set {KEY_VARIABLE}"),
        (["--host", "no.such.host.invalid"], "can be reached from other machines|cannot be served at"),
        (["--llm", "no-such.gguf"], "no-such.gguf"),
        (["--method", "nonsense"], "nonsense"),
        (["--facts", "nowhere.kb"], "nowhere.kb"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(
    examples_index: Path,
    options: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = str(taken.getsockname()[1])
        arguments = ["serve", "--index", str(examples_index), "--port", "0", "--threads", "1"]
        arguments += [option.replace("{taken}", taken_port) for option in options]
        assert common.run(cli.program, arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert re.search(told, lines[0]), lines


def test_a_key_that_could_be_guessed_is_refused(
    examples_index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert common.run(cli.program, ["serve", "--index", str(examples_index), "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert "6 characters" in told
    assert "secret" not in told.replace("a key", "")
    assert os.environ[KEY_VARIABLE] == "secret"
