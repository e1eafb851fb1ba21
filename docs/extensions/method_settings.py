"""The directive `method-settings`: every setting of every method, as the catalog and the comments above its field say."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from pytrace.methods.catalog import METHODS, MethodRow
from pytrace.reader.readers import SMALL_MODEL_READER, ReaderSettings

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_FIELD = re.compile(r"^    (\w+): ")


class _Group(NamedTuple):
    """Fields that stand below one comment."""

    comment: str
    names: list[str]


def _groups(settings: type[Any]) -> list[_Group]:
    """Return a settings class's fields with the comments above them, those of its bases first."""
    groups: list[_Group] = []
    for base in reversed(settings.__mro__):
        if not base.__module__.startswith("pytrace."):
            continue
        comment: list[str] = []
        for line in inspect.getsource(base).splitlines():
            if line.startswith("    # "):
                comment.append(line.strip("# "))
            elif (field := _FIELD.match(line)) and field[1] in settings.__struct_fields__:
                if comment or not groups:
                    groups.append(_Group(" ".join(comment), []))
                    comment = []
                groups[-1].names.append(field[1])
    return groups


def _value(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _section(rows: list[MethodRow]) -> list[str]:
    """Return the Markdown of what the settings of one class are, for the methods that have it."""
    lines = [f"## {', '.join(f'`{row.name}`' for row in rows)}", ""]
    for row in rows:
        needs = f" Needs: {', '.join(sorted(row.needs))}." if row.needs else ""
        takes = f" Can use: {', '.join(sorted(row.takes))}." if row.takes else ""
        lines.append(f"- `{row.name}`: {row.summary}.{needs}{takes}")
    lines += ["", "| setting | papers' | otherwise | |", "|---|---|---|---|"]
    for comment, names in _groups(type(rows[0].settings)):
        told = comment.replace("|", "\\|")
        for name in names:
            papers = ", ".join(dict.fromkeys(f"`{_value(getattr(row.settings, name))}`" for row in rows))
            lines.append(f"| `{name}` | {papers} | {_replaced(rows, name)} | {told} |")
            told = "as above" if told else ""
    return [*lines, ""]


def _replaced(rows: list[MethodRow], name: str) -> str:
    """Return what replaces a setting, by the ability that the model lacks."""
    changes = [(item.ability, change) for row in rows for item in row.replacements for change in item.settings]
    if isinstance(rows[0].settings, ReaderSettings):
        changes += [("reads", change) for change in SMALL_MODEL_READER]
    papers = {_value(getattr(row.settings, name)) for row in rows}
    found = {
        (ability, value)
        for ability, change in changes
        for setting, _, value in (change.partition("="),)
        if setting == name and {value} != papers
    }
    return ", ".join(f"`{value}` (no {ability})" for ability, value in sorted(found))


class MethodSettings(SphinxDirective):
    """Put a section for each class of settings where the directive stands."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        classes: dict[type[Any], list[MethodRow]] = {}
        for row in METHODS.values():
            classes.setdefault(type(row.settings), []).append(row)
        lines = [line for rows in classes.values() for line in _section(rows)]
        return self.parse_text_to_nodes(StringList(lines, "the catalog of methods"), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("method-settings", MethodSettings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
