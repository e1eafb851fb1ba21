"""Late interaction: documents scored by the vectors of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt

from pytrace import _core

Candidates = npt.ArrayLike | Sequence[npt.ArrayLike] | tuple[npt.ArrayLike, npt.ArrayLike]


@overload
def max_sim(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    *,
    document_offsets: npt.ArrayLike,
    query_offsets: npt.ArrayLike | None = None,
    candidates: Candidates | None = None,
    k: None = None,
    scale: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> npt.NDArray[np.float32]: ...
@overload
def max_sim(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    *,
    document_offsets: npt.ArrayLike,
    query_offsets: npt.ArrayLike | None = None,
    candidates: Candidates | None = None,
    k: int,
    scale: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]: ...
def max_sim(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    *,
    document_offsets: npt.ArrayLike,
    query_offsets: npt.ArrayLike | None = None,
    candidates: Candidates | None = None,
    k: int | None = None,
    scale: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> npt.NDArray[np.float32] | tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Score documents by MaxSim: for each of a question's token vectors its largest inner product with one of the document's, added up.

    No matrix of products is ever held. Scores do not depend on `threads`, on what else is in the batch, or on where the arrays
    lie. Vectors are taken as they are; late-interaction models normalise theirs (`pytrace.kernels.normalize`).

    Parameters
    ----------
    queries
        Float32 ``[n_query_tokens, dim]``: the token vectors of all questions, one question behind another. Other real types are
        converted.
    documents
        Float32, float16 or int8 ``[n_document_tokens, dim]``: the token vectors of all documents. Float16 and int8 are read where
        they lie, and may be mapped from a file.
    document_offsets
        Int64: document d has ``documents[document_offsets[d]:document_offsets[d + 1]]``. Starts at 0, never goes back, ends at
        ``n_document_tokens``.
    query_offsets
        Int64: the same for questions. None: all vectors are those of one question.
    candidates
        Documents that each question is scored with, by number, -1 for none: an integer matrix ``[n_questions, m]`` (as
        `pytrace.kernels.top_k` returns it), a list with a vector a question, or a tuple ``(indices, offsets)`` in which question
        g's are ``indices[offsets[g]:offsets[g + 1]]``. None: every question with every document.
    k
        Documents wanted a question, the best first.
    scale
        For int8 documents: the factor that turns them into numbers, one for all or one a row, above 0 (default 1).
    threads
        Threads to use at most; default `pytrace._core.num_threads()`.

    Returns
    -------
    scores
        Without `k`, float32 ``[n_questions, n_documents]``, or one score a candidate: in the shape of a matrix of candidates,
        else ``[n_candidates]`` in their order. A document without vectors, and -1, have ``-inf``; a question without vectors has 0
        with all. With `k`, float32 ``[n_questions, k]``. Where `query_offsets` is None, a first axis is left out.
    indices
        With `k` only: int64, the documents' numbers, equal scores by lower number. ``-inf`` is not among the best; where there are
        fewer than `k`, the rest is -1 with a score of ``-inf``.

    Raises
    ------
    ValueError
        Dimensions that differ, NaN or infinity in the vectors that are read, a score that overflows float32, offsets that go back or
        do not fit, candidates that do not exist, negative `k`.
    TypeError
        Arrays that do not hold real numbers, offsets or candidates that are not whole.

    Notes
    -----
    O. Khattab and M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over BERT"
    (SIGIR 2020), section 3.3. Time is linear in pairs of vectors times dimensions. Memory beyond the arrays is a copy of the
    questions' vectors, and with `k` up to 64 MiB of scores, or those of one question. It has no form for cards.

    Examples
    --------
    >>> import numpy as np
    >>> from pytrace.kernels import max_sim
    >>> question = np.array([[1, 0], [0, 1]], dtype=np.float32)
    >>> documents = np.array([[1, 0], [0.5, 0.5], [0, 1], [1, 0]], dtype=np.float16)
    >>> max_sim(question, documents, document_offsets=[0, 2, 4]).tolist()
    [1.5, 2.0]
    >>> max_sim(question, documents, document_offsets=[0, 2, 4], k=1)[1].tolist()
    [1]

    Two questions, one vector each, the first with both documents, the second with the last:

    >>> offsets = {"query_offsets": [0, 1, 2], "document_offsets": [0, 2, 4]}
    >>> max_sim(question, documents, candidates=[[0, 1], [1]], **offsets).tolist()
    [1.0, 1.0, 1.0]
    """
    single = query_offsets is None
    result: Any = _core.max_sim(queries, documents, query_offsets, document_offsets, candidates, k, scale, threads)
    if k is not None:
        scores, indices = result
        return (scores[0], indices[0]) if single else (scores, indices)
    scores = result.reshape(candidates.shape) if isinstance(candidates, np.ndarray) else result
    return cast("npt.NDArray[np.float32]", scores[0] if single and scores.ndim == 2 else scores)
