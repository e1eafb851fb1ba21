"""The front matter of Markdown files: fields in YAML between rulers of hyphens, or in TOML between rulers of plus signs."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, NamedTuple

from pytrace.storage.foreign_json import check_value

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^[\w\"'-]+[ \t]*[:=]", re.MULTILINE)
_TITLE = re.compile(r"^title[ \t]*[:=](.*)$", re.MULTILINE | re.IGNORECASE)

_LONGEST, _MOST_BRACKETS = 100_000, 1_000


class FrontMatter(NamedTuple):
    """The fields of a front matter, the text behind it, and a warning if it was not understood ("" if it was)."""

    fields: dict[str, Any]
    text: str
    warning: str = ""


def split_front_matter(source: str) -> FrontMatter:
    """Take the front matter off a text; two rulers with prose between them are none."""
    front = _FRONT_MATTER.match(source)
    if front is None or not _FIELD.search(front[2]):
        return FrontMatter({}, source)
    text = source[front.end() :]
    try:
        _check_size(front[2])
        fields = _yaml(front[2]) if front[1] == "---" else _toml(front[2])
        check_value(fields)
    except (ValueError, RecursionError) as error:
        title = _TITLE.search(front[2])
        named = {"title": title[1].strip().strip("\"'")} if title else {}
        return FrontMatter(named, text, f"its front matter was not understood ({' '.join(str(error).split())[:160]})")
    if not isinstance(fields, dict):
        return FrontMatter({}, text, "its front matter holds no fields")
    return FrontMatter({str(name).lower(): _plain(value) for name, value in fields.items() if value is not None}, text)


def _check_size(text: str) -> None:
    # The time to read YAML grows with the square of its open brackets.
    for what, count, most in (
        ("characters", len(text), _LONGEST),
        ("brackets", text.count("[") + text.count("{"), _MOST_BRACKETS),
    ):
        if count > most:
            raise ValueError(f"it has {count:,} {what}, and at most {most:,} are read")


def _yaml(text: str) -> Any:
    import yaml

    try:
        # A few aliases of aliases are gigabytes once they are written out.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise ValueError("it has aliases")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:  # of what tags ask for
        raise ValueError(str(error)) from None


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: dates in ISO 8601, keys as strings."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, int | float | bool):
        return value
    return str(value).encode("utf-8", "replace").decode()  # lone surrogates are no text
