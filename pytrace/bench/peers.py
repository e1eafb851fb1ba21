"""The peers that kernels are measured beside: which there are, which are installed, and their threads."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Collection, Iterator
from importlib import metadata
from typing import Any, NamedTuple

from pytrace.bench.stopwatch import Call
from pytrace.kernels.devices import cuda_module

REMEDY = "pip install 'pytrace-rag[bench]'"
CUDA_REMEDY = "install their builds for this card's CUDA"


class Peer(NamedTuple):
    """A package, the module of it that benches call, the kernels that it is a peer of, and the extra that installs it."""

    package: str
    module: str
    kernels: tuple[str, ...]
    extra: str = "bench"


PEERS = {
    "faiss": Peer("faiss-cpu", "faiss", ("similarity",)),
    "hnswlib": Peer("hnswlib", "hnswlib", ("similarity",)),
    "usearch": Peer("usearch", "usearch.index", ("similarity",)),
    "rapidfuzz": Peer("rapidfuzz", "rapidfuzz", ("fuzzy", "alignment")),
    "sequence-align": Peer("sequence-align", "sequence_align.pairwise", ("alignment",)),
    "parasail": Peer("parasail", "parasail", ("alignment",)),
    "cp-sat": Peer("ortools", "ortools.sat.python.cp_model", ("set_cover",)),
    "scipy": Peer("scipy", "scipy.sparse", ("walk",)),
    "rustworkx": Peer("rustworkx", "rustworkx", ("walk",)),
    "pyahocorasick": Peer("pyahocorasick", "ahocorasick", ("names",)),
    "torch": Peer("torch", "torch", ("late_interaction", "bags"), extra="train"),  # too large for `bench`
    "ahocorasick-rs": Peer("ahocorasick-rs", "ahocorasick_rs", ("names",)),
}


CUDA_PEERS = {
    "torch": Peer("torch", "torch", ("similarity", "beam")),
    "cupy": Peer("cupy", "cupy", ("similarity",)),
    "faiss": Peer("faiss-gpu", "faiss", ("similarity",)),
}

# Whether a peer can use a card: libraries of the same name are built with CUDA and without.
_FINDS_CARD: dict[str, Callable[[Any], bool]] = {
    "torch": lambda torch: torch.cuda.is_available(),
    "cupy": lambda cupy: cupy.cuda.runtime.getDeviceCount() > 0,
    "faiss": lambda faiss: hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0,
}


class Peers:
    """The peers of some kernels, imported; `missing` names the packages that are not there, and why."""

    def __init__(self, kernels: Collection[str], device: str = "cpu") -> None:
        self.missing: dict[str, str] = {}
        self.remedy = REMEDY if device == "cpu" else CUDA_REMEDY
        self._modules: dict[str, Any] = {}
        self._table = PEERS if device == "cpu" else CUDA_PEERS
        emulated = device != "cpu" and cuda_module().emulated
        for name, peer in self._table.items():
            if not set(peer.kernels) & set(kernels):
                continue
            if emulated:  # its memory is the host's, which none of them could read as a card's
                self.missing[peer.package] = "the card is emulated"
                continue
            try:
                # Later than this the limits on threads would not find its library.
                module = importlib.import_module(peer.module)
                if device == "cpu" or _FINDS_CARD[name](module):
                    self._modules[name] = module
                else:
                    self.missing[peer.package] = "this build of it finds no card"
            except ImportError as error:
                why = (
                    "not installed" if peer.extra == "bench" else f"not installed, comes with the extra {peer.extra!r}"
                )
                self.missing[peer.package] = why if version(peer.package) is None else str(error)
            except Exception as error:  # noqa: BLE001 - a broken native library raises whatever it likes
                self.missing[peer.package] = f"cannot be loaded ({error})"

    def get(self, name: str) -> Any:
        """Return a peer's module, or None where it is missing."""
        return self._modules.get(name)

    def calls(self, name: str, make: Callable[[Any], dict[str, Call]]) -> dict[str, Call]:
        """Return the calls that `make` makes of a peer's module, or none where the peer is missing."""
        module = self.get(name)
        return {} if module is None else make(module)

    def versions(self) -> dict[str, str]:
        """Return the versions of the peers that are here and of the libraries that they rest on."""
        versions = {
            self._table[name].package: version(self._table[name].package) or getattr(module, "__version__", None)
            for name, module in self._modules.items()
        } | {package: version(package) for package in ("numpy", "threadpoolctl")}
        return {package: str(number) for package, number in versions.items() if number is not None}


def version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@contextlib.contextmanager
def limited_threads(threads: int, peers: Peers) -> Iterator[str | None]:
    """Hold pytrace's and the peers' thread pools to `threads`; yields a warning where the peers' cannot be held."""
    from pytrace import _core

    before = _core.num_threads()
    _core.set_num_threads(threads)
    faiss = peers.get("faiss")
    if faiss is not None:
        faiss.omp_set_num_threads(threads)
    try:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            yield f"NumPy's threads keep their own default, because threadpoolctl is not installed ({REMEDY})"
        else:
            # NumPy's BLAS and the peers' OpenMP have pools of their own, which no setting of ours reaches.
            with threadpool_limits(limits=threads):
                yield None
    finally:
        _core.set_num_threads(before)
