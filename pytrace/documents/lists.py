"""How deep a block stands in nested lists, told from where items begin and end."""

from __future__ import annotations


class ListDepth:
    """Counts open items. The text that an item begins with is one deeper than what the list stands in, all else of the item two."""

    def __init__(self) -> None:
        self._begun: list[bool] = []

    def open(self, *, begun: bool = False) -> None:
        """Begin an item; `begun` for the definition of a term, which the term's text introduces."""
        self._begun.append(begun)

    def close(self) -> None:
        """End the innermost item."""
        if self._begun:
            self._begun.pop()

    def next(self) -> int:
        """Return the depth of the block that comes next, 0 outside of lists."""
        if not self._begun:
            return 0
        begun, self._begun[-1] = self._begun[-1], True
        return 2 * len(self._begun) - (not begun)
