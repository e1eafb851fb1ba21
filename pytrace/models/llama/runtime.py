"""A typed layer over the C functions of llama.cpp that llama-cpp-python exposes: load, tokenise, decode, forget.

Nothing here knows of prompts or methods. The high-level class of llama-cpp-python decodes one sequence at a time; the
functions below decode tokens of many sequences in one call, and let sequences share the cells of one key-value cache.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import DeviceUnavailableError, MissingDependencyError, ModelError, ModelFileError
from pytrace.models.llama import extra_buffers as llama_buffers
from pytrace.models.registry.model_files import check_gguf


@functools.cache
def library() -> Any:
    """Import llama-cpp-python once, with the errors that it logs kept in memory instead of printed."""
    try:
        import llama_cpp
    except ImportError as error:
        raise MissingDependencyError(
            "llama-cpp-python is not installed; \"pip install 'pytrace-rag[cpu]'\" compiles it, which takes a C++ compiler; without "
            "one, install a bundle that 'pytrace bundle' made on another machine, or give the address of a model on a server"
        ) from error
    except (OSError, RuntimeError) as error:  # a shared library that it needs is not there, or not for this processor
        raise MissingDependencyError(
            f"llama-cpp-python cannot be loaded ({error}); install the library that it names (libgomp.so.1 is in Debian's libgomp1), or "
            "reinstall it: pip install --force-reinstall --no-deps llama-cpp-python"
        ) from error

    # Where it aborts, ggml would start a debugger, which prints on stdout.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    llama_cpp.llama_log_set(_native(llama_cpp.llama_log_callback, "log"), ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


def _native(kind: Any, name: str) -> Any:
    """Return a function of the core as llama.cpp calls it back."""
    return kind(_core.callback_addresses()[name])


def supports_gpu_offload() -> bool:
    """Whether this build of llama.cpp can put layers on a GPU that is there."""
    return bool(library().llama_supports_gpu_offload())


def require_offload(gpu_layers: int) -> None:
    """Refuse layers on a GPU where this llama.cpp can put none."""
    if gpu_layers != 0 and not supports_gpu_offload():
        wanted = "all" if gpu_layers < 0 else gpu_layers
        raise DeviceUnavailableError(
            f"{wanted} layers were asked for on a GPU, but this llama.cpp has no GPU back end or finds no GPU; install "
            "llama-cpp-python built with CMAKE_ARGS='-DGGML_CUDA=on', or leave the option out"
        )


def why() -> str:
    """Return what llama.cpp said went wrong last: the first error names the cause, later ones the functions that gave up."""
    return next(filter(None, map(str.strip, _core.logged_errors())), "it gives no reason")


class LoadedModel:
    """The weights and the vocabulary of one model file, and the context that a subclass makes for them."""

    def __init__(self, path: Path, *, gpu_layers: int) -> None:
        self._context: Any = None
        self._model: Any = None
        self._gate = threading.Lock()
        self._path = path
        self._c = c = library()
        check_gguf(path)
        require_offload(gpu_layers)
        model_parameters = c.llama_model_default_params()
        model_parameters.n_gpu_layers = gpu_layers
        model_parameters.use_extra_bufts = bool(llama_buffers.prepare(c))
        model_parameters.progress_callback = _native(c.llama_progress_callback, "progress")
        _core.clear_logged_errors()
        self._model = c.llama_model_load_from_file(os.fsencode(path), model_parameters)
        _core.raise_interruption()
        if not self._model:
            raise ModelFileError(f"{path}: llama.cpp cannot load this model: {why()}; pull it again or choose another")
        self._vocabulary = c.llama_model_get_vocab(self._model)
        # A token number of -1 says that the model has none.
        self.bos = int(c.llama_vocab_bos(self._vocabulary))
        self.eos = int(c.llama_vocab_eos(self._vocabulary))
        self.adds_bos = self.bos >= 0 and bool(c.llama_vocab_get_add_bos(self._vocabulary))
        self.trained_context = int(c.llama_model_n_ctx_train(self._model))
        self.parameters = int(c.llama_model_n_params(self._model))
        self.vocabulary_size = int(c.llama_vocab_n_tokens(self._vocabulary))

    def _context_parameters(self, threads: int) -> Any:
        """Return what every context here has: threads, one cache for all sequences, an end by a signal."""
        parameters = self._c.llama_context_default_params()
        parameters.n_threads = threads
        parameters.n_threads_batch = threads
        parameters.kv_unified = True
        parameters.abort_callback = _native(self._c.ggml_abort_callback, "abort")
        parameters.no_perf = True
        return parameters

    def _cache_bytes(self, cells: int, number_bytes: int) -> int:
        """Return about what the keys and values of so many cells take."""
        c, model = self._c, self._model
        width = c.llama_model_n_embd(model) * c.llama_model_n_head_kv(model) // max(c.llama_model_n_head(model), 1)
        needed: int = cells * c.llama_model_n_layer(model) * 2 * width * number_bytes
        return needed // 8 if c.llama_model_n_swa(model) > 0 else needed  # most layers keep a window alone

    def _check_memory(self, what: str, needed: int) -> None:
        """Refuse what this machine cannot hold: it would be killed while that is cleared."""
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise ModelError(
                f"{self._path}: {what} takes {needed / 1e9:,.0f} GB, and this machine has {there / 1e9:,.0f}; "
                f"ask for a smaller one (the model was trained for {self.trained_context:,})"
            )

    def close(self) -> None:
        """Free the context and the weights."""
        with self._gate:
            # Forgotten before it is freed: an interrupt in between must not have it freed twice.
            context, self._context = self._context, None
            if context:
                self._c.llama_free(context)
            model, self._model = self._model, None
            if model:
                self._c.llama_model_free(model)

    def check_open(self) -> None:
        """Refuse to touch native memory that is freed."""
        if not self._context:
            raise ModelError("this model was closed; load it again")

    def __del__(self) -> None:
        """Free native memory that nobody freed."""
        if getattr(self, "_c", None) is not None:
            self.close()

    def metadata(self, key: str) -> str | None:
        """Return what the model's file says under a key, as text; None if it says nothing."""
        name = key.encode("utf-8", "replace")
        if b"\0" in name:
            return None
        with self._gate:
            self.check_open()
            length = self._c.llama_model_meta_val_str(self._model, name, None, 0)
            if length < 0:
                return None
            buffer = ctypes.create_string_buffer(length + 1)
            self._c.llama_model_meta_val_str(self._model, name, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def template(self, name: str | None = None) -> str | None:
        """Return the file's chat template, or the one of a name; None if it has none."""
        template = self._c.llama_model_chat_template(self._model, None if name is None else name.encode())
        return template.decode("utf-8", "replace") if template else None

    def token_text(self, token: int) -> str:
        """Return a token as the vocabulary spells it, control tokens too; nothing for -1."""
        if token < 0:
            return ""
        return bytes(self._c.llama_vocab_get_text(self._vocabulary, token)).decode("utf-8", "replace")

    def tokenize(self, text: str, *, special: bool = False, framed: bool = False) -> list[int]:
        """Turn a text into tokens; control tokens are recognised in it only if `special`, and put around it if `framed`."""
        data = text.encode("utf-8", "replace")
        size = len(data) + 8
        with self._gate:
            self.check_open()
            for _ in range(2):
                buffer = (ctypes.c_int32 * size)()
                count = self._c.llama_tokenize(self._vocabulary, data, len(data), buffer, size, framed, special)
                if count >= 0:
                    return buffer[:count]
                size = -count  # a vocabulary without a token for the space spells it in three
        raise ModelError(f"llama.cpp cannot tokenise a text of {len(data)} bytes")

    def decode(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequence_counts: NDArray[np.int32],
        sequence_addresses: NDArray[np.uint64],
        wanted: NDArray[np.int8],
    ) -> bool:
        """Evaluate tokens, each for all the sequences it belongs to, and keep their keys and values."""
        c = self._c
        self.check_open()

        def pointer(array: NDArray[Any], kind: Any) -> Any:
            return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))

        batch = c.llama_batch(
            n_tokens=len(tokens),
            token=pointer(tokens, ctypes.c_int32),
            embd=None,
            pos=pointer(positions, ctypes.c_int32),
            n_seq_id=pointer(sequence_counts, ctypes.c_int32),
            seq_id=pointer(sequence_addresses, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(wanted, ctypes.c_int8),
        )
        _core.clear_logged_errors()
        status = c.llama_decode(self._context, batch)
        _core.raise_interruption()
        if status == 1:
            return False
        if status != 0:
            raise ModelError(f"llama.cpp failed to decode {len(tokens)} tokens (status {status}): {why()}")
        return True


class LlamaRuntime(LoadedModel):
    """One loaded model with one context whose key-value cells all sequences share."""

    def __init__(
        self,
        path: Path,
        *,
        cells: int,
        sequences: int,
        batch: int,
        threads: int,
        gpu_layers: int = 0,
        float32_cache: bool = False,
        flash_attention: bool | None = None,
    ) -> None:
        super().__init__(path, gpu_layers=gpu_layers)
        c = self._c
        self.chat_template = self.template()
        unsuitable = {
            "an encoder-decoder": c.llama_model_has_encoder(self._model),
            "a recurrent": c.llama_model_is_recurrent(self._model),
            "a hybrid recurrent": c.llama_model_is_hybrid(self._model),
            "a diffusion": c.llama_model_is_diffusion(self._model),
        }
        for kind, is_so in unsuitable.items():
            if is_so:
                raise ModelFileError(
                    f"{path}: {kind} model cannot share prefixes between prompts; choose a causal transformer"
                )
        if gpu_layers == 0:
            needed = self._cache_bytes(cells, 4 if float32_cache else 2)
            self._check_memory(f"a context of {cells:,} cells", needed)
        context_parameters = self._context_parameters(threads)
        context_parameters.n_ctx = max(cells, sequences)
        # llama.cpp reserves an output for every sequence; a batch or context smaller than that aborts the process.
        context_parameters.n_batch = max(batch, sequences)
        context_parameters.n_ubatch = min(max(batch, sequences), 512)
        context_parameters.n_seq_max = sequences
        if float32_cache:
            context_parameters.type_k = context_parameters.type_v = 0  # GGML_TYPE_F32
            # Flash attention on a CPU rounds large batches and small ones differently: 3e-3 in a log-probability.
            flash_attention = False
        if flash_attention is None and gpu_layers == 0:
            flash_attention = True
        if flash_attention is not None:
            context_parameters.flash_attn_type = (
                c.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention else c.LLAMA_FLASH_ATTN_TYPE_DISABLED
            )
        _core.clear_logged_errors()
        self._context = c.llama_init_from_model(self._model, context_parameters)
        if not self._context:
            raise ModelError(
                f"{path}: llama.cpp cannot make a context of {cells} cells: {why()}; ask for a smaller one"
            )
        self._memory = c.llama_get_memory(self._context)
        if not self._memory:
            raise ModelFileError(f"{path} holds an encoder, which writes no text; name it as the encoder instead")
        self.cells = min(cells, int(c.llama_n_ctx(self._context)))
        self.sequences = sequences
        # llama.cpp takes no more than its context in one batch, and aborts the process at one token more.
        self.batch = min(batch, int(c.llama_n_batch(self._context)))
        self._pieces: dict[int, bytes] = {}

    @property
    def build(self) -> tuple[str, str]:
        """What decides, beside the model, what llama.cpp computes: its version, and which instructions it uses."""
        return self._c.__version__, self._c.llama_print_system_info().decode("utf-8", "replace")

    def ends(self, token: int) -> bool:
        """Whether a token ends generation."""
        return bool(self._c.llama_vocab_is_eog(self._vocabulary, token))

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; a control token has none."""
        known = self._pieces.get(token)
        if known is None:
            size = 256
            for _ in range(2):
                buffer = ctypes.create_string_buffer(size)
                count = self._c.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, False)
                if count >= 0:
                    break
                size = -count  # what a longer token needs
            known = self._pieces[token] = buffer.raw[: max(count, 0)]
        return known

    def logits(self, index: int) -> NDArray[np.float32]:
        """Return the logits of the batch's entry `index`, float32 [vocabulary]; valid until the next decode."""
        row = self._c.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(row, shape=(self.vocabulary_size,))

    def share(self, source: int, target: int, end: int) -> None:
        """Let sequence `target` use the first `end` cells of sequence `source`."""
        self._c.llama_memory_seq_cp(self._memory, source, target, 0, end)

    def forget(self, sequence: int, start: int = 0) -> None:
        """Remove a sequence's positions from `start` on; cells that nobody uses become free."""
        self._c.llama_memory_seq_rm(self._memory, sequence, start, -1)

    def save(self, sequence: int) -> NDArray[np.uint8]:
        """Copy the keys and values of a sequence out of its cells."""
        size = self._c.llama_state_seq_get_size(self._context, sequence)
        # Pages of its own, which the system has back when it goes: the heap would keep holes of megabytes between others.
        state = np.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=np.uint8)
        written = self._c.llama_state_seq_get_data(self._context, _bytes_at(state), state.nbytes, sequence)
        return state[:written]

    def restore(self, sequence: int, state: NDArray[np.uint8]) -> bool:
        """Put saved keys and values into cells of an empty sequence; false if there is no room, and nothing has changed."""
        return bool(self._c.llama_state_seq_set_data(self._context, _bytes_at(state), state.nbytes, sequence))

    def clear(self) -> None:
        """Remove everything from memory."""
        self._c.llama_memory_clear(self._memory, False)

    def grammar(self, text: str) -> Grammar:
        """Compile a grammar in GBNF whose start symbol is `root`."""
        data = text.encode("utf-8", "replace")
        if not data.strip() or b"\0" in data:
            raise ModelError(
                "the grammar is empty or has a zero byte in it; give GBNF rules with a start symbol 'root'"
            )
        with self._gate:
            self.check_open()
            _core.clear_logged_errors()
            sampler = self._c.llama_sampler_init_grammar(self._vocabulary, data, b"root")
        if not sampler:
            raise ModelError(f"llama.cpp cannot parse the grammar: {why()}; give GBNF rules with a start symbol 'root'")
        return Grammar(self._c, sampler)


def _bytes_at(array: NDArray[np.uint8]) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_uint8))


class Grammar:
    """The state of one sequence in a grammar."""

    def __init__(self, c: Any, sampler: Any) -> None:
        self._c = c
        self._sampler = sampler

    def __del__(self) -> None:
        """Free the native sampler."""
        self._c.llama_sampler_free(self._sampler)

    def clone(self) -> Grammar:
        """Return a copy that goes its own way."""
        return Grammar(self._c, self._c.llama_sampler_clone(self._sampler))

    def filter(self, tokens: NDArray[np.int32], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of `tokens` with -inf where the grammar forbids one."""
        c = self._c
        data = np.zeros(len(tokens), dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        data["id"] = tokens
        data["logit"] = logits
        array = c.llama_token_data_array(
            data=ctypes.cast(data.ctypes.data, ctypes.POINTER(c.llama_token_data)),
            size=len(data),
            selected=-1,
            sorted=False,
        )
        c.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return np.ascontiguousarray(data["logit"][: array.size])

    def accept(self, token: int) -> None:
        """Advance by a token that the grammar allows."""
        self._c.llama_sampler_accept(self._sampler, token)
