"""Benches of the kernels: each verifies its answers first, then is timed beside its peers on the same data and threads.

`pytrace bench` is their front; `pytrace.bench.suite` runs them, one module a kernel says what is measured; `pytrace.bench.cuda`
has those of the CUDA forms.
"""

KERNELS = ("similarity", "fuzzy", "alignment", "set_cover", "beam")
"""The kernels that have a bench, each in the module of its name."""
