"""Hostile requests, made by a seed, and a client of raw sockets that sends them and judges what comes back."""

from __future__ import annotations

import gzip
import io
import json
import re
import socket
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from pytrace.serve.app import ROWS
from pytrace.serve.routes import RouteRow

CANARY = "zanzibarquokka"
"""A word of every question and document that is sent, which no log may have."""

# Statuses of answers that a hostile request may have. 502 is of a model's server, 500 of a fault.
_ALLOWED = {200, 202, 400, 401, 403, 404, 405, 406, 408, 409, 411, 413, 415, 421, 422, 429, 431, 499, 501, 503, 504}
_WAITING = 0.15  # seconds that a request which the server waits for the rest of is left open
_LONGEST = 30.0  # seconds that an answer may take


class Hostile(NamedTuple):
    """What is sent, piece by piece; `leaves` says that the client does not wait for an answer."""

    name: str
    pieces: tuple[bytes, ...]
    leaves: bool = False
    most_answers: int = 1


class Reply(NamedTuple):
    """An answer: its status, its headers (names in lower case) and its body; -1 where it is no HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes


# ---- the client


def send(address: tuple[str, int], hostile: Hostile, *, longest: float = _LONGEST) -> list[Reply]:
    """Send it and return the answers, as far as they came whole."""
    received = b""
    with socket.create_connection(address, timeout=5) as client:
        try:
            for piece in hostile.pieces:
                client.sendall(piece)
        except OSError:
            pass  # closed, perhaps with an answer
        if hostile.leaves:
            return []
        end = time.monotonic() + longest
        client.settimeout(_WAITING)
        quiet = 0
        while time.monotonic() < end:
            try:
                piece = client.recv(1 << 16)
            except TimeoutError:
                quiet += 1
                # What is not whole is not answered; what is, is in time.
                if received or not _whole(hostile) or quiet * _WAITING > longest:
                    break
                continue
            except OSError:
                break
            if not piece:
                break
            received += piece
            if len(replies := parse(received)) >= hostile.most_answers and _ended(replies[-1]):
                break
    return parse(received)


def _whole(hostile: Hostile) -> bool:
    """Whether a request is one that is answered: a head with all of its body."""
    head, blank, body = b"".join(hostile.pieces).partition(b"\r\n\r\n")
    if not blank or b"chunked" in head.lower():
        return False
    length = re.search(rb"(?i)\r\ncontent-length: *(\d{1,9})\r?\n?", head + b"\r\n")
    return length is None or len(body) >= int(length[1])


def _ended(reply: Reply) -> bool:
    """Whether all of an answer has come, of one that says its length; others end with their connection."""
    return reply.status < 0 or len(reply.body) >= int(reply.headers.get("content-length", len(reply.body) + 1))


def parse(received: bytes) -> list[Reply]:
    """Take answers apart; the last may lack its end."""
    replies: list[Reply] = []
    while received:
        head, blank, rest = received.partition(b"\r\n\r\n")
        if not blank:
            break
        lines = head.decode("latin-1").split("\r\n")
        first = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?[^\r\n]*", lines[0])
        if first is None:
            replies.append(Reply(-1, {}, received))
            break
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        status = int(first[1])
        if status < 200:
            received = rest
            continue
        if "content-length" in headers:
            length = int(headers["content-length"])
            body, received = rest[:length], rest[length:]
            if len(body) < length and received:
                break
        else:
            body, received = rest, b""
        replies.append(Reply(status, headers, body))
    return replies


def fault_of(reply: Reply) -> str | None:
    """Say what is wrong with an answer, or None."""
    if reply.status not in _ALLOWED:
        return f"status {reply.status}: {reply.body[:300]!r}"
    if b"Traceback" in reply.body or b'File "' in reply.body:
        return f"a traceback: {reply.body[:300]!r}"
    if re.search(rb"(?:/home/|/root/|/tmp/|/work/|site-packages)", reply.body) and reply.status != 200:
        return f"a path of the server: {reply.body[:300]!r}"
    if reply.status >= 400 and reply.headers.get("content-type", "").startswith("application/json") and reply.body:
        length = int(reply.headers.get("content-length", len(reply.body)))
        if len(reply.body) < length:
            return None  # cut off as this client left
        try:
            error = json.loads(reply.body)["error"]
            message = error["message"] if isinstance(error, dict) else ""
        except (ValueError, KeyError, TypeError):
            return f"an error in another shape: {reply.body[:300]!r}"
        if b'"jsonrpc"' in reply.body:  # as the protocol's library says it
            return None
        if not isinstance(message, str) or len(message) < 8 or len(message) > 2000 or "\n" in message:
            return f"an error without a plain sentence: {reply.body[:300]!r}"
    return None


# ---- requests


def head(method: str, path: str, *lines: str | bytes, host: str = "localhost") -> bytes:
    """Return the head of a request after which the connection is closed."""
    all_lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *lines, "", ""]
    return b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in all_lines)


def posted(path: str, body: bytes, *lines: str | bytes, name: str = "", method: str = "POST") -> Hostile:
    """Return a whole request with a body."""
    kind = () if any(b"ontent-type" in _bytes(line).lower() for line in lines) else ("Content-Type: application/json",)
    return Hostile(
        name or f"{method} {path}", (head(method, path, *kind, f"Content-Length: {len(body)}", *lines), body)
    )


def _bytes(line: str | bytes) -> bytes:
    return line if isinstance(line, bytes) else line.encode()


POSTED = tuple(row for row in ROWS if row.body is not None)
"""The routes that take JSON."""
# Answers of the language model take a second; most of what is sent must not.
_SLOW = {"/v1/ask", "/v1/chat/completions"}
_PATHS = tuple(dict.fromkeys(row.path for row in ROWS))


def example(row: RouteRow, random: Random) -> dict[str, Any]:
    """Return a valid body of a route, with the canary in its text."""
    body: dict[str, Any] = json.loads(
        json.dumps(row.example).replace("Who founded", f"Who of {CANARY} founded").replace("Ada Foah is a town", CANARY)
    )
    if "documents" in body and isinstance(body["documents"][0], dict):
        body["documents"][0]["id"] = f"hostile-{random.randrange(8)}"
    return body


def mostly_quick(random: Random) -> RouteRow:
    """Choose a route that takes JSON, seldom one that asks the language model."""
    row = random.choice(POSTED)
    while row.path in _SLOW and random.random() < 0.9:
        row = random.choice(POSTED)
    return row


# ---- families: malformed HTTP


def request_lines(random: Random) -> Hostile:
    """Lines that are no request, or one of another protocol."""
    line = random.choice(
        [
            b"GET\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET  /health  HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"get /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /health HTTP/1.0\r\n\r\n",
            b"GET /health HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(200),
            b"\r\n" * 50 + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x00" * 100 + b"\r\n\r\n",
            random.randbytes(random.randrange(1, 3000)) + b"\r\n\r\n",
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"A" * random.randrange(1, 30_000) + b" /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n",
            b"GET /health\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
    )
    return Hostile("request line", (line,))


def headers(random: Random) -> Hostile:
    """Headers that are broken, many or large."""
    choices: list[list[str] | list[bytes]] = [
        ["X:" + "a" * 40_000],
        [f"X-{number}: {number}" for number in range(5000)],
        ["No colon"],
        [": no name"],
        [" folded"],
        ["Na me: x"],
        [b"X: \x00"],
        [b"X: \xff\xfe"],
        [b"X: a\rb"],
        ["Host: another"],
        ["Host: localhost"],
        ["X-Request-ID: " + random.choice(["a b", "é", "a" * 5000, '"}\x7f{"', "../x", "a%0d%0aSet-Cookie:x"])],
        [b"X-Request-ID: a\x1b[2J\x07"],
        ["X-Request-Timeout: " + random.choice(["-1", "nan", "inf", "1e999", "0", "9" * 5000, "١٢", "0.0001"])],
        ["Authorization: " + random.choice(["Bearer", "Basic x", "Bearer " + "a" * 20_000, "Bearer \u00e9"])],
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"],
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"],
        ["Accept: " + "text/event-stream," * 1000],
        ["X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "Forwarded: for=1.2.3.4"],
        ["Range: bytes=0-" + "9" * 30],
        ["Cookie: " + "a=b; " * 3000],
        ["TE: trailers", "Trailer: x"],
        ["Expect: " + random.choice(["100-continue", "200-ok", "x" * 1000])],
    ]
    lines = random.choice(choices)
    return Hostile("headers", (head(random.choice(["GET", "HEAD"]), random.choice(_PATHS), *lines),))


def lengths(random: Random) -> Hostile:
    """Bodies that are not as long as is said, or said in two ways."""
    path = random.choice(POSTED).path
    body = b'{"question": "' + CANARY.encode() + b'"}'
    lines = random.choice(
        [
            ["Content-Length: -1"],
            ["Content-Length: +5"],
            ["Content-Length: 5, 6"],
            ["Content-Length: 5", "Content-Length: 6"],
            ["Content-Length: 1e3"],
            ["Content-Length: 0x10"],
            ["Content-Length: ٥"],
            ["Content-Length: " + "9" * random.choice([9, 18, 19, 20, 21, 5000])],
            ["Content-Length: " + str(len(body) + 100)],
            ["Content-Length: 3"],
            ["Content-Length:"],
            [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"],
            ["Transfer-Encoding: chunked", "Content-Length: 0"],
            ["Transfer-Encoding: gzip, chunked"],
            ["Transfer-Encoding: chunked, chunked"],
            ["Transfer-Encoding: identity"],
            ["Transfer-Encoding: \x0bchunked"],
            ["Transfer-Encoding : chunked"],
        ]
    )
    return Hostile("length", (head("POST", path, *lines), body))


def chunks(random: Random) -> Hostile:
    """Chunks that are broken, endless or very small."""
    path = random.choice([*(row.path for row in POSTED), "/nothing", "/health"])
    pieces = random.choice(
        [
            (b"zz\r\n",),
            (b"-1\r\n",),
            (b"5\r\nhello",),
            (b"5\r\nhello\r\nzz\r\n",),
            (b"ffffffffffffffff\r\nx",),
            (b"f" * 1000 + b"\r\n",),
            (b"1;" + b"a" * 40_000 + b"\r\nx\r\n",),
            (b"1\r\n{\r\n" * 5000,),
            (b"0\r\n" + b"X: y\r\n" * 3000 + b"\r\n",),
            (b"0\r\n" + b"X" * 50_000,),
            (b"5\nhello\n0\n\n",),
            (b"100000\r\n" + b"[" * 0x100000 + b"\r\n", b"0\r\n\r\n"),
            (b"5\r\nhello\r\n", b"0\r\n\r\nGET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            (b"0\r\n\r\n",),
        ]
    )
    return Hostile("chunks", (head("POST", path, "Transfer-Encoding: chunked"), *pieces))


def paths(random: Random) -> Hostile:
    """Paths that lead elsewhere, or are none."""
    parts = [
        "..",
        "%2e%2e",
        "..%2f",
        "%5c..",
        "%00",
        "%ff",
        "%",
        "%zz",
        "%u0041",
        ".",
        "",
        "%0d%0aX:y",
        "a" * 300,
        "~",
        ";",
        "%f0%9f%98%80",
    ]
    begin = random.choice(
        ["/explorer/", "/explorer/fonts/", "/", "//", "/v1/", "/mcp/", "/explorer/vendor/", "/v1/documents/"]
    )
    end = random.choice(
        ["etc/passwd", "index.html", "explorer.js", "guard.py", "", "app.py", "__init__.py", "%2fetc%2fpasswd"]
    )
    path = begin + "/".join(random.choices(parts, k=random.randrange(8))) + "/" * random.randrange(2) + end
    return Hostile("path", (head(random.choice(["GET", "GET", "HEAD", "POST"]), path),))


def parameters(random: Random) -> Hostile:
    """Parameters of addresses out of their range, of another type, many, foreign and in other digits."""
    row = random.choice([row for row in ROWS if row.parameters])
    given: list[str] = []
    for parameter in row.parameters:
        numbers = [
            str(parameter.least - 1),
            str(parameter.most + 1),
            "1e3",
            "-0",
            "٣",
            "1" * 5000,
            "",
            " 1",
            "0x1",
            "1.0",
        ]
        texts = [
            "",
            "%00",
            "%ff%fe",
            "../../etc/passwd",
            CANARY,
            "%ed%a0%80",
            "a" * 20_000,
            "%0d%0a",
            "*?[",
            "%F0%9F%98%80",
        ]
        values = numbers if parameter.kind is int else texts
        count = random.choice([0, 1, 1, 1, 2, 1500 if parameter.repeated else 3])
        given += [f"{parameter.name}={random.choice(values)}" for _ in range(count)]
    given += random.choice([[], [], ["unknown=1"], ["&&&=;"], ["a" * 1000]])
    return Hostile("parameters", (head(row.method, f"{row.path}?{'&'.join(given)}"[:60_000]),))


def methods(random: Random) -> Hostile:
    """Every path with every method."""
    method = random.choice(
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "DEBUG", "PURGE", "get"]
    )
    path = random.choice([*_PATHS, "/", "/explorer/index.html", "/mcp", "/openapi.json", "/favicon.ico", "*"])
    return Hostile("method", (head(method, path, "Content-Length: 0"),))


def pipelined(random: Random) -> Hostile:
    """Several requests at once, the last of which may be broken or not whole."""
    one = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    count = random.randrange(2, 40)
    ask = b"".join(
        one % random.choice([b"/health", b"/v1/info", b"/nothing", b"/explorer/index.html"]) for _ in range(count)
    )
    last = random.choice(
        [
            b"",
            b"GET /",
            b"\x00\x01\r\n\r\n",
            b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        ]
    )
    return Hostile("pipelined", (ask + last,), most_answers=count)


def expecting(random: Random) -> Hostile:
    """Requests that wait to be told to go on."""
    row = mostly_quick(random)
    body = json.dumps(example(row, random)).encode()
    length = random.choice([len(body), 10**8, 0])
    lines = ["Expect: 100-continue", "Content-Type: application/json", f"Content-Length: {length}"]
    return Hostile("expect", (head("POST", row.path, *lines), *((body,) if random.random() < 0.7 else ())))


def foreign_pages(random: Random) -> Hostile:
    """What a page of another site makes a browser send, or one whose name was led here."""
    row = mostly_quick(random)
    body = json.dumps(example(row, random)).encode()
    if random.random() < 0.5:
        lines = random.choice(
            [
                ["Origin: https://evil.example"],
                ["Origin: null"],
                ["Sec-Fetch-Site: cross-site"],
                ["Origin: http://localhost:1"],
            ]
        )
        return posted(row.path, body, *lines, name="foreign page")
    host = random.choice(
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[::1", "a" * 5000, "localhost:99999999"]
    )
    lines = ["Content-Type: text/plain", f"Content-Length: {len(body)}"]
    return Hostile("foreign host", (head("POST", row.path, *lines, host=host), body))


# ---- families: JSON


def bombs(random: Random) -> Hostile:
    """JSON that is deep, large, of other encodings, or of numbers that no machine has."""
    row = mostly_quick(random)
    body = example(row, random)
    key = random.choice([*body])
    depth = int(10 ** random.uniform(1, 6))
    plain = json.dumps(body).encode()
    values = [
        b"[" * depth,
        b"[" * depth + b"]" * depth,
        b'{"a":' * min(depth, 200_000),
        b"1e999",
        b"-1e999",
        b"1" * random.choice([20, 400, 4301, 100_000]),
        b"0." + b"1" * 100_000,
        b"-" * 1000,
        b'"' + b"a" * random.choice([9000, 250_000, 2_000_000]) + b'"',
        b'"\\ud800"',
        b'"\\udfff\\ud800x"',
        b'"\\u0000"',
        b'"\x00"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"' + "\u202e\u0301\U000e0041".encode() * 500 + b'"',
        b"[" + b'"a",' * 20_000 + b'"a"]',
        b"[" + b"[],".join([b""] * 50_000) + b"0]",
        b"[" + b'{"text":"a"},' * 20_000 + b'{"text":"a"}]',
        b"NaN",
        b"Infinity",
        b"null",
        b"true",
    ]
    value = random.choice(values)
    makers: list[Callable[[], bytes]] = [
        lambda: _with(plain, key, value),
        lambda: _with(plain, key, value),
        lambda: _with(plain, key, value),
        lambda: value,
        lambda: plain[:-1] + b', "unknown": ' + value + b"}",
        lambda: b"{" + b", ".join([plain[1:-1]] * random.choice([2, 100])) + b"}",
        lambda: b"\xef\xbb\xbf" + plain,
        lambda: plain.decode().encode(random.choice(["utf-16", "utf-32", "utf-16-be"])),
        lambda: plain + random.choice([b"}", b"\x00", b"{}", b" " * 100_000]),
        lambda: b"",
        lambda: b" " * random.choice([1, 1000, 1_000_000]),
    ]
    made = random.choice(makers)()
    if random.random() < 0.1:
        return posted(row.path, gzip.compress(made), "Content-Encoding: gzip", name="JSON, compressed")
    return posted(row.path, made, name=f"JSON for {row.path}")


def _with(plain: bytes, key: str, value: bytes) -> bytes:
    """Return an object with another value of a key, which need be no JSON."""
    marked = json.loads(plain)
    marked[key] = "@value@"
    return json.dumps(marked).encode().replace(b'"@value@"', value)


def wrong_types(random: Random) -> Hostile:
    """A body with one field, at any depth, of another type or out of its bounds."""
    row = mostly_quick(random)
    body = example(row, random)
    assert row.body is not None
    wrong = random.choice([*wrong_fields(row.body)])
    wrong(body, random)
    return posted(row.path, json.dumps(body).encode(), name=f"type for {row.path}")


Change = Callable[[dict[str, Any], Random], None]


def wrong_fields(kind: type[msgspec.Struct], *, within: Sequence[str] = ()) -> Iterator[Change]:
    """Yield a function for each field of a struct, also in structs of lists, that sets it to what it may not be."""
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    for field in described.fields:
        values = [*_wrong(field.type)]

        def change(body: dict[str, Any], random: Random, name: str = field.encode_name, values: Any = values) -> None:
            target: Any = body
            for step in within:
                target = target.setdefault(step, [{}])
                target = target[0] if isinstance(target, list) and target else target
            if isinstance(target, dict):
                target[name] = random.choice(values)

        yield change
        inner = field.type.item_type if isinstance(field.type, msgspec.inspect.ListType) else field.type
        if isinstance(inner, msgspec.inspect.StructType):
            yield from wrong_fields(inner.cls, within=(*within, field.encode_name))


_ANY: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -0.0, 0.5, "", " ", "x", "1", "\x00", "\ud800", [], {}, [None], [[]],
    [{}], {"": {}}, [0] * 3000, {"a": "b"}, [["a", "b", "c"]], "a" * 9000, ["a" * 9000], [["a", "b"]], [""],
)  # fmt: skip


def _wrong(kind: msgspec.inspect.Type) -> Iterator[Any]:
    yield from _ANY
    if isinstance(kind, msgspec.inspect.IntType):
        yield from (bound + off for bound in (kind.ge, kind.le) if bound is not None for off in (-1, 1))
    if isinstance(kind, msgspec.inspect.StrType) and kind.max_length is not None:
        yield "a" * (kind.max_length + 1)
    if isinstance(kind, msgspec.inspect.ListType) and kind.max_length is not None:
        yield ["a"] * (kind.max_length + 1)


def mutated(random: Random) -> Hostile:
    """A valid body with bits flipped, parts cut out, or spliced with another route's."""
    row = mostly_quick(random)
    content = bytearray(json.dumps(example(row, random)).encode())
    for _ in range(random.randrange(1, 5)):
        place = random.randrange(len(content) or 1)
        match random.randrange(5):
            case 0:
                content[place : place + 1] = bytes([(content[place] if content else 0) ^ 1 << random.randrange(8)])
            case 1:
                del content[place:]
            case 2:
                del content[place : place + random.randrange(1, 20)]
            case 3:
                other = json.dumps(example(random.choice(POSTED), random)).encode()
                content[place:place] = other[random.randrange(len(other)) :]
            case _:
                content[place:place] = random.randbytes(random.randrange(1, 6))
    return posted(row.path, bytes(content), name=f"mutated for {row.path}")


def leaving(random: Random) -> Hostile:
    """A client that leaves in the middle of its request, or before the answer."""
    row = random.choice(POSTED)
    whole = b"".join(posted(row.path, json.dumps(example(row, random)).encode()).pieces)
    cut = random.choice([len(whole), random.randrange(1, len(whole))])
    return Hostile(f"leaving {row.path}", (whole[:cut],), leaves=True)


# ---- families: what valid requests may carry


def settings(random: Random) -> Hostile:
    """Methods with settings that name files of the server, cost the world, or make no sense."""
    number = random.choice(["1000000", "999999999999", "-1", "1e9", "nan", "inf", "0", "١"])
    setting = random.choice(
        [
            "triple_demonstrations_file=/etc/passwd",
            " triple-demonstrations-file = /etc/shadow",
            f"beams={number}",
            f"length={number}",
            f"samples={number}",
            f"candidates={number}",
            f"temperature={number}",
            f"max_tokens={number}",
            f"steps={number}",
            f"document_tokens={number}",
            f"demonstrations={number}",
            "unit=" + "a" * 400,
            "=",
            "beams",
            "beams=",
            "__class__=x",
            f"question={CANARY}",
        ]
    )
    method = random.choice(
        [
            "trace",
            "cot-sc",
            "ks-llm",
            "ircot",
            "scope-coe",
            "rag",
            "verify-and-edit",
            "gold",
            "cok",
            "",
            "no",
            "\x00",
            "../x",
        ]
    )
    body = {"question": f"Who of {CANARY} was it?", "method": method, "settings": [setting]}
    if random.random() < 0.3:
        body = {"question": f"Who of {CANARY} was it?", "method": f"{method}:{setting}"}
    if random.random() < 0.2:
        chat = {"model": f"pytrace/{method}:{setting}", "messages": [{"role": "user", "content": CANARY}]}
        return posted("/v1/chat/completions", json.dumps(chat).encode(), name="settings")
    return posted(
        "/v1/ask", json.dumps(body).encode(), "X-Request-Timeout: 2", name=f"settings {method}:{setting[:60]}"
    )


def filters(random: Random) -> Hostile:
    """Filters with patterns that take for ever, and with what is none."""
    where = random.choice(
        [
            "title~(a+)+$", "title=" + "*" * 400, "title=" + "*a" * 200, "a" * 500, "=", ">=", "date>=" + "9" * 400, "title!=[",
            "title=(?R)", "date>=2020-99-99", "x=%00", "x=\x1b[2J", "title~" + "(" * 400, f"{CANARY}>=1", "date<1e999", "__class__=a",
        ]
    )  # fmt: skip
    body = {"question": f"Who of {CANARY}?", "where": [where] * random.choice([1, 16, 17])}
    return posted("/v1/search", json.dumps(body).encode(), name=f"filter {where[:40]}")


def files(random: Random) -> Hostile:
    """Files that are broken or bombs, with names that lead elsewhere."""
    makers: list[Callable[[], bytes]] = [
        _bomb, lambda: b"%PDF-1.7\n" + random.randbytes(3000), lambda: b"", lambda: b"\x00" * 5000,
        lambda: b"PK\x03\x04" + random.randbytes(500), lambda: b"{" * 10_000, lambda: CANARY.encode() * 10,
    ]  # fmt: skip
    content = random.choice(makers)()
    suffix = random.choice(
        [".docx", ".pdf", ".txt", ".jsonl", ".csv", ".html", ".eml", ".zip", ".exe", "", ".xlsx", ".md", ".gz"]
    )
    name = random.choice(
        [
            "../../etc/cron.d/x", "..\\..\\x", "/etc/passwd", "a\x00b", "a" * 100_000, "..", "...", ".", "CON", "NUL.txt", "a\r\nX: y",
            "\u202egnp", "\ud83d\ude00", "a/b/c", "%2e%2e%2fx", ".hidden", "-rf", "a" * 300, "\x1b[2J", "index.manifest", "manifest", " ",
        ]
    )  # fmt: skip
    path = f"/v1/documents?filename={quote(name.encode('utf-16', 'surrogatepass').decode('utf-16') + suffix)}"
    return posted(path[:30_000], content, "Content-Type: application/octet-stream", name=f"file {name[:20]!r}{suffix}")


def _bomb() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr("word/document.xml", b"<w>" + b"A" * (20 << 20))
    return stream.getvalue()


def tools(random: Random) -> Hostile:
    """Messages to the assistants' tools that are no messages of theirs."""
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": random.choice([1, "x", None, -1, 1e308, [], "a" * 1000]),
        "method": random.choice(
            ["tools/call", "tools/list", "initialize", "resources/read", "x", "", "notifications/cancelled"]
        ),
        "params": random.choice(
            [
                {
                    "name": "search_evidence",
                    "arguments": {"question": random.choice([CANARY, "", "\ud800", "a" * 9000, 3, None])},
                },
                {"name": "search_evidence", "arguments": {"question": CANARY, "chains": 10**9}},
                {
                    "name": "ask",
                    "arguments": {"question": CANARY, "method": "trace:triple_demonstrations_file=/etc/passwd"},
                },
                {"name": "neighbours", "arguments": {"passage": "../../etc/passwd"}},
                {"name": "none", "arguments": {}},
                {"uri": "passage://../../etc/passwd"},
                {"uri": "file:///etc/passwd"},
                {},
                [],
                None,
                "x",
            ]
        ),
    }
    accept = random.choice(["application/json, text/event-stream", "application/json", "*/*", "x"])
    message: Any = random.choice([call, call, call, [call] * 50, [], 3, "x"])
    return posted("/mcp", json.dumps(message).encode(), f"Accept: {accept}", "MCP-Protocol-Version: " + random.choice(["2025-06-18", "x"]),
                  name="tools", method=random.choice(["POST", "POST", "POST", "DELETE"]))  # fmt: skip


def valid(random: Random) -> Hostile:
    """A request that is answered, so that hostile ones stand beside others."""
    row = mostly_quick(random)
    return posted(row.path, json.dumps(example(row, random)).encode(), name=f"valid {row.path}")


FAMILIES: tuple[tuple[Callable[[Random], Hostile], int], ...] = (
    (request_lines, 8), (headers, 10), (lengths, 8), (chunks, 8), (paths, 10), (parameters, 10), (methods, 8), (pipelined, 3),
    (expecting, 4), (foreign_pages, 6), (bombs, 16), (wrong_types, 16), (mutated, 14), (leaving, 4), (settings, 2), (filters, 4),
    (files, 3), (tools, 6), (valid, 3),
)  # fmt: skip


def requests(random: Random, count: int) -> Iterator[Hostile]:
    """Yield so many hostile requests, of all families by their weights."""
    families, weights = zip(*FAMILIES, strict=True)
    for family in random.choices(families, weights, k=count):
        yield family(random)
