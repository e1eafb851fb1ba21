from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

_Result = TypeVar("_Result", bound=tuple[Any, ...])

def num_threads() -> int: ...
def set_num_threads(threads: int, /) -> None: ...
def available_isas() -> list[str]: ...
def active_isa() -> str: ...
def set_active_isa(name: str, /) -> None: ...
def active_isa_error() -> str: ...
def end_on_signals(descriptor: int, seconds: float, /) -> None: ...
def set_last_words(words: str, /) -> None: ...
def end_now(signal: int, /) -> NoReturn: ...
def end_quietly_on_signal(signal: int, /) -> None: ...
def callback_addresses() -> dict[str, int]: ...
def logged_errors() -> list[str]: ...
def clear_logged_errors() -> None: ...
def raise_interruption() -> None: ...
def top_k(
    queries: npt.ArrayLike,
    items: npt.ArrayLike,
    k: int,
    metric: str,
    offsets: npt.ArrayLike | None,
    query_offsets: npt.ArrayLike | None,
    exclude: object,
    scale: npt.ArrayLike | None,
    threads: int | None,
    /,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]: ...
def similarity(
    queries: npt.ArrayLike, items: npt.ArrayLike, metric: str, scale: npt.ArrayLike | None, threads: int | None, /
) -> npt.NDArray[np.float32]: ...
def scaled_rows(
    parts: Sequence[tuple[NDArray[np.int8], NDArray[np.float32]]],
    owners: npt.ArrayLike,
    rows: npt.ArrayLike,
    dimension: int,
    threads: int | None,
    /,
) -> npt.NDArray[np.float32]: ...
def max_sim(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    query_offsets: npt.ArrayLike | None,
    document_offsets: npt.ArrayLike,
    candidates: object,
    k: int | None,
    scale: npt.ArrayLike | None,
    threads: int | None,
    /,
) -> Any: ...
def embedding_bag(
    table: npt.ArrayLike,
    tokens: npt.ArrayLike,
    offsets: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    mapping: npt.ArrayLike | None,
    scale: npt.ArrayLike | None,
    normalize: bool,
    threads: int | None,
    /,
) -> npt.NDArray[np.float32]: ...
def top_spans(
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    pairs: npt.ArrayLike,
    owners: npt.ArrayLike,
    offsets: npt.ArrayLike,
    top: int,
    max_tokens: int,
    max_characters: int,
    threads: int | None,
    /,
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]: ...
def normalize(vectors: npt.ArrayLike, threads: int | None, /) -> npt.NDArray[np.float32]: ...
def expand(
    chain_scores: npt.ArrayLike,
    option_logits: npt.ArrayLike,
    finished: npt.ArrayLike,
    beams: int,
    chains: int,
    min_prob: float,
    terminate: int | None,
    question_offsets: npt.ArrayLike | None,
    option_offsets: npt.ArrayLike | None,
    lengths: npt.ArrayLike | None,
    length_penalty: float,
    threads: int | None,
    result: type[_Result],
    /,
) -> _Result: ...
def log_sum_exp(logits: npt.ArrayLike, /) -> float: ...
def personalised_pagerank(
    offsets: npt.ArrayLike,
    targets: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    seeds: npt.ArrayLike,
    seed_offsets: npt.ArrayLike,
    seed_weights: npt.ArrayLike | None,
    restart: float,
    tolerance: float,
    k: int,
    threads: int | None,
    /,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]: ...
def expand_links(
    offsets: npt.ArrayLike,
    targets: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    seeds: npt.ArrayLike,
    seed_offsets: npt.ArrayLike,
    seed_weights: npt.ArrayLike | None,
    hops: int,
    budget: int,
    threads: int | None,
    /,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def alignment_score(
    a: object,
    b: object,
    match: float,
    mismatch: float,
    gap: float,
    gap_open: float,
    matrix: NDArray[np.float64] | None,
    function: int,
    /,
) -> float: ...
def align_pair(
    a: object,
    b: object,
    match: float,
    mismatch: float,
    gap: float,
    gap_open: float,
    matrix: NDArray[np.float64] | None,
    function: int,
    blank: object,
    trace_bytes: int,
    /,
) -> tuple[float, list[Any], list[Any], int, NDArray[np.int64], NDArray[np.int64]]: ...
def edit_distance(a: object, b: object, /) -> int: ...
def intern_paths(
    first: object, second: object, /
) -> tuple[tuple[NDArray[np.int32], NDArray[np.int64]], tuple[NDArray[np.int32], NDArray[np.int64]]]: ...
def align_batch(
    candidate_values: NDArray[np.int32],
    candidate_offsets: NDArray[np.int64],
    reference_values: NDArray[np.int32],
    reference_offsets: NDArray[np.int64],
    groups: NDArray[np.int64],
    match: float,
    mismatch: float,
    gap: float,
    gap_open: float,
    matrix: NDArray[np.float64] | None,
    function: int,
    threads: int,
    want_steps: bool,
    /,
) -> tuple[Any, ...]: ...
def covers(
    problems: list[tuple[Any, Any, Any]], exact: bool, seconds: float, threads: int, /
) -> list[tuple[tuple[int, ...], float, bool, float, tuple[Any, ...]]]: ...
def scope_covers(
    questions: list[tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]], recheck: bool, threads: int, /
) -> list[tuple[tuple[int, ...], bool, tuple[int, ...], tuple[int, ...]]]: ...
def word_scores(
    rows: NDArray[np.uint16],
    counts: NDArray[np.unsignedinteger[Any]],
    norms: NDArray[np.float32],
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    weights: NDArray[np.float32],
    offsets: npt.ArrayLike,
    threads: int | None,
    /,
) -> NDArray[np.float32]: ...
def word_top(
    rows: NDArray[np.uint16],
    counts: NDArray[np.unsignedinteger[Any]],
    norms: NDArray[np.float32],
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    weights: NDArray[np.float32],
    offsets: npt.ArrayLike,
    allowed: NDArray[np.bool_] | None,
    first: int,
    best_scores: NDArray[np.float32],
    best_rows: NDArray[np.int64],
    threads: int | None,
    /,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
def word_scores_of(
    rows: NDArray[np.uint16],
    counts: NDArray[np.unsignedinteger[Any]],
    starts: npt.ArrayLike,
    ends: npt.ArrayLike,
    weights: NDArray[np.float32],
    offsets: npt.ArrayLike,
    row_offsets: npt.ArrayLike,
    wanted: NDArray[np.uint16],
    norms: NDArray[np.float32],
    threads: int | None,
    /,
) -> NDArray[np.float32]: ...
def pair_features(
    frequencies: NDArray[np.int32],
    passages: int,
    questions: npt.ArrayLike,
    question_offsets: npt.ArrayLike,
    question_words: NDArray[np.int32],
    totals: NDArray[np.float64],
    offsets: npt.ArrayLike,
    vectors: npt.ArrayLike,
    scores: npt.ArrayLike,
    word_offsets: npt.ArrayLike,
    words: NDArray[np.int32],
    names: npt.ArrayLike,
    name_offsets: npt.ArrayLike,
    name_words: NDArray[np.int32],
    pair_offsets: npt.ArrayLike,
    firsts: npt.ArrayLike,
    seconds: npt.ArrayLike,
    forth: NDArray[np.float32],
    back: NDArray[np.float32],
    threads: int | None,
    /,
) -> NDArray[np.float64]: ...
def live_postings(
    rows: NDArray[np.uint16], live: NDArray[np.bool_], starts: npt.ArrayLike, ends: npt.ArrayLike, /
) -> NDArray[np.int64]: ...
def hash_texts(text: NDArray[np.uint8], offsets: npt.ArrayLike, threads: int | None, /) -> NDArray[np.uint64]: ...
def hash_words(
    text: NDArray[np.uint8], offsets: npt.ArrayLike, threads: int | None, /
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...
def number_words(
    text: NDArray[np.uint8], offsets: npt.ArrayLike, /
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.int64]]: ...
def turn_postings(
    rows: NDArray[np.uint16], starts: NDArray[np.uint32], count: int, first: int, far: int, /
) -> tuple[NDArray[np.uint16], NDArray[np.uint32]]: ...
def terms_of_rows(
    parts: Sequence[tuple[NDArray[np.uint16], NDArray[np.uint32], NDArray[np.int32]]],
    owners: npt.ArrayLike,
    rows: npt.ArrayLike,
    far: int,
    threads: int | None,
    /,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]: ...
def fuzzy_score(scorer: int, s1: object, s2: object, score_cutoff: float | None, /) -> float: ...
def fuzzy_extract(
    scorer: int, query: object, choices: object, limit: int | None, score_cutoff: float | None, /
) -> list[tuple[Any, float, Any]]: ...
def fuzzy_alignment(s1: object, s2: object, cutoff: float, /) -> tuple[float, int, int, int, int] | None: ...
def fuzzy_cdist(
    queries: tuple[object, ...],
    choices: tuple[object, ...],
    scorer: int,
    score_cutoff: float | None,
    multiplier: float,
    missing: float,
    threads: int,
    out: np.ndarray[Any, np.dtype[Any]],
    /,
) -> None: ...
def fuzzy_cpdist(
    queries: tuple[object, ...],
    choices: tuple[object, ...],
    scorer: int,
    score_cutoff: float | None,
    multiplier: float,
    missing: float,
    threads: int,
    out: np.ndarray[Any, np.dtype[Any]],
    /,
) -> None: ...
def fuzzy_matrix(
    queries: Iterable[object], choices: Iterable[object], scorer: int, multiplier: float, threads: int, /
) -> NDArray[np.float32]: ...
def fuzzy_vector(
    queries: Iterable[object], choices: Iterable[object], scorer: int, multiplier: float, threads: int, /
) -> NDArray[np.float32]: ...
def edit_matrix(
    queries: Iterable[object], choices: Iterable[object], metric: int, form: int, threads: int, /
) -> NDArray[Any]: ...
def edit_cdist(
    queries: tuple[object, ...],
    choices: tuple[object, ...],
    metric: int,
    form: int,
    score_cutoff: float | None,
    multiplier: float,
    missing: float,
    threads: int,
    prefix_weight: float,
    out: np.ndarray[Any, np.dtype[Any]],
    /,
) -> None: ...
def build_names(
    text: NDArray[np.uint8], offsets: npt.ArrayLike, threads: int | None, /
) -> tuple[
    NDArray[np.uint64],
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.uint64],
    NDArray[np.uint64],
    NDArray[np.int64],
]: ...
def find_names(
    hashes: NDArray[np.uint64],
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    firsts: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    texts: NDArray[np.uint8],
    text_offsets: npt.ArrayLike,
    index: bool,
    threads: int | None,
    /,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
