"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.util.inspect import stringify_signature

import pytrace

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS / "extensions"))

project = "pytrace"
author = "the authors of pytrace"
copyright = "the authors of pytrace, Apache-2.0"
version = release = pytrace.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "adapters", "method_settings"]
exclude_patterns = ["extensions"]
myst_heading_anchors = 4
smartquotes = False  # options begin with two dashes
suppress_warnings = ["myst.header"]  # a page of the reference begins below its title

html_theme = "furo"
html_title = f"pytrace {release}"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_show_search_summary = False  # pages on the disk may not be read by a script
html_copy_source = False
html_last_updated_fmt = None  # the same sources make the same pages

# `name` in a docstring is a link where something of that name is in the reference, and code everywhere.
default_role = "py:obj"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100

linkcheck_timeout = 20
linkcheck_ignore = [r"http://127\.0\.0\.1", r"https://[a-z.]*example\.org"]

# Pages that stand elsewhere in the repository: a page of the site each, whose file in this folder only says where to look.
ELSEWHERE = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "results": "benches/RESULTS.md",
    "security": "SECURITY.md",
}


def _link(target: str, page: Path) -> str:
    """Return a link of a page as it is from this folder: to a page of the site, or to a file of the repository."""
    path = (page.parent / target).resolve()
    for name, elsewhere in ELSEWHERE.items():
        if path == ROOT / elsewhere:
            path = DOCS / f"{name}.md"
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else f"../{path.relative_to(ROOT)}"


def _read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Take pages from where they stand, and let their links lead to pages of the site."""
    page = DOCS / f"{name}.md"
    if name in ELSEWHERE:
        page = ROOT / ELSEWHERE[name]
        app.env.note_dependency(str(page))
        source[0] = page.read_text(encoding="utf-8")
    if page.parent in {DOCS, ROOT, ROOT / "benches"}:
        source[0] = re.sub(
            r"\]\((?![a-z]+:)([^)#\s]+)", lambda match: f"]({_link(match[1], page)}", source[0], flags=re.MULTILINE
        )
    if name == "index":
        source[0] += _contents(source[0])


def _contents(text: str) -> str:
    """Return the table of contents that the sidebar shows: what each section of the first page links to in lists."""
    tables = []
    for title, section in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL):
        pages = re.findall(r"^- \[[^\]]+\]\(([\w/-]+)\.(?:md|rst)\)", section, flags=re.MULTILINE)
        tables.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""]))
    return "".join(tables)


def _leave_out_empty_defaults(app: Sphinx, context: object, lines: list[str]) -> None:
    """Take away the default of options that may be repeated, an empty text that reStructuredText does not know."""
    del app, context
    lines[:] = [line for line in lines if line.strip() != ":default: ````"]


def _word_signature(
    app: Sphinx, what: str, name: str, item: Any, options: object, signature: str, returned: str
) -> Any:
    """Word types as the source does: `ArrayLike`, not all that it stands for, which would fill the page."""
    del app, name, options
    if what not in {"class", "exception", "function", "method"}:
        return signature, returned
    try:
        found = inspect.signature(item)
    except (TypeError, ValueError):
        return signature, returned
    parameters = [each for each in found.parameters.values() if each.name not in {"self", "cls"}]
    worded = stringify_signature(found.replace(parameters=parameters), unqualified_typehints=True).replace("npt.", "")
    worded = worded.replace(" = <factory>", " = ...")  # made anew for each object
    arguments, _, result = worded.rpartition(" -> ")
    return (arguments, result) if arguments and what != "class" else (worded.removesuffix(" -> None"), None)


def setup(app: Sphinx) -> None:
    """Let pages be read as above."""
    app.connect("autodoc-process-signature", _word_signature)
    app.connect("sphinx-click-process-options", _leave_out_empty_defaults)
    app.connect("source-read", _read_page)
