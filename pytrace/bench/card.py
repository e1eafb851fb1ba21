"""The card that is measured: what it is, what it does at best, and how arrays get there and back."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrace.bench.machine import fastest
from pytrace.bench.measurements import Limits
from pytrace.bench.peers import Peers
from pytrace.bench.stopwatch import Call
from pytrace.kernels import devices

DEVICE = "cuda"

# A copy of so much takes over a millisecond on the fastest card, beside which starting it is nothing.
COPY_BYTES = 2 << 30

# Rows of the square float16 matrices whose product shows the peak of the tensor cores: 128 MiB each.
PRODUCT = 8192

_SMI_FIELDS = {
    "driver_version": "driver_version",
    "clocks.max.sm": "max_multiprocessor_mhz",
    "clocks.max.memory": "max_memory_mhz",
    "clocks.sm": "multiprocessor_mhz_at_start",
    "power.limit": "power_limit_watts",
    "pcie.link.gen.max": "pcie_generation",
    "pcie.link.width.max": "pcie_lanes",
    "ecc.mode.current": "ecc",
}


class Card:
    """The first card that CUDA shows this process."""

    def __init__(self, peers: Peers, scale: float = 1.0) -> None:
        devices.require(DEVICE)
        self._module = devices.cuda_module()
        self._torch = peers.get("torch")
        self._scale = scale
        self._driver, self._runtime, _, listed = self._module.installation()
        self._number, self.name, self._major, self._minor, self._multiprocessors, self.memory = listed[0]

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Copy an array to the card: as PyTorch's, where it is there, for us and the peers alike."""
        copy = devices.to_device(array, DEVICE)
        return copy if self._torch is None else self._torch.from_dlpack(copy)

    def finished(self, call: Call) -> Call:
        """Make a peer's call wait until the card is through with it, as ours do."""

        def waited() -> object:
            result = call()
            self._torch.cuda.synchronize()
            return result

        return waited

    def has_room(self, size: int) -> bool:
        """Whether the card's memory holds so many bytes of arrays with room to work beside them."""
        # A peer keeps its scores and its own copy of what it selects from beside the items.
        return bool(size <= 0.8 * self.memory)

    def facts(self) -> dict[str, object]:
        """Collect what is known about the card, its driver and its clocks."""
        return {
            "name": self.name,
            "compute_capability": f"{self._major}.{self._minor}",
            "multiprocessors": self._multiprocessors,
            "memory_bytes": self.memory,
            "driver_serves_cuda": devices.version_text(self._driver),
            "module_built_with_cuda": devices.version_text(self._runtime),
            "emulated": bool(self._module.emulated),
        } | ({} if self._module.emulated else driver_facts(self.name))

    def measure(self) -> Limits:
        """Measure how fast the card copies within its memory, bytes read and written, and multiplies float16 matrices."""
        # The product is PyTorch's, and unknown without it.
        size = max(int(COPY_BYTES * self._scale), 1 << 12) // 4 * 4
        source = devices.to_device(np.zeros(size // 4, dtype=np.float32), DEVICE)
        target = devices.to_device(np.zeros(size // 4, dtype=np.float32), DEVICE)
        copy = fastest(lambda: self._module.copy_into(source, target), 9)
        flops = None
        if self._torch is not None:
            count = max(int(PRODUCT * self._scale), 64)
            square = self._torch.ones((count, count), dtype=self._torch.float16, device=DEVICE)
            flops = 2 * count**3 / fastest(self.finished(lambda: square @ square), 9)
        return Limits(2 * size / copy, flops)


def driver_facts(name: str) -> dict[str, object]:
    """Ask nvidia-smi for the driver's version and the clocks of the first card of a name; nothing where it cannot say."""
    # CUDA itself tells neither clocks nor limits of power, which explain most differences between two cards of a name.
    command = ["nvidia-smi", f"--query-gpu=name,{','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    for line in listed.splitlines():
        first, *values = (value.strip() for value in line.split(","))
        if first == name and len(values) == len(_SMI_FIELDS):
            return {
                field: value for field, value in zip(_SMI_FIELDS.values(), values, strict=True) if "N/A" not in value
            }
    return {}
