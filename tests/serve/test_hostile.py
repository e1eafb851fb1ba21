"""What a real service does with clients that mean harm; the attack of `make attack ATTACK=service` has ten thousand more."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
import uvicorn
from uvicorn.server import ServerState

from pytrace.errors import InputError
from pytrace.methods.catalog import parse_method
from pytrace.serve import messages
from pytrace.serve.protocol import guarded_protocol
from pytrace.serve.routes import RouteRow, decode_body
from pytrace.serve.service import check_settings
from pytrace.serve.stored_documents import safe_name
from tests.attack import service as attack
from tests.serve import hostile_requests
from tests.serve.hostile_requests import CANARY, FAMILIES, POSTED, Hostile, fault_of, parse, posted, send
from tests.serve.service_process import ServiceProcess, build_index, served

HEAD = "Host: localhost\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    index = build_index(folder / "index")
    with served(
        index, "--request-timeout", "5", "--answering", "2", "--max-body", "1", log=folder / "log",
        program="tests.serve.impatient_service", environment={"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as running:  # fmt: skip
        yield running


@pytest.fixture
def address(service: ServiceProcess) -> tuple[str, int]:
    return "127.0.0.1", int(service.url.rpartition(":")[2])


def one(address: tuple[str, int], *pieces: bytes) -> hostile_requests.Reply:
    (reply,) = send(address, Hostile("", pieces))
    assert fault_of(reply) is None
    return reply


def answer_on(client: socket.socket) -> hostile_requests.Reply:
    received = b""
    while not (replies := parse(received)) or len(replies[0].body) < int(replies[0].headers["content-length"]):
        piece = client.recv(8192)
        assert piece, received
        received += piece
    return replies[0]


# ---- malformed HTTP


@pytest.mark.models
def test_broken_chunks_after_an_answer_leave_no_traceback(address: tuple[str, int], service: ServiceProcess) -> None:
    head = f"POST /nothing HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(address, timeout=5) as client:
        client.sendall(head)
        assert answer_on(client).status == 404
        client.sendall(b"zz\r\n")
        while client.recv(4096):
            pass
    assert "Traceback" not in service.log_path.read_text()


@pytest.mark.models
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000, 431),
        (b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/search HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}", 403),
    ],
)  # fmt: skip
def test_what_is_no_request_is_answered_in_the_shape_of_all_errors(
    address: tuple[str, int], request_bytes: bytes, status: int
) -> None:
    reply = one(address, request_bytes)
    assert reply.status == status
    assert json.loads(reply.body)["error"]["message"]


@pytest.mark.models
def test_a_client_that_sends_a_body_which_is_too_large_sees_why(address: tuple[str, int]) -> None:
    body = b" " * (3 << 20)
    head = f"POST /v1/search HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(head + body)  # all of it, before anything is read
        assert answer_on(client).status == 413
        # The rest was thrown away, and the connection can be used.
        client.sendall(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode())
        assert answer_on(client).status == 200


# ---- slow clients, all at once


@pytest.mark.models
def test_slow_clients_are_cut_off_and_keep_nobody_out(address: tuple[str, int], service: ServiceProcess) -> None:
    over = threading.Event()
    slow: list[str] = []

    def watch() -> None:
        while not over.wait(0.1):
            begun = time.monotonic()
            if service.request("GET", "/health", timeout=20)[0] != 200 or time.monotonic() - begun > 5:
                slow.append(f"{time.monotonic() - begun:.1f} s")

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with ThreadPoolExecutor(3) as clients:
            attacks = [attack.slow_head, attack.slow_body, attack.endless_body]
            assert [each.result() for each in [clients.submit(each, address, service) for each in attacks]] == [
                None
            ] * 3
        assert attack.slow_many(address, service) is None
    finally:
        over.set()
        watching.join()
    assert not slow


@pytest.mark.models
def test_clients_that_take_nothing_are_cut_off(address: tuple[str, int], service: ServiceProcess) -> None:
    assert attack.takes_nothing(address, service) is None


# ---- a few requests of every family


@pytest.mark.models
def test_every_family_of_hostile_requests_is_answered_in_plain_sentences(
    address: tuple[str, int], service: ServiceProcess
) -> None:
    random = Random("every family")
    made = [family(random) for family, _ in FAMILIES for _ in range(6)]
    with ThreadPoolExecutor(4) as clients:
        replies = [*clients.map(lambda hostile: (hostile.name, send(address, hostile)), made)]
    assert not [(name, fault) for name, several in replies for reply in several if (fault := fault_of(reply))]
    assert service.process.poll() is None
    log = service.log_path.read_text()
    assert CANARY not in log
    assert "Traceback" not in log
    assert not [line for line in service.log() if line["event"] == "failed"]


@pytest.mark.models
def test_files_of_an_index_that_was_replaced_are_closed(service: ServiceProcess) -> None:
    for number in range(4):
        service.post("/v1/documents", {"documents": [{"id": "replaced", "text": f"{number} is new"}]})
        service.post("/v1/search", {"question": "What is new?"})
    end = time.monotonic() + 10
    while gone := [name for name in attack.open_files(service) if name.endswith("(deleted)")]:
        assert time.monotonic() < end, gone
        time.sleep(0.2)


@pytest.mark.models
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["triple_demonstrations_file=/etc/passwd"], "names a file of the server"),
        ([" triple-demonstrations-file =/etc/passwd"], "names a file of the server"),
        (["beams=1000000"], "at most; ask for less"),
        (["beams=-1"], "cannot be used"),
        (["none=1"], "is not name=value"),
    ],
)
def test_settings_of_a_request_have_bounds(service: ServiceProcess, settings: list[str], says: str) -> None:
    body = {"question": CANARY, "method": "trace", "settings": settings, "stream": True}
    status, answer, _ = service.request("POST", "/v1/ask", body)
    assert status == 400  # before any stage
    assert says in answer["error"]["message"]
    named = {"question": CANARY, "method": f"trace:{settings[0]}"}
    assert service.request("POST", "/v1/ask", named)[0] == 400


# ---- without a service


def test_who_sends_no_http_and_has_left_is_no_fault_of_the_request_before() -> None:
    async def answer() -> None:
        config = uvicorn.Config(lambda *_: None, log_config=None)
        config.load()
        kind = guarded_protocol(patience=5, connections=8)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = socket.create_connection(listening.getsockname())
            accepted, _ = listening.accept()
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: kind(config, ServerState(), {}), accepted
            )
            client.close()
            # The system takes the bytes, and says that nobody is there when their end is to be sent.
            protocol.send_400_response("no HTTP")
            protocol.transport.abort()

    asyncio.run(answer())


def test_settings_are_refused_beyond_their_bounds_alone() -> None:
    check_settings(parse_method("cot-sc"), ["samples=64", "temperature=0.9", "seed=1000000"])
    with pytest.raises(InputError, match="samples is 65, and requests may set it to 64"):
        check_settings(parse_method("cot-sc"), ["samples=65"])


@pytest.mark.parametrize("row", POSTED, ids=lambda row: row.path)
def test_bodies_of_every_route_are_decoded_or_refused(row: RouteRow) -> None:
    random = Random(row.path)
    assert row.body is not None
    valid = msgspec.json.encode(row.example)
    decode_body(valid, row.body)
    bodies = [
        b"".join(family(random).pieces[1:])
        for family in (hostile_requests.bombs, hostile_requests.mutated)
        for _ in range(60)
    ]
    for depth in (10, 1000, 1_000_000):
        bodies += [
            b"[" * depth,
            b'{"a":' * depth,
            valid[:-1] + b', "x": ' + b"[" * depth,
            valid[:-1] + b', "x": ' + b"[" * depth + b"]" * depth + b"}",
        ]
    for body in bodies:
        # Whatever else is raised is a fault.
        with suppress(InputError):
            decode_body(body, row.body)


def test_a_body_of_millions_of_values_is_refused_before_it_is_decoded() -> None:
    body = b'{"documents":[' + b'{"text":"a"},' * 1_000_000 + b'{"text":"a"}]}'
    begun = time.process_time()
    with pytest.raises(InputError, match=r"some 2,000,00\d objects.*send it in parts"):
        decode_body(body, messages.AddRequest)
    assert time.process_time() - begun < 1
    many = messages.AddRequest(documents=[messages.GivenDocument(text="a, b", id=f"{n}") for n in range(10_000)])
    assert len(decode_body(msgspec.json.encode(many), messages.AddRequest).documents) == 10_000


@pytest.mark.parametrize(
    "name", ["../../x.txt", "..\\x.txt", "a\x00b.txt", "/etc/x.txt", "a/" * 1000 + "x.txt", "\u202ex.txt", "\x1b[2J.txt", ".x.txt", "a\r\nb.txt"]
)  # fmt: skip
def test_names_of_files_stay_in_their_folder(name: str) -> None:
    safe = safe_name(name)
    assert "/" not in safe
    assert "\\" not in safe
    assert safe.isprintable()
    assert not safe.startswith(".")
    assert len(safe.encode()) <= 255


@pytest.mark.parametrize("name", ["..", ".", "...", "/", "", " ", "\x00"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        safe_name(name)


def test_the_client_of_these_tests_finds_faults() -> None:
    """An answer with a fault must not pass."""
    told = [
        b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 X\r\ncontent-length: 33\r\n\r\nTraceback (most recent call last)",
        b"HTTP/1.1 404 X\r\ncontent-length: 16\r\n\r\nin /root/x/a.py:",
        b"no HTTP\r\n\r\n",
    ]
    for received in told:
        (reply,) = parse(received)
        assert fault_of(reply)
    assert fault_of(parse(posted("/", b"").pieces[0])[0])
