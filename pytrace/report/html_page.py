"""How every page is made: one frame and policy around its own parts, and one way to write tables, tiles, figures and data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from pytrace.report.page_texts import clean, finite, shown
from pytrace.storage.files import atomic_output

# Nothing but the page's one style and script, known by their hashes, may load or run: texts of models stay texts.
_POLICY = "default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"


def make_page(package: str, fields: Mapping[str, str], *, scripts: tuple[str, ...] = ("page",)) -> str:
    """Fill the frame with a package's parts: its `main.html`, `filters.html` and `footer.html`, style and scripts."""
    # The fields are markup. Of the frame itself are `title`, `overline`, `lead` and `tiles`, the `noun` of what the page
    # lists, with a `note` above its filters and the first `status`, and the `data` for the scripts.
    style = _read(__package__, "base.css") + _read(package, "page.css")
    script = _read(__package__, "base.js") + "".join(_read(package, f"{name}.js") for name in scripts)
    parts = {
        part: Template(_read(package, f"{part}.html")).substitute(fields).rstrip("\n")
        for part in ("main", "filters", "footer")
    }
    frame = Template(_read(__package__, "frame.html"))
    heading = f"{fields['noun'].capitalize()}s"
    policy = _POLICY.format(style=_source(style), script=_source(script))
    return clean(frame.substitute(fields, **parts, heading=heading, policy=policy, style=style, script=script))


def write_page(path: Path, page: str) -> None:
    """Write a page in one step: there is the complete page or what was there before."""
    with atomic_output(path) as stream:
        stream.write(page.encode())


def tiles(items: Mapping[str, tuple[str, str]]) -> str:
    """Write large figures as the entries of a description list: name to value and note, all of them markup."""
    return "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, (value, note) in items.items()
    )


def settings_list(settings: Mapping[str, str]) -> str:
    """Write settings as the entries of a description list, escaped."""
    rows = [f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in settings.items()]
    return "".join(rows) or "<div><dt>none</dt><dd>given</dd></div>"


def section(name: str, title: str, content: str) -> str:
    """Write a section of the page; nothing if it has no content."""
    if not content:
        return ""
    return f'<section aria-labelledby="{name}-heading"><h2 id="{name}-heading">{shown(title)}</h2>{content}</section>'


def figures(drawings: Mapping[str, str]) -> str:
    """Write drawings, each with what belongs to it, below their titles."""
    return "".join(f"<figure><h3>{title}</h3>{drawing}</figure>" for title, drawing in drawings.items())


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Write what each mark of a drawing stands for: its class and words. Screen readers have the drawing's own text."""
    marks = "".join(f'<span><i class="{mark}"></i>{shown(words)}</span>' for mark, words in entries)
    return f'<p class="key" aria-hidden="true">{marks}</p>'


def options(words: Mapping[str, str], selected: str | None = None) -> str:
    """Write the choices of a field: value to words."""
    return "".join(
        f'<option value="{shown(value)}"{" selected" if value == selected else ""}>{shown(label)}</option>'
        for value, label in words.items()
    )


def data_element(name: str, text: str, *, kind: str = "text/plain") -> str:
    """Embed data for the page's script: text without markup, such as that of `embedded_json` and `packed_json`."""
    return f'<script type="{kind}" id="{name}">{text}</script>'


class Cell(NamedTuple):
    """A cell: its markup, what it is sorted by (None: after all others), a smaller second line, and whether it is the best."""

    text: str
    key: float | str | None = None
    note: str = ""
    best: bool = False


def table(
    caption: str,
    heads: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Cell]],
    *,
    kind: str = "sortable",
    scrolls: bool = True,
) -> str:
    """Write a table whose columns have a name and what it says in full; the first cell of a row is its head."""
    # `kind` is its class. It scrolls by itself where the page is narrow, unless it is so small that it need not.
    # A head without a name would be announced as an empty one, so it is a cell.
    head = "".join(
        _element("th", shown(name), {"scope": "col", "title": full or None}) if name else "<td></td>"
        for name, full in heads
    )
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    written = (
        f'<table class="{kind}"><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
    return f'<div class="wide" tabindex="0" role="region" aria-label="Table">{written}</div>' if scrolls else written


def _row(cells: Sequence[Cell]) -> str:
    row = []
    for index, cell in enumerate(cells):
        order = finite(cell.key) if isinstance(cell.key, int | float) else cell.key
        attributes = {
            "data-key": f"{order:g}" if isinstance(order, float) else None if order is None else str(order),
            "scope": None if index else "row",
            "class": "best" if cell.best else None,
        }
        note = f"<small>{cell.note}</small>" if cell.note else ""
        row.append(_element("td" if index else "th", cell.text + note, attributes))
    return "".join(row)


def _element(tag: str, content: str, attributes: Mapping[str, str | None]) -> str:
    written = "".join(f' {name}="{shown(value)}"' for name, value in attributes.items() if value is not None)
    return f"<{tag}{written}>{content}</{tag}>"


def _read(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return the source of a Content-Security-Policy that lets this inline text through and no other."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
