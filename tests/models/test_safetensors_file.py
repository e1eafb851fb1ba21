"""Reading safetensors: every dtype, what is missing, and files that are none."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pytrace.errors import ModelFileError
from pytrace.models.encoders.safetensors_file import read_tensors


def test_every_dtype_is_read_with_its_shape_and_bfloat16_becomes_float32(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 100, (2, 3))
    kinds = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
    tensors = {kind: values.astype(kind) for kind in kinds}
    save_file(tensors, tmp_path / "a.safetensors")
    read = read_tensors(tmp_path / "a.safetensors")
    assert set(read) == set(tensors)
    for kind, tensor in tensors.items():
        assert read[kind].dtype == tensor.dtype
        np.testing.assert_array_equal(read[kind], tensor)
    halves = random.standard_normal((4, 5)).astype(ml_dtypes.bfloat16)
    path = tmp_path / "b.safetensors"
    # safetensors' NumPy form has no bfloat16 either.
    save_file({"w": halves.view(np.uint16)}, path)
    path.write_bytes(path.read_bytes().replace(b'"U16"', b'"BF16"').replace(b"  ", b" ", 1))
    read = read_tensors(path)
    assert read["w"].dtype == np.float32
    np.testing.assert_array_equal(read["w"], halves.astype(np.float32))


def test_a_missing_tensor_and_a_broken_number_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"weight": np.ones(2, np.float32), "bias": np.array([1, np.nan], np.float32)}, path)
    assert set(read_tensors(path, ["weight"])) == {"weight"}
    with pytest.raises(ModelFileError, match=r"a.safetensors has no tensor 'scale', but bias, weight; fetch"):
        read_tensors(path, ["scale"])
    with pytest.raises(ModelFileError, match="NaN or infinity in 'bias'"):
        read_tensors(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 16, b"version https://git-lfs.github.com/spec/v1\n" * 3])
def test_a_file_that_is_none_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"a.safetensors cannot be read as safetensors \(.+\); fetch the model again$"
    ):
        read_tensors(path)
    path.unlink()
    with pytest.raises(ModelFileError, match=r"cannot be read"):
        read_tensors(path)
