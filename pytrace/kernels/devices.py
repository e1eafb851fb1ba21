"""Where a kernel runs: the processor, or a CUDA card through the module `pytrace._cuda`, loaded on first use.

Every function with a CUDA form takes ``device``: None runs where the arrays lie, ``"cpu"`` on the processor, ``"cuda"`` or
``"cuda:1"`` on a card. What was asked for and cannot be used raises `DeviceUnavailableError`, which says what was found;
nothing falls back in silence.

Arrays on a card are those of CuPy, PyTorch or whoever speaks DLPack or ``__cuda_array_interface__``, and those of
`to_device`. They are read where they lie, and the results are arrays of the same library on the same card. NumPy's arrays
are copied to the card, and their results back.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrace.errors import DeviceUnavailableError

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged

_module: ModuleType | None = None


def cuda_module() -> ModuleType:
    """Return `pytrace._cuda`, loaded on first use."""
    global _module  # noqa: PLW0603 (one module a process, and tests put the emulated card's in its place)
    if _module is None:
        try:
            _module = importlib.import_module("pytrace._cuda")
        except ModuleNotFoundError:
            raise DeviceUnavailableError(
                "this build of pytrace has no CUDA module; build it where nvcc is on the PATH "
                "(pip install --config-settings=cmake.define.PYTRACE_CUDA=on), or use device='cpu'"
            ) from None
        except ImportError as error:
            raise DeviceUnavailableError(
                f"the CUDA module cannot be loaded ({error}); reinstall pytrace, or use device='cpu'"
            ) from None
    return _module


def on_card(array: object) -> bool:
    """Whether an array says that its values lie on a CUDA card."""
    # The usual kinds first: a search among a hundred items takes 2 us, and asking by attribute would be felt.
    kind = type(array)
    if kind is np.ndarray or kind is list or kind is tuple or array is None:
        return False
    dlpack_device = getattr(array, "__dlpack_device__", None)
    if dlpack_device is not None:
        return int(dlpack_device()[0]) in _DLPACK_CUDA
    return getattr(array, "__cuda_array_interface__", None) is not None


def card_of(device: str | None, *arrays: object) -> int | None:
    """Decide where a call runs."""
    # -1 stands for "some card": that of the arrays, or the first.
    if device is None:
        return -1 if any(map(on_card, arrays)) else None
    if device == "cpu":
        if any(map(on_card, arrays)):
            raise ValueError(
                "device is 'cpu', but an array lies on a card; copy it to the processor first, or leave device out"
            )
        return None
    kind, colon, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    # Four digits at most, so that the number fits CUDA's int; isdecimal alone would take digits of other scripts.
    if kind != "cuda" or (colon and not (number.isascii() and number.isdecimal() and len(number) < 5)):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', not {device!r}")
    return int(number) if colon else -1


def results(result: Any, *arrays: object) -> Any:
    """Give a result on a card as an array of the library that its input comes from."""
    if isinstance(result, np.ndarray):
        return result
    for array in arrays:
        # An input made by `to_device` asks for no other library: its results are of that class already.
        if not on_card(array) or type(array) is type(result):
            continue
        # Whoever made the array has imported its library; pytrace itself depends on none of them.
        library = sys.modules.get(type(array).__module__.partition(".")[0])
        from_dlpack = getattr(library, "from_dlpack", None)
        return result if from_dlpack is None else from_dlpack(result)
    return result


def to_device(array: npt.ArrayLike, device: str = "cuda") -> Any:
    """Copy an array to a card, to be searched there again and again."""
    card = card_of(device)
    if card is None:
        raise ValueError(f"device must be 'cuda' or 'cuda:N', not {device!r}")
    module = cuda_module()
    module.require_device(max(card, 0))
    return module.to_device(array, max(card, 0))


def to_host(array: Any) -> npt.NDArray[Any]:
    """Return an array as NumPy's: itself if it is one, else a copy of what lies on a card."""
    if not on_card(array):
        return np.asarray(array)
    # Every library's array becomes one of ours first, so that one way back to the host is enough.
    if not isinstance(array, cuda_module().Array):
        dlpack_device = getattr(array, "__dlpack_device__", None)
        array = cuda_module().to_device(array, 0 if dlpack_device is None else int(dlpack_device()[1]))
    values: npt.NDArray[Any] = array.numpy()
    return values


def require(device: str) -> None:
    """Refuse a device that cannot be used, before anything is loaded for it."""
    card = card_of(device)
    if card is None:
        return
    module = cuda_module()
    try:
        module.require_device(max(card, 0))
    except DeviceUnavailableError as error:
        # Whether the driver is older than the module's CUDA shows only beside both versions.
        driver, runtime, _, _ = module.installation()
        versions = f"the CUDA module was built with CUDA {version_text(runtime)}"
        if driver:
            versions += f", the driver serves CUDA {version_text(driver)}"
        raise DeviceUnavailableError(
            f"device {device!r} cannot be used: {error} ({versions}); correct that, or use device 'cpu'"
        ) from None


def version_text(version: int) -> str:
    """Word a version as CUDA numbers it."""
    return f"{version // 1000}.{version % 1000 // 10}"


def empty_cache() -> None:
    """Free the memory that finished calls keep on cards for the next; does nothing where no call has used a card."""
    if _module is not None:
        _module.empty_cache()


def thread_limit(threads: int | None) -> int:
    """Check the number of threads of a call on the processor and return it as the core takes it: 0 for its default."""
    # The core could not tell its own 0 for "the default" from a caller's 0, so that is refused here.
    if threads is None:
        return 0
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return threads
