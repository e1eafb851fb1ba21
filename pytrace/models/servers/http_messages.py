"""What requests and answers hold: JSON under limits, streams of events, excerpts for messages, times to wait."""

from __future__ import annotations

import contextlib
import email.utils
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from pytrace.errors import ServerError
from pytrace.storage.foreign_json import decode_json


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for, given in seconds or as a date."""
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def excerpt(data: bytes) -> str:
    """Return the beginning of an error's body, its message if it is JSON of the usual shapes, on one line."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        body = decode_json(data, object)
        for key in ("error", "message", "detail"):
            if isinstance(body, dict) and key in body:
                body = body[key]
        text = body if isinstance(body, str) else msgspec.json.encode(body).decode("utf-8", "replace")
    text = " ".join(text.split())
    return f"{text[:200]}…" if len(text) > 200 else text or "nothing"


def encoded(body: Mapping[str, Any]) -> bytes:
    """Write a request's JSON."""
    # Half of a character, as broken files have it, cannot be sent (and msgspec would refuse it); the engine in this process
    # replaces it too.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def decoded(data: bytes, where: str, kind: str = "model server") -> Any:
    """Read an answer's JSON; one that is none is told of with its beginning."""
    try:
        return decode_json(data, object)
    except ValueError as error:
        raise ServerError(
            f"{where}: the answer is no JSON ({error}): {excerpt(data[:400])}; is this a {kind}?"
        ) from error


async def events(pieces: AsyncIterator[bytes], where: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of server-sent events, up to its end or `[DONE]`."""
    # The beginning of a line, which is looked at once it is whole.
    begun = bytearray()
    async for piece in pieces:
        first, *rest = piece.split(b"\n")
        begun += first
        if not rest:
            continue
        lines = [bytes(begun), *rest]
        begun = bytearray(lines.pop())
        for line in lines:
            name, _, value = line.strip().partition(b":")
            if name == b"error":
                raise ServerError(
                    f"{where}: the server broke off with an error: {excerpt(value.strip())}; look at its log"
                )
            if name != b"data":
                continue
            value = value.strip()
            if value == b"[DONE]":
                return
            event = decoded(value, f"{where}, streamed")
            if not isinstance(event, dict) or event.get("error"):
                raise ServerError(f"{where}: the server broke off with an error: {excerpt(value)}; look at its log")
            yield event
