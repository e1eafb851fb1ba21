"""Encoders of every family give the vectors that sentence-transformers gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
for package in ("onnxruntime", "onnxscript", "sentence_transformers"):
    pytest.importorskip(package, reason=f"{package} is not installed")

from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
from pytrace.models.encoders.encoder import OnnxEncoder
from tests.models.model_families import FAMILIES, LENGTH, TEXTS, build, build_classifier, build_reranker, cosines

# None is cut: there we keep the first text, and transformers shortens the longer one.
PAIRS = [(first, second) for first in ("The red house.", "", "It is Green.") for second in ("naïve river", "Ada 😀")]

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


def test_layers_of_a_reranker_behind_its_graph_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    reference = build_reranker(tmp_path / "model")
    encoder = OnnxCrossEncoder(tmp_path / "model", threads=1)
    expected = reference.predict(PAIRS, activation_fn=torch.nn.Identity())
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(encoder.score(PAIRS), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(encoder.probabilities(PAIRS)[:, 0], reference.predict(PAIRS), rtol=1e-4, atol=1e-5)


def test_probabilities_of_entailment_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    names = {0: "contradiction", 1: "entailment", 2: "neutral"}
    reference = build_classifier(tmp_path / "model", names)
    encoder = OnnxCrossEncoder(tmp_path / "model", threads=1)
    assert encoder.labels == tuple(names.values())
    expected = reference.predict(PAIRS, apply_softmax=True)
    assert np.ptp(expected, axis=0).min() > 0.1
    np.testing.assert_allclose(encoder.probabilities(PAIRS), expected, rtol=1e-3, atol=1e-5)
