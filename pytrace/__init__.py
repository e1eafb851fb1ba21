"""pytrace finds the evidence for multi-hop questions and checks reasoning against facts, on your own machine.

>>> import pytrace
>>> engine = pytrace.load("tiny", threads=1)
>>> corpus = pytrace.Corpus([pytrace.Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",))])
>>> question = "In which country is Ada Foah?"
>>> corpus.search(question, engine)[0].context
('[Ada Foah] Ada Foah is a town in Ghana.',)
>>> engine.ask(question, corpus, method="rag").text
'Ghana'
>>> facts = pytrace.KnowledgeBase.in_memory([pytrace.Triple("Ada Foah", "country", "Ghana")], engine.encoder)
>>> text = "1. Ada Foah is in the country Ghana. So the answer is (Ghana)."
>>> engine.certify([pytrace.Response("1", question, text, ("Ghana",))], facts)[0].kind
'faithful'
>>> pytrace.kernels.ratio("Ada Foah", "Ada Fua")
80.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytrace import kernels
    from pytrace.certify.certifier import Certifier
    from pytrace.check_records import Certificate, Response
    from pytrace.documents import read_documents
    from pytrace.engine import Corpus, Engine, load
    from pytrace.errors import PytraceError
    from pytrace.evaluation.run.runner import evaluate
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.base import Method, MethodRow, register
    from pytrace.methods.catalog import METHODS, make_method
    from pytrace.records import Answer, Chain, Document, Evidence, Question, Sentence, Triple
    from pytrace.results import Request, Result

__version__ = "0.2.0"

# Where each exported name lives: it is imported when it is first asked for, so that `pytrace --help` and `from pytrace.kernels
# import …` load nothing that they do not use.
_ROOMS = {
    name: room
    for room, names in {
        "pytrace.check_records": ("Certificate", "Response"),
        "pytrace.certify.certifier": ("Certifier",),
        "pytrace.documents": ("read_documents",),
        "pytrace.engine": ("Corpus", "Engine", "load"),
        "pytrace.errors": ("PytraceError",),
        "pytrace.evaluation.run.runner": ("evaluate",),
        "pytrace.kg": ("KnowledgeBase",),
        "pytrace.methods.base": ("Method", "MethodRow", "register"),
        "pytrace.methods.catalog": ("METHODS", "make_method"),
        "pytrace.records": ("Answer", "Chain", "Document", "Evidence", "Question", "Sentence", "Triple"),
        "pytrace.results": ("Request", "Result"),
    }.items()
    for name in names
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
    "Request",
    "Response",
    "Result",
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
