"""Benches of the kernels' CUDA forms: `pytrace bench --device cuda`.

Each verifies on the processor what the card answers before it is timed. Arrays lie on the card where the case does not say
that they come from NumPy; what the way there and back takes is told apart.
"""

KERNELS = ("similarity", "fuzzy", "alignment", "beam")
"""The kernels that have a CUDA form, each in the module of its name."""
