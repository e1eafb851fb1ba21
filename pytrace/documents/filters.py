"""Filters on what documents say of themselves: ``author=Venn``, ``date>=2020``, ``tags=tides``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pytrace.errors import InputError
from pytrace.records import Document

_FILTER = re.compile(r"([^<>=!~]+)(<=|>=|!=|=|<|>)(.*)", re.DOTALL)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Filter(NamedTuple):
    """A field of a document's metadata (or its `id`, `title` or `source`), a comparison, and a value."""

    field: str
    comparison: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Read ``field=value``, or with ``!=``, ``<``, ``<=``, ``>`` or ``>=``.

        ``=`` heeds no case, and ``*`` stands for any characters; of a list one item must be equal. Others compare numbers if both
        sides are, else texts, such as dates in ISO 8601. A document without the field matches ``!=`` alone.
        """
        match = _FILTER.fullmatch(text)
        field, comparison, value = map(str.strip, match.groups()) if match else ("", "", "")
        if not field:
            raise InputError(
                f"{text[:80]!r} is no filter; write FIELD=VALUE, or with one of != < <= > >=, such as 'date>=2020'"
            )
        return cls(field, comparison, value)

    def matches(self, document: Document) -> bool:
        """Tell whether a document has the field with such a value."""
        values = self._values(document)
        if self.comparison == "!=":
            return not any(map(self._equals, values))
        if self.comparison == "=":
            return any(map(self._equals, values))
        return any(map(self._compares, values))

    def _values(self, document: Document) -> list[Any]:
        metadata = {} if document.origin is None else document.origin.metadata
        value = metadata.get(self.field)
        if value is None and self.field in ("id", "title", "source"):
            value = getattr(document, self.field)
        return value if isinstance(value, list) else [] if value is None else [value]

    def _equals(self, value: Any) -> bool:
        # Piece by piece: a regular expression would try all ways to part the text among many stars.
        first, *others = self.value.casefold().split("*")
        text = _text(value).casefold()
        if not others:
            return text == first
        at = len(first)
        for piece in others[:-1]:
            at = text.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return text.startswith(first) and len(text) - len(others[-1]) >= at and text.endswith(others[-1])

    def _compares(self, value: Any) -> bool:
        compare = _COMPARISONS[self.comparison]
        try:
            return compare(float(value), float(self.value))
        except (TypeError, ValueError):
            return compare(_text(value).casefold(), self.value.casefold())


def parse_filters(texts: Iterable[str]) -> list[Filter]:
    """Read filters; raises `InputError` at the first that is none."""
    return [Filter.parse(text) for text in texts]


def matches(document: Document, filters: Sequence[Filter]) -> bool:
    """Tell whether a document matches all filters."""
    return all(each.matches(document) for each in filters)


def _text(value: Any) -> str:
    # As JSON words them.
    return str(value).lower() if isinstance(value, bool) else str(value)
