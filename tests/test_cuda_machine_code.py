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
        pytest.skip("this build has no CUDA module: nvcc was not found")
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


def functions(architecture: str) -> dict[str, str]:
    """Return the listing of every kernel for one architecture, by its mangled name."""
    text = dump("--dump-sass", "--gpu-architecture", architecture)
    parts = re.split(r"^\s*Function : (\S+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_module_carries_machine_code_for_every_card_and_portable_code():
    listed = dump("--list-elf", "--list-ptx")
    assert sorted(set(re.findall(r"\.(sm_\d+)\.cubin", listed))) == sorted(ARCHITECTURES)
    assert set(re.findall(r"\.(sm_\d+)\.ptx", listed)) == {"sm_120"}


def test_no_kernel_spills_registers_into_memory():
    text = dump("-res-usage")
    used = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    assert len(used) >= len(ARCHITECTURES)
    spilled = {name: (int(stack), int(local)) for name, _, stack, local in used if int(stack) or int(local)}
    assert spilled == {}
