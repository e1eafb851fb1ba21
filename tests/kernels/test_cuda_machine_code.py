"""What nvcc made of the kernels: machine code for every card, nothing spilled, the tensor cores and wide loads in use.

Read with NVIDIA's cuobjdump from the built module, so that it needs no card.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]


def tool(name: str) -> Path:
    """Return one of NVIDIA's programs: of the toolkit, or of the wheels in the test group."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    for folder in map(Path, sys.path):
        program = folder / "nvidia" / "cu13" / "bin" / name
        if program.is_file():
            return program
    pytest.skip(f"{name} is not installed (pip install nvidia-cuda-{name})")


@cache
def dump(*options: str) -> str:
    spec = importlib.util.find_spec("pytrace._cuda")
    if spec is None or spec.origin is None:
        pytest.skip("this build has no CUDA module; `make cuda-check` makes one where nvcc is")
    # cuobjdump asks nvdisasm for the listing.
    folders = os.pathsep.join([str(tool("nvdisasm").parent), os.environ.get("PATH", "")])
    result = subprocess.run(
        [tool("cuobjdump"), *options, spec.origin],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PATH": folders},
    )
    return result.stdout


@cache
def functions(architecture: str) -> dict[str, str]:
    """Return the listing of every kernel for one architecture, by its mangled name."""
    text = dump("--dump-sass", "--gpu-architecture", architecture)
    parts = re.split(r"^\s*Function : (\S+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_module_carries_machine_code_for_every_card_and_portable_code():
    listed = dump("--list-elf", "--list-ptx")
    assert sorted(set(re.findall(r"\.(sm_\d+)\.cubin", listed))) == sorted(ARCHITECTURES)
    assert set(re.findall(r"\.(sm_\d+)\.ptx", listed)) == {"sm_80"}


def test_no_kernel_keeps_more_than_two_registers_in_memory():
    """Some keep one or two on the newest cards, outside of their loops: 8 bytes; an array indexed at run time is more."""
    text = dump("-res-usage")
    used = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    assert len(used) >= 100 * len(ARCHITECTURES)
    spilled = {name: (int(stack), int(local)) for name, _, stack, local in used if int(stack) > 8 or int(local)}
    assert spilled == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_product_runs_on_tensor_cores_fed_by_asynchronous_copies(architecture):
    kernels = {name: text for name, text in functions(architecture).items() if "append_passing" in name}
    assert len(kernels) == 6  # three metrics, two types
    for name, text in kernels.items():
        products, loads = len(re.findall(r"\bHMMA", text)), len(re.findall(r"\bLDSM", text))
        # A warp's 64 x 64 tile: 32 products and 8 loads of four matrices for every 16 columns.
        assert (products, products // loads) == (64, 4), name
        assert re.search(r"LDGSTS\S*128", text), name


def wide_loads(text: str) -> int:
    """Count the loads of sixteen bytes in the longest run of them that no arithmetic interrupts."""
    return max(
        len(re.findall(r"\bLDG\S*128", run))
        for run in re.split(r"\bF(?:FMA|MUL|ADD)\b|\bH(?:FMA|MUL|ADD)2|\bI2F", text)
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_scan_reads_rows_sixteen_bytes_at_a_time_several_before_the_first_is_used(architecture):
    kernels = [  # one query, inner product
        text
        for name, text in functions(architecture).items()
        if re.search(r"scan_unitsI.*Li1ELNS_6MetricE0ELb1E", name)
    ]
    assert len(kernels) == 4
    assert min(map(wide_loads, kernels)) >= 4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_product_reads_rows_ahead_before_and_after_the_tensor_cores(architecture):
    names = functions(architecture)
    in_place = [text for name, text in names.items() if re.search(r"prepare_itemsI.*Lb0E", name)]
    assert len(in_place) == 2
    assert min(map(wide_loads, in_place)) >= 3
    refined = [text for name, text in names.items() if "keep_best" in name]
    assert len(refined) == 12
    assert min(map(wide_loads, refined)) >= 4
    written = [text for name, text in names.items() if re.search(r"prepare_itemsI.*Lb1E", name)]
    assert len(written) == 4
    # Rounded rows go out in whole packs, and not value by value.
    assert all(set(re.findall(r"\bSTG\.E(?:\.\w+)?", text)) == {"STG.E.128"} for text in written)
