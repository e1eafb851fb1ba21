"""Words find documents: BM25."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.documents.languages import UNSPACED, script_of
from pytrace.errors import MissingDependencyError
from pytrace.records import Document
from pytrace.retrieval.retriever import Hit, check_queries

_WORD = re.compile(r"\w+")
# In ASCII, a byte for each byte: small letters, digits and underscores, and spaces for all else.
_ASCII_WORDS = bytes(ord(chr(code).lower()) if _WORD.match(chr(code)) else ord(" ") for code in range(128)) + bytes(128)
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNSPACED_OR_WORD = re.compile(f"[{UNSPACED}]+|[^\\W{UNSPACED}]+")
_UNSPACED_SCRIPTS = frozenset({"ja", "km", "lo", "my", "th", "zh"})
_ARABIC_SCRIPT = frozenset({"ar", "fa", "ur"})
# Vowel signs, and the stroke that only stretches a word.
_ARABIC_SIGNS = re.compile("[\u0640\u064b-\u065f\u0670]")


class Bm25Retriever:
    """Ranks documents by the words that they share with a query, rare words first.

    A document's text is its title and its sentences. Words are runs of letters, digits and underscores, compared without
    regard to case and to how Unicode spells a character. No stop words are left out and no endings cut off: lists and
    stemmers are made for one language, and in a small corpus a frequent word may be all that tells two documents apart;
    the weight of a word that many documents have is small anyway. In a text whose script has no spaces (Chinese, Japanese, Thai)
    each two characters in a row are a word, and Arabic is compared without its vowel signs.

    Parameters
    ----------
    documents
        The corpus.
    k1
        How slowly a word's repetitions cease to count; 0 or more.
    b
        How much long documents are held back, from 0 (not at all) to 1.
    unmatched
        Whether documents that share no word with the query are given too: after all others, in the corpus's order, with
        score 0.

    Raises
    ------
    MissingDependencyError, ValueError
        bm25s is not installed, or `k1` or `b` is out of range.

    References
    ----------
    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.4, with the
    inverse document frequency of Lucene, which is above 0 for every word (Kamphuis et al., "Which BM25 Do You Mean?",
    ECIR 2020, section 2).

    Examples
    --------
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import Bm25Retriever
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("A ferry carries mail.",))]
    >>> [hit.document.id for hit in Bm25Retriever(corpus).retrieve(["Which ferry?"], 2)[0]]
    ['2', '1']
    """

    def __init__(
        self, documents: Sequence[Document], *, k1: float = 1.5, b: float = 0.75, unmatched: bool = True
    ) -> None:
        if not (math.isfinite(k1) and k1 >= 0) or not 0 <= b <= 1:
            raise ValueError(f"k1 must be 0 or more and b from 0 to 1, not {k1} and {b}")
        library = _library()
        self._documents = tuple(documents)
        self._unmatched = unmatched
        self._numbers: dict[str, int] = {}
        rows = [
            [self._numbers.setdefault(word, len(self._numbers)) for word in words(f"{document.title}. {document.text}")]
            for document in self._documents
        ]
        self._index: Any = None
        if self._numbers:  # the library divides by the number of words
            self._index = library.BM25(k1=k1, b=b, method="lucene", backend="numpy", csc_backend="numpy")
            self._index.index((rows, self._numbers), create_empty_token=False, show_progress=False)

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank the corpus by each query, in which a word that stands twice counts twice."""
        check_queries(queries, count)
        return [
            [Hit(self._documents[row], float(scores[row])) for row in self._best(scores, count)]
            for scores in map(self._scores, queries)
        ]

    def _scores(self, query: str) -> NDArray[np.float32]:
        # A word that no document has would be an index behind the library's table.
        known = [self._numbers[word] for word in words(query) if word in self._numbers]
        if not known:
            return np.zeros(len(self._documents), dtype=np.float32)
        scores: NDArray[np.float32] = self._index.get_scores_from_ids(known)
        return scores

    def _best(self, scores: NDArray[np.float32], count: int) -> list[int]:
        if count < len(scores):
            # Not all need sorting: only those that reach the score of the last one wanted.
            rows = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
        else:
            rows = np.arange(len(scores))
        if not self._unmatched:
            rows = rows[scores[rows] > 0]  # Lucene's weights are above 0 for every word, so 0 says that none is shared
        # Stable, so that ties keep the corpus's order.
        ranked: list[int] = rows[np.argsort(-scores[rows], kind="stable")][:count].tolist()
        return ranked


def spaced_words(text: str) -> bytes:
    """Return the words of a text in UTF-8, with spaces between them, one or more."""
    if text.isascii():
        return text.encode("ascii").translate(_ASCII_WORDS)
    return " ".join(words(text)).encode("utf-8", "surrogatepass")


def words(text: str) -> list[str]:
    """Split a text into words for comparison: compatibility forms made one, case folded, unspaced scripts in bigrams."""
    if text.isascii():
        return spaced_words(text).decode("ascii").split()
    folded = unicodedata.normalize("NFKC", text).casefold()
    script = script_of(folded)
    if script in _UNSPACED_SCRIPTS:
        return [word for run in _UNSPACED_OR_WORD.findall(folded) for word in _bigrams(run)]
    return _WORD.findall(_ARABIC_SIGNS.sub("", folded) if script in _ARABIC_SCRIPT else folded)


def _bigrams(run: str) -> list[str]:
    if len(run) == 1 or not _UNSPACED.match(run):
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]


def _library() -> Any:
    # Importing it may cost seconds where numba is installed: nobody pays who does not ask for it.
    try:
        import bm25s
    except ImportError as error:
        raise MissingDependencyError(
            "bm25s is needed to rank by words; install it with \"pip install 'pytrace-rag[eval]'\""
        ) from error
    return bm25s
