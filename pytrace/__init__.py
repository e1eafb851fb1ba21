"""pytrace finds the evidence for multi-hop questions and checks reasoning against facts, on your own machine.

>>> import pytrace
>>> documents = [pytrace.Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",))]
>>> corpus = pytrace.Corpus(documents)
>>> engine = pytrace.load("tiny", threads=1)
>>> print(engine.ask("In which country is Ada Foah?", corpus, method="rag").text)  # doctest: +SKIP
Ghana
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytrace import kernels
    from pytrace.certify.certificate_records import Certificate, Response
    from pytrace.certify.certifier import Certifier
    from pytrace.documents import read_documents
    from pytrace.engine import Corpus, Engine, load
    from pytrace.errors import PytraceError
    from pytrace.evaluation.run.runner import evaluate
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.base import Method, MethodRow, register
    from pytrace.methods.catalog import METHODS, make_method
    from pytrace.records import Answer, Chain, Document, Evidence, Question, Sentence, Triple

__version__ = "0.1.0"

# Where each exported name lives: it is imported when it is first asked for, so that `pytrace --help` and `from pytrace.kernels
# import …` load nothing that they do not use.
_ROOMS = {
    "METHODS": "pytrace.methods.catalog",
    "Answer": "pytrace.records",
    "Certificate": "pytrace.certify.certificate_records",
    "Certifier": "pytrace.certify.certifier",
    "Chain": "pytrace.records",
    "Corpus": "pytrace.engine",
    "Document": "pytrace.records",
    "Engine": "pytrace.engine",
    "Evidence": "pytrace.records",
    "KnowledgeBase": "pytrace.kg",
    "Method": "pytrace.methods.base",
    "MethodRow": "pytrace.methods.base",
    "PytraceError": "pytrace.errors",
    "Question": "pytrace.records",
    "Response": "pytrace.certify.certificate_records",
    "Sentence": "pytrace.records",
    "Triple": "pytrace.records",
    "evaluate": "pytrace.evaluation.run.runner",
    "load": "pytrace.engine",
    "make_method": "pytrace.methods.catalog",
    "read_documents": "pytrace.documents",
    "register": "pytrace.methods.base",
}

__all__ = [
    "METHODS",
    "Answer",
    "Certificate",
    "Certifier",
    "Chain",
    "Corpus",
    "Document",
    "Engine",
    "Evidence",
    "KnowledgeBase",
    "Method",
    "MethodRow",
    "PytraceError",
    "Question",
    "Response",
    "Sentence",
    "Triple",
    "__version__",
    "evaluate",
    "kernels",
    "load",
    "make_method",
    "read_documents",
    "register",
]


def __getattr__(name: str) -> Any:
    """Import an exported name from its room."""
    if name == "kernels":
        return importlib.import_module("pytrace.kernels")
    if name in _ROOMS:
        return getattr(importlib.import_module(_ROOMS[name]), name)
    raise AttributeError(f"module 'pytrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
