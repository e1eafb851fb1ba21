"""A page as a whole: a frame filled with what is written here, one style, one script, and a policy that lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from string import Template

from pytrace.report.page_texts import clean, shown

_POLICY = "default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"


def make_page(package: str, name: str, fields: Mapping[str, str], *, scripts: tuple[str, ...] = ()) -> str:
    """Fill the frame of a package's page."""
    style = _read(__package__, "base.css") + _read(package, f"{name}.css")
    script = _read(__package__, "base.js") + "".join(_read(package, f"{one}.js") for one in (*scripts, name))
    policy = _POLICY.format(style=_source(style), script=_source(script))
    return clean(Template(_read(package, f"{name}.html")).substitute(fields, policy=policy, style=style, script=script))


def tiles(items: Mapping[str, tuple[str, str]]) -> str:
    """Write large figures as the entries of a description list: name to value and note, all of them markup."""
    return "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, (value, note) in items.items()
    )


def settings_list(settings: Mapping[str, str]) -> str:
    """Write settings as the entries of a description list, escaped."""
    rows = [f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in settings.items()]
    return "".join(rows) or "<div><dt>none</dt><dd>given</dd></div>"


def counted(number: int, name: str) -> str:
    """Word a number of things."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _read(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return the source of a Content-Security-Policy that lets this inline text through and no other."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
