"""Who is let in: whom a request comes from, by which page, how often, and how much it may bring."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import OrderedDict

from starlette.types import Scope

from pytrace.serve.settings import ServeSettings

# Answered to everybody: they hold nothing of anybody's.
_PUBLIC = frozenset({"/", "/health", "/ready", "/favicon.ico"})
_PUBLIC_FILES = "/explorer/"
# Bytes of a body that are taken however much is held of others', so that large ones do not keep small ones out.
_SMALL = 64 << 10
# Digits of a number of bytes: 18 of them are more than any disk has.
_MOST_DIGITS = 18
# Clients whose pace is remembered.
_MOST_CLIENTS = 10_000


class Refusal(Exception):
    """A request is not done: a status, a sentence, and headers."""

    def __init__(self, status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers or {}


class Admission:
    """Lets requests in, and counts what their bodies hold."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._keys = [hashlib.sha256(key.encode()).digest() for key in settings.keys]
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._held = 0  # bytes of bodies

    def admit(self, scope: Scope, headers: dict[str, str]) -> str:
        """Let a request in and return who asks, or raise `Refusal`."""
        path = scope["path"]
        self._check_origin(scope, headers)
        if path in _PUBLIC or path.startswith(_PUBLIC_FILES):
            return ""
        client = self._client(scope, headers)
        self._check_rate(client)
        self._check_length(headers)
        return client

    def _check_length(self, headers: dict[str, str]) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # Servers that stand before this one may believe the other of the two, and see another request in the rest.
            raise Refusal(
                400,
                "both content-length and transfer-encoding are given; send one of them",
                "invalid_request",
                {"connection": "close"},
            )
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            raise Refusal(400, f"the content-length {length[:40]!a} is no number of bytes; send one", "invalid_request")
        if len(length) > _MOST_DIGITS:
            raise self.too_large(f"{length[:40]} bytes")
        if int(length) > self._settings.max_body:
            raise self.too_large(f"{int(length):,} bytes")

    def too_large(self, size: str) -> Refusal:
        """Return the refusal of a body.

        The connection stays open for a while, and what comes is thrown away: a client that is sending would not see the answer
        to a connection that is closed.
        """
        return Refusal(
            413,
            f"the body has {size}, and the service takes {self._settings.max_body:,}; send it in parts, or start the service "
            "with a larger --max-body",
            "too_large",
        )

    def hold(self, size: int, held: int) -> None:
        """Count bytes of a body, of which the service has `held` already; refuse them where all bodies have too many."""
        if held + size > _SMALL and self._held + size > self._settings.bodies:
            raise Refusal(
                429,
                f"the requests under way hold {self._held:,} bytes, and {self._settings.bodies:,} are held at once; "
                "try again in a few seconds",
                "busy",
                {"retry-after": "5"},
            )
        self._held += size

    def release(self, size: int) -> None:
        """Count bytes as gone."""
        self._held -= size

    def _client(self, scope: Scope, headers: dict[str, str]) -> str:
        if not self._keys:
            return str((scope.get("client") or ("local", 0))[0])
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(key.strip().encode("latin-1", "replace")).digest()
        # All keys are compared, so that time tells nothing of which one it is nearest to.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise Refusal(
                401,
                "a key is needed; send the header 'Authorization: Bearer KEY' with one that the service was started with",
                "unauthorized",
                {"www-authenticate": "Bearer"},
            )
        return f"key-{matches.index(True) + 1}"

    def _check_origin(self, scope: Scope, headers: dict[str, str]) -> None:
        """Refuse what a page of another site makes a browser send: no key would stand in its way."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if re.search(r":\d+\Z", host) else host
        # A name of somebody else's may lead a browser to this machine.
        ours = name.strip("[]").lower() in {"127.0.0.1", "localhost", "::1", self._settings.host}
        if self._settings.loopback and not self._keys and not ours:
            raise Refusal(403, f"the host {host[:100]!a} is not this service; ask for localhost", "forbidden")
        origin = headers.get("origin", "")
        foreign = origin and origin.partition("://")[2] != host
        if scope["method"] not in {"GET", "HEAD"} and (foreign or headers.get("sec-fetch-site") == "cross-site"):
            raise Refusal(403, "pages of other sites may not use this service; ask it from its own page", "forbidden")

    def _check_rate(self, client: str) -> None:
        """Take a request out of a client's bucket, which fills with `rate` a minute up to as many."""
        rate = self._settings.rate
        if not rate:
            return
        now = time.monotonic()
        level, last = self._buckets.pop(client, (float(rate), now))
        level = min(float(rate), level + (now - last) * rate / 60)
        self._buckets[client] = (max(level - 1, 0.0) if level >= 1 else level, now)
        while len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if level < 1:
            wait = int((1 - level) * 60 / rate) + 1
            raise Refusal(
                429,
                f"{rate} requests a minute are allowed to each client; try again in {wait} s",
                "rate_limited",
                {"retry-after": str(wait)},
            )
