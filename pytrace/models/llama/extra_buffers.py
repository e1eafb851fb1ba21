"""Which of llama.cpp's extra buffer types, which rearrange weights for this processor, may be used in this process.

llama.cpp asks each extra buffer type, for every tensor, whether it can hold it, and takes the first that can. Two things
can go wrong, and in native code both end the process: the AMX type dies at `ldtilecfg` (SIGSEGV) when GCC 12 compiled it,
and no type is tested on every processor. So AMX is taken off the list that llama.cpp goes through, and every other type
must once, in a child process, compute the products of small matrices as the plain buffer computes them. What the trial
found is remembered for this processor and these libraries.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import platform
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.models import child, registry

# Whether the tile configuration is written depends on the compiler at every single place, so no trial can clear it.
_NEVER = "AMX"
_TRIAL_SECONDS = 60.0
# Rows that 8 divides and 16 does not, whole blocks of every type (256 at most), and batches for which llama.cpp has
# different code: one token, less than a tile of 4, one tile and a rest, many tiles.
_ROWS, _COLUMNS, _BATCHES = 40, 512, (1, 3, 5, 32)
# Both sides round activations to 8 bits, not always to the same side: one such step among 512 moves a product by less.
_TOLERANCE = 0.02

_lock = threading.Lock()
_prepared: list[bool] = []


class _Verdict(msgspec.Struct, frozen=True):
    """What a trial found: the buffer types that passed, and why another did not."""

    passed: tuple[str, ...]
    refused: dict[str, str] = {}


def prepare(c: Any) -> tuple[str, ...]:
    """Leave on llama.cpp's list the extra buffer types that are safe here, and return their names."""
    with _lock:
        ggml = _Ggml(c)
        if not _prepared:
            names = ggml.keep_buffers(lambda name: name != _NEVER)
            passed = _remembered(_key(names)).passed if names else ()
            ggml.keep_buffers(lambda name: name in passed)
            _prepared.append(True)
        return tuple(ggml.buffers())


def _remembered(key: str) -> _Verdict:
    """Return what an earlier trial found, or try now; a trial that gave no answer is not remembered."""

    def trial() -> _Verdict:
        try:
            return child.run(try_buffers, returns=_Verdict, timeout=_TRIAL_SECONDS)
        except child.ChildFailedError as error:
            if not error.crashed:
                raise
            return _Verdict((), {"all": str(error)})

    try:
        return registry.remembered("llama-buffers.json", key, dict[str, _Verdict], trial)
    except child.ChildFailedError as error:
        return _Verdict((), {"all": str(error)})


def _key(names: tuple[str, ...]) -> str:
    """Return a string that changes with the processor and with the libraries."""
    return hashlib.sha256("\n".join([*names, processor_features(), libraries_sha256()]).encode()).hexdigest()


def libraries_sha256() -> str:
    """Return one SHA-256 over llama.cpp's libraries, which tells its builds apart."""
    digest = hashlib.sha256()
    for path in library_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def processor_name() -> str:
    """Return what the processor calls itself, or its architecture."""
    lines = (line.partition(":") for line in processor_features().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "model name"), platform.machine())


def processor_features() -> str:
    """Return the lines of /proc/cpuinfo that say what the first processor is and can do; empty where there is none."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return ""
    changing = ("processor", "cpu MHz", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id", "physical id")
    return "\n".join(line for line in first.splitlines() if line.partition("\t")[0].strip(" :") not in changing)


def library_files() -> tuple[Path, ...]:
    """Return the files of llama.cpp that this process has loaded (from the kernel's list: others may lie beside them)."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if len(line.split(maxsplit=5)) == 6}
    return tuple(sorted(path for path in paths if path.name.startswith(("libggml", "libllama")) and path.exists()))


def try_buffers() -> _Verdict:
    """Multiply small matrices of every type that a buffer can hold, in each buffer and in the plain one, and compare."""
    # Runs in a child process: a crash is an answer too.
    import llama_cpp

    llama_cpp.llama_backend_init()
    ggml = _Ggml(llama_cpp)
    ggml.keep_buffers(lambda name: name != _NEVER)
    passed, refused = [], {}
    for name, buffer in ggml.buffers().items():
        wrong = [kind for number, kind in ggml.weight_types(buffer).items() if not _agrees(ggml, buffer, number)]
        if wrong:
            refused[name] = f"computes wrongly with {', '.join(wrong)}"
        else:
            passed.append(name)
    return _Verdict(tuple(passed), refused)


def _agrees(ggml: _Ggml, buffer: int, kind: int) -> bool:
    random = np.random.default_rng(kind)
    weights = random.standard_normal((_ROWS, _COLUMNS)).astype(np.float32)
    for batch in _BATCHES:
        inputs = random.standard_normal((batch, _COLUMNS)).astype(np.float32)
        plain, special = (
            ggml.product(buffer_type, kind, weights, inputs) for buffer_type in (ggml.plain_buffer, buffer)
        )
        # Compared with <=, so that a NaN is a disagreement.
        if not np.abs(plain - special).max() <= _TOLERANCE * np.sqrt(np.mean(plain**2)):
            return False
    return True


class _Ggml:
    """The functions of ggml that are needed here, from the libraries that llama-cpp-python has loaded.

    They are looked up through the handle of libllama, whose dependencies they are: a second copy of ggml in the process,
    loaded from a path, would know nothing of the first one's back ends.
    """

    def __init__(self, c: Any) -> None:
        library = c.llama_cpp._lib
        pointer, size, wide, kind = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int

        def call(name: str, result: Any, *arguments: Any) -> Any:
            function = library[name]  # by index: an object of its own, so that others' prototypes stay theirs
            function.restype, function.argtypes = result, list(arguments)
            return function

        prefix = "GGML_TYPE_"
        self._types: dict[int, str] = {
            value: name.removeprefix(prefix)
            for name, value in vars(c).items()
            if name.startswith(prefix) and name != f"{prefix}COUNT"
        }
        self._buffer_name = call("ggml_backend_buft_name", ctypes.c_char_p, pointer)
        self._block_size = call("ggml_blck_size", wide, kind)
        self._row_size = call("ggml_row_size", size, kind, wide)
        self._is_quantized = call("ggml_is_quantized", ctypes.c_bool, kind)
        self._needs_importance = call("ggml_quantize_requires_imatrix", ctypes.c_bool, kind)
        self._quantize = call("ggml_quantize_chunk", size, kind, pointer, pointer, wide, wide, wide, pointer)
        self._init = call("ggml_init", pointer, _InitParameters)
        self._free = call("ggml_free", None, pointer)
        self._matrix = call("ggml_new_tensor_2d", pointer, pointer, kind, wide, wide)
        self._multiply = call("ggml_mul_mat", pointer, pointer, pointer, pointer)
        self._graph = call("ggml_new_graph", pointer, pointer)
        self._expand = call("ggml_build_forward_expand", None, pointer, pointer)
        self._place = call("ggml_backend_alloc_ctx_tensors_from_buft", pointer, pointer, pointer)
        self._release = call("ggml_backend_buffer_free", None, pointer)
        self._supports = call("ggml_backend_dev_supports_op", ctypes.c_bool, pointer, pointer)
        self._set = call("ggml_backend_tensor_set", None, pointer, pointer, size, size)
        self._get = call("ggml_backend_tensor_get", None, pointer, pointer, size, size)
        self._compute = call("ggml_backend_graph_compute", kind, pointer, pointer)
        self._start = call("ggml_backend_dev_init", pointer, pointer, ctypes.c_char_p)
        self._stop = call("ggml_backend_free", None, pointer)
        self._device = call("ggml_backend_dev_by_type", pointer, kind)(0)  # the CPU
        self.plain_buffer: int = call("ggml_backend_dev_buffer_type", pointer, pointer)(self._device)
        registration = call("ggml_backend_dev_backend_reg", pointer, pointer)(self._device)
        find = call("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
        address = find(registration, b"ggml_backend_dev_get_extra_bufts")
        # An array that ends with a null pointer; ggml makes it once a process and llama.cpp goes through it at each load.
        self._extra: Any = ctypes.CFUNCTYPE(ctypes.POINTER(pointer), pointer)(address)(self._device) if address else ()

    def buffers(self) -> dict[str, int]:
        """Return the extra buffer types that llama.cpp will go through, by name."""
        return {
            self._buffer_name(buffer_type).decode(): buffer_type
            for buffer_type in itertools.takewhile(bool, self._extra)
        }

    def keep_buffers(self, wanted: Callable[[str], bool]) -> tuple[str, ...]:
        """Take what is not wanted off llama.cpp's list, and return the names of the rest."""
        kept = {name: buffer_type for name, buffer_type in self.buffers().items() if wanted(name)}
        for index, buffer_type in enumerate([*kept.values(), None] if self._extra else []):
            self._extra[index] = buffer_type
        return tuple(kept)

    def weight_types(self, buffer: int) -> dict[int, str]:
        """Return the types of weights that a buffer says it can multiply with, by number."""
        types: dict[int, str] = {}
        for kind, name in self._types.items():
            block = self._block_size(kind)
            is_weight = self._is_quantized(kind) or name in {"F32", "F16", "BF16"}
            if not block or _COLUMNS % block or not is_weight or self._needs_importance(kind):
                continue
            with ExitStack() as stack:
                matrix = self._placed(stack, buffer, kind, _ROWS)
                inputs = self._placed(stack, self.plain_buffer, 0, 1)
                product = self._multiply(self._context(stack), matrix, inputs)
                if self._supports(self._device, product):
                    types[kind] = name
        return types

    def product(
        self, buffer: int, kind: int, weights: NDArray[np.float32], inputs: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return weights @ inputs, float32 [rows, batch], the weights held in `buffer` in the type `kind`."""
        packed = ctypes.create_string_buffer(self._row_size(kind, _COLUMNS) * len(weights))
        self._quantize(kind, weights.ctypes.data, packed, 0, len(weights), _COLUMNS, None)
        out = np.empty((len(inputs), len(weights)), np.float32)
        with ExitStack() as stack:
            matrix = self._placed(stack, buffer, kind, len(weights))
            self._set(matrix, packed, 0, len(packed))
            given = self._placed(stack, self.plain_buffer, 0, len(inputs))
            self._set(given, inputs.ctypes.data, 0, inputs.nbytes)
            context = self._context(stack)
            product = self._multiply(context, matrix, given)
            stack.callback(self._release, self._place(context, self.plain_buffer))
            graph = self._graph(self._context(stack))
            self._expand(graph, product)
            backend = self._start(self._device, None)
            stack.callback(self._stop, backend)
            if self._compute(backend, graph) != 0:
                out[:] = np.nan
            else:
                self._get(product, out.ctypes.data, 0, out.nbytes)
        return out.T

    def _context(self, stack: ExitStack) -> int:
        context: int = self._init(_InitParameters(1 << 20, None, True))
        stack.callback(self._free, context)
        return context

    def _placed(self, stack: ExitStack, buffer: int, kind: int, rows: int) -> int:
        context = self._context(stack)
        tensor: int = self._matrix(context, kind, _COLUMNS, rows)
        stack.callback(self._release, self._place(context, buffer))
        return tensor


class _InitParameters(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))
