"""Naive twins of the kernels: slow, obvious, and sharing no code with what they check."""

from __future__ import annotations
