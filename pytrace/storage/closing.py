"""What is closed when a with block ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something that is open until `close` is called, or the with block that uses it ends."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held open."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
