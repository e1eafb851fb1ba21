"""RapidFuzz 3.14's interface on pytrace's kernels.

>>> from pytrace.compat.rapidfuzz import fuzz, process
>>> process.extractOne("cowboys", ["new york jets", "dallas cowboys"], scorer=fuzz.WRatio)
('dallas cowboys', 90.0, 1)

Texts (`str` and `bytes`) are scored by the kernels, and so are matrices of the edit distances of `distance`. What these do not
have, sequences of other things and edit distances of one pair or by other weights, is handed to RapidFuzz where it is installed
(``pip install rapidfuzz``) and refused by an `ImportError` that names it where it is not. Scorers of either library may be given to
the functions of `process`, and run on the kernels.

Two differences, on purpose: a score of `fuzz` below `score_cutoff` is 0 always, and one that equals it never, where RapidFuzz's
answer depends on the rounding of the last bit, and its `WRatio` returns 85.5 or 57 for texts that share a word whatever the
cutoff; and a missing query's row of a normalized matrix is that of the worst score, where RapidFuzz 3.14 does not write it.
"""

from __future__ import annotations

from pytrace.compat.rapidfuzz import distance, fuzz, process, utils

__all__ = ["distance", "fuzz", "process", "utils"]
