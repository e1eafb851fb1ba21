from typing import Any, type_check_only

import numpy as np
import numpy.typing as npt

emulated: bool

@type_check_only
class _Type(type): ...

class Array(metaclass=_Type):
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: object = None,
        dl_device: object = None,
        copy: object = None,
    ) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def numpy(self) -> npt.NDArray[Any]: ...
    def __len__(self) -> int: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def installation() -> tuple[int, int, str, list[tuple[int, str, int, int, int, int]]]: ...
def require_device(device: int, /) -> None: ...
def empty_cache() -> None: ...
def to_device(array: object, device: int, /) -> Array: ...
def copy_into(source: Array, target: Array, /) -> None: ...
def normalize(vectors: object, device: int, /) -> npt.NDArray[np.float32] | Array: ...
def top_k(
    queries: object,
    items: object,
    k: int,
    metric: str,
    offsets: object,
    query_offsets: object,
    exclude: object,
    scale: object,
    device: int,
    /,
) -> tuple[Any, Any]: ...
def similarity(queries: object, items: object, metric: str, scale: object, device: int, /) -> Any: ...
def fuzzy_cdist(
    queries: object,
    choices: object,
    scorer: int,
    score_cutoff: float,
    multiplier: float,
    missing: float,
    out: npt.NDArray[Any],
    device: int,
    /,
) -> None: ...
def fuzzy_cpdist(
    queries: object,
    choices: object,
    scorer: int,
    score_cutoff: float,
    multiplier: float,
    missing: float,
    out: npt.NDArray[Any],
    device: int,
    /,
) -> None: ...
def align_batch(
    candidate_values: object,
    candidate_offsets: object,
    reference_values: object,
    reference_offsets: object,
    groups: object,
    match: float,
    mismatch: float,
    gap: float,
    gap_open: float,
    matrix: object,
    want_steps: bool,
    device: int,
    /,
) -> tuple[Any, ...]: ...
def expand(
    chain_scores: object,
    option_logits: object,
    finished: object,
    beams: int,
    chains: int,
    min_prob: float,
    terminate: int | None,
    question_offsets: object,
    option_offsets: object,
    lengths: object,
    length_penalty: float,
    device: int,
    /,
) -> tuple[Any, ...]: ...
