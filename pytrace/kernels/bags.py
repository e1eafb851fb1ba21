"""Means of embeddings: texts to vectors by a table of their tokens' vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytrace import _core


def embedding_bag(
    table: npt.ArrayLike,
    tokens: npt.ArrayLike,
    offsets: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    mapping: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    normalize: bool = False,
    threads: int | None = None,
) -> npt.NDArray[np.float32]:
    """Average the embeddings of each text's tokens.

    Rows are added up in float32 in the order of the tokens: results do not depend on `threads` or on what else is in the batch.

    Parameters
    ----------
    table
        Float32, float16 or int8 ``[n_rows, dim]``: the embeddings. Float16 and int8 are read where they lie, and may be mapped from a
        file.
    tokens
        Int32 or int64: the tokens of all texts, one text behind another. Other whole numbers are converted.
    offsets
        Int64: text i has ``tokens[offsets[i]:offsets[i + 1]]``. Starts at 0, never goes back, ends at ``len(tokens)``.
    weights
        Float32: what each token's embedding is multiplied by, one a token of the vocabulary. The sum is divided by the number of
        tokens all the same, as model2vec does.
    mapping
        Int64: the row of `table` that each token of the vocabulary has, -1 for a token that does not count. None: a token's row has
        its own number.
    scale
        For int8 tables: the factor that turns them into numbers, one for all or one a row, above 0 (default 1).
    normalize
        Whether to divide each mean by its Euclidean length.
    threads
        Threads to use at most; default `pytrace._core.num_threads()`.

    Returns
    -------
    numpy.ndarray
        Float32 ``[n_texts, dim]``; zeros for a text without tokens that count. NaN and infinity in the table pass through.

    Raises
    ------
    ValueError
        A token or a row that does not exist, offsets that go back or do not fit, as many weights as there are no tokens.
    TypeError
        Arrays that do not hold real numbers, tokens, offsets or a mapping that are not whole.

    Notes
    -----
    The bag of embeddings of P. Bojanowski et al., "Enriching Word Vectors with Subword Information" (TACL 2017), section 3; weights
    and mapping are those of model2vec's files. Time is linear in tokens times dimensions. It has no form for cards.

    Examples
    --------
    >>> from pytrace.kernels import embedding_bag
    >>> table = [[1.0, 0.0], [0.0, 1.0], [4.0, 4.0]]
    >>> embedding_bag(table, [0, 1, 2, 2], [0, 2, 3, 3, 4], normalize=True).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377], [0.7070000171661377, 0.7070000171661377], [0.0, 0.0], [0.7070000171661377, 0.7070000171661377]]
    >>> embedding_bag(table, [0, 1], [0, 2], mapping=[2, -1, 0], weights=[0.5, 1, 1]).tolist()
    [[2.0, 2.0]]
    """
    return _core.embedding_bag(table, tokens, offsets, weights, mapping, scale, normalize, threads)
