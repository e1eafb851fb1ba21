"""Encoders of every family give the vectors that sentence-transformers gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

for package in ("onnxruntime", "onnxscript", "sentence_transformers", "torch"):
    pytest.importorskip(package, reason=f"{package} is not installed")

from pytrace.models.encoders.encoder import OnnxEncoder
from tests.models.model_families import FAMILIES, LENGTH, TEXTS, build, cosines

# torch.jit and others warn of themselves as they are imported or exported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors_of_a_family_are_those_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    reference = build(name, tmp_path / "model")
    encoder = OnnxEncoder(tmp_path / "model", threads=1)
    assert encoder.max_tokens == reference.max_seq_length == LENGTH
    for kind, their in (("query", reference.encode_query), ("passage", reference.encode_document)):
        expected = their(TEXTS)
        vectors = encoder.encode(TEXTS, kind=kind)
        assert vectors.shape == expected.shape
        assert cosines(vectors, expected).min() >= 0.99999
        lengths = np.linalg.norm(expected, axis=1)
        if not encoder._normalize:  # else they are as long as ours, but for what cutting takes away
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), lengths, rtol=1e-3)
