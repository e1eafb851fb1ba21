"""The directive `adapter`: a module's classes from its source alone, so that no framework must be installed to describe its adapter."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util.docutils import SphinxDirective

import pytrace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

PACKAGE = Path(pytrace.__file__).parent


def _described(what: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, signature: str) -> Iterator[str]:
    """Iterate over the lines of a directive that describes a class or a function with a docstring."""
    text = ast.get_docstring(node)
    if text is None or node.name.startswith("_"):
        return
    yield f".. py:{what}:: {node.name}{signature}"
    yield ""
    for line in NumpyDocstring(text, Config(napoleon_use_rtype=False, napoleon_use_ivar=True)).lines():
        yield f"   {line}"
    yield ""
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                yield from (f"   {line}" for line in _described("method", method, _signature(method)))


def _signature(function: ast.FunctionDef) -> str:
    """Return a method's parameters, without the object itself."""
    first, _, others = ast.unparse(function.args).partition(", ")
    return f"({others if first in {'self', 'cls'} else ast.unparse(function.args)})".replace("(self)", "()")


class Adapter(SphinxDirective):
    """Put what an adapter's module has where the directive stands."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the descriptions."""
        name = self.arguments[0]
        path = PACKAGE / f"{name.removeprefix('pytrace.').replace('.', '/')}.py"
        self.env.note_dependency(str(path))
        lines = [f".. py:currentmodule:: {name}", ""]
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                made = next(
                    (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None
                )
                lines += _described("class", node, _signature(made) if made else "")
        return self.parse_text_to_nodes(StringList(lines, name))


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("adapter", Adapter)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
