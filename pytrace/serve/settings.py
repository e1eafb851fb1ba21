"""What a service may be told of its limits, its keys and what it tells of itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pytrace.errors import InputError

KEY_VARIABLE = "PYTRACE_API_KEY"
# A key of fewer characters could be guessed by trying.
_SHORTEST_KEY = 16
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a service; those without a default are told by who starts it."""

    host: str = "127.0.0.1"
    port: int = 8765
    # Keys that clients may give; none: everybody who reaches the address may ask.
    keys: tuple[str, ...] = field(default=(), repr=False)
    without_key: bool = False
    read_only: bool = False
    # Bytes of a request's body, at most.
    max_body: int = 32 << 20
    # Bytes of all bodies that are held in memory at once, at most; 64 kB of each do not count, so that small ones are never kept out.
    bodies: int = 128 << 20
    # Seconds that a request may take, and that a client has to send one or to take what is sent.
    timeout: float = 120.0
    patience: float = 20.0
    # Questions that are answered with the language model at once, and that wait for their turn.
    answering: int = 16
    waiting: int = 64
    # Connections at once.
    connections: int = 512
    # Requests a minute by a key, or an address where there are no keys; 0: as many as there are.
    rate: int = 0
    # Seconds that requests under way are given when the service is stopped.
    grace: float = 30.0
    log_texts: bool = False

    def __post_init__(self) -> None:
        """Refuse an address that others reach without a key, and keys that could be guessed."""
        if short := [key for key in self.keys if len(key) < _SHORTEST_KEY]:
            raise InputError(
                f"a key in {KEY_VARIABLE} has {len(short[0])} characters; give each at least {_SHORTEST_KEY}, such as "
                "'openssl rand -hex 24' prints"
            )
        if not self.loopback and not self.keys and not self.without_key:
            raise InputError(
                f"{self.host} can be reached from other machines; set {KEY_VARIABLE} to a key that clients must give, or allow "
                "everybody with --no-key"
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _LOOPBACK


def keys_of(variable: str = KEY_VARIABLE) -> tuple[str, ...]:
    """Return the keys in an environment variable, several of which are parted by commas."""
    return tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
