"""Benches of the kernels: each verifies its answers first, then is timed beside its peers on the same data and threads.

`pytrace bench` is their front; `pytrace.bench.suite` runs them, and one module a kernel says what is measured on the processor
(`rows`, `sweeps`) and on a card (`card_rows`). On a card answers are verified on the processor before they are timed. Arrays lie
on the card where the case does not say that they come from NumPy; what the way there and back takes is reported apart.
"""

KERNELS = (
    "similarity", "fuzzy", "alignment", "set_cover", "beam", "walk", "names", "late_interaction", "bags", "spans",
)  # fmt: skip
"""The kernels that have a bench, each in the module of its name."""

CARD_KERNELS = ("similarity", "fuzzy", "alignment", "beam")
"""Those of them that have a CUDA form."""
