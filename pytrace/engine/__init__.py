"""The composition: load models, keep a corpus, select, answer, certify, evaluate; everything above this room calls it."""

from pytrace.engine.corpus import Corpus
from pytrace.engine.loading import Engine, load

__all__ = ["Corpus", "Engine", "load"]
