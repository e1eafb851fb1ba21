"""What prompts begin with is evaluated once for all processes: the same answers for fewer tokens, whatever happens to the files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrace.models.language_model import Completion, Prompt
from pytrace.models.llama import prompt_cache
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.prompt_cache import PromptCache, kept_files
from tests.gguf_files import write_random_gguf

SHOWN = (("one two three four five six seven", "eight"), ("nine ten eleven twelve thirteen", "fourteen"))
INSTRUCTION = "Count as far as you can, and say what comes next; nothing else is asked of you."


def prompt(text: str, *, lasting: bool = True) -> Prompt:
    return Prompt(INSTRUCTION, SHOWN, text, lasting=lasting)


def opened(path: Path, cache: Path | None, **settings: Any) -> LlamaCppModel:
    return LlamaCppModel(path, threads=1, context=512, prompt_cache=cache, **settings)


def asked(model: LlamaCppModel, *texts: str) -> tuple[list[list[Completion]], int]:
    """Return what a model writes, and how many tokens it evaluated for that."""
    before = model.usage.evaluated_tokens
    written = model.generate([prompt(text) for text in texts], max_tokens=5)
    return written, model.usage.evaluated_tokens - before


@pytest.mark.parametrize("style", ["chat", "plain"])
def test_a_later_process_reads_only_what_is_new(random_gguf: Path, tmp_path: Path, style: Any) -> None:
    with opened(random_gguf, tmp_path, style=style) as first:
        written, whole = asked(first, "fifteen")
        spent = first.usage
    assert len(kept_files(tmp_path)) == 1
    with opened(random_gguf, tmp_path, style=style) as second:
        again, fewer = asked(second, "fifteen")
        assert again == written  # to the last bit: both go on from the same numbers
        assert (second.usage.calls, second.usage.prompt_tokens) == (spent.calls, spent.prompt_tokens)
        start = len(second.render(prompt(""))) - 20
        assert start > 100
        assert fewer <= whole - start
        scores = second.score_options([prompt("a"), prompt("b")], [["A", "B"]] * 2)
        ends = second.score_continuations([prompt("a")], [["xyz", "xyy"]])[0]
    with opened(random_gguf, None, style=style) as plain:
        expected = plain.score_options([prompt("a"), prompt("b")], [["A", "B"]] * 2)
        for score, other in zip(scores, expected, strict=True):
            np.testing.assert_allclose(score.log_probabilities, other.log_probabilities, atol=2e-2)
        for end, other_end in zip(ends, plain.score_continuations([prompt("a")], [["xyz", "xyy"]])[0], strict=True):
            np.testing.assert_allclose(end.token_log_probabilities, other_end.token_log_probabilities, atol=2e-2)
    assert len(kept_files(tmp_path)) == 1


def test_what_does_not_last_is_not_kept(random_gguf: Path, tmp_path: Path) -> None:
    with opened(random_gguf, tmp_path) as model:
        model.generate([prompt("fifteen", lasting=False), "a text as it stands " * 20], max_tokens=2)
        model.generate([Prompt("Short.", (), "fifteen", lasting=True)], max_tokens=2)
    with opened(random_gguf, tmp_path, deterministic=True) as model:
        asked(model, "fifteen")
    assert kept_files(tmp_path) == []


def test_what_memory_has_no_room_for_is_not_written_either(random_gguf: Path, tmp_path: Path) -> None:
    with opened(random_gguf, None) as plain, opened(random_gguf, tmp_path, swap_bytes=1000) as model:
        assert asked(model, "fifteen")[0][0][0].text == asked(plain, "fifteen")[0][0][0].text
    assert kept_files(tmp_path) == []


def test_demonstrations_that_do_not_fit_are_dropped_as_without_a_cache(random_gguf: Path, tmp_path: Path) -> None:
    long = "fifteen " * 15
    written = []
    for cache in (None, tmp_path):
        with LlamaCppModel(random_gguf, threads=1, context=256, prompt_cache=cache) as model:
            written.append(model.generate([prompt(long)], max_tokens=5)[0][0].text)
            assert model.demonstrations_dropped > 0
    assert written[0] == written[1]


def test_another_model_or_setting_has_its_own(random_gguf: Path, tmp_path: Path) -> None:
    other = write_random_gguf(tmp_path / "other.gguf", seed=1)
    cache = tmp_path / "cache"
    written = {}
    for name, path, settings in (
        ("half", random_gguf, {}),
        ("other", other, {}),
        ("whole", random_gguf, {"float32_cache": True}),
    ):
        with opened(path, cache, **settings) as model:
            written[name] = asked(model, "fifteen")
    assert len(kept_files(cache)) == 3
    assert len({tokens for _, tokens in written.values()}) == 1


@pytest.mark.parametrize("fault", ["cut", "changed", "empty", "other state", "directory"])
def test_what_is_damaged_is_evaluated_anew(random_gguf: Path, tmp_path: Path, fault: str) -> None:
    with opened(random_gguf, tmp_path) as model:
        written, whole = asked(model, "fifteen")
    ((_, size, path),) = kept_files(tmp_path)
    content = bytearray(path.read_bytes())
    if fault == "directory":
        path.unlink()
        path.mkdir()
    elif fault == "other state":  # whole, but nothing that llama.cpp wrote
        tokens = model_tokens(path)
        path.unlink()
        prompt_cache.write_arrays(path, {"tokens": tokens, "state": np.full(5000, 7, dtype=np.uint8)})
    else:
        content[size // 2] ^= 255
        path.write_bytes({"cut": content[: size // 2], "changed": content, "empty": b""}[fault])
    for _ in range(2):
        with opened(random_gguf, tmp_path) as model:
            again, tokens_read = asked(model, "fifteen")
        # Of a state that llama.cpp refuses nothing is used, and the whole prompt is read at once.
        assert again[0][0].text == written[0][0].text
        assert fault == "other state" or again == written
    if fault in ("cut", "changed", "empty"):
        assert tokens_read < whole - 100
        assert path.stat().st_size == size


def model_tokens(path: Path) -> Any:
    with prompt_cache.ArrayFile.open(path, what="a test", remedy="") as file:
        return file["tokens"].copy()


def test_a_place_that_cannot_be_written_costs_only_time(random_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with opened(random_gguf, tmp_path / "file" / "cache") as model:
        assert asked(model, "fifteen")[0][0][0].tokens > 0


def test_the_directory_is_bounded_and_what_was_used_last_stays(tmp_path: Path) -> None:
    cache = PromptCache(tmp_path, "model", most_bytes=10_000)
    prompts = [np.full(9, number, dtype=np.int32) for number in range(4)]
    for number, tokens in enumerate(prompts[:3]):
        cache.save(tokens, np.full(3_000, number, dtype=np.uint8))
        os.utime(cache._path(tokens), ns=(number, number))
    assert cache.load(prompts[0]) is not None  # and so it is the last one used
    cache.save(prompts[3], np.zeros(3_000, dtype=np.uint8))
    assert [cache.load(tokens) is not None for tokens in prompts] == [True, False, True, True]
    cache.save(prompts[1], np.zeros(10_001, dtype=np.uint8))  # more than there is room for in all
    assert [cache.load(tokens) is not None for tokens in prompts] == [True, False, True, True]
    assert PromptCache(tmp_path, "another").load(prompts[0]) is None
    # What a killed process left is deleted once nobody can be writing it any more.
    for name, age in ((".old.1.partial", 7200.0), (".new.2.partial", 0.0)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    cache.save(prompts[3], np.zeros(3_000, dtype=np.uint8))
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".new.2.partial"]


def test_threads_that_ask_first_at_once_get_what_one_gets(random_gguf: Path, tmp_path: Path) -> None:
    with opened(random_gguf, None) as plain:
        expected = {text: plain.generate([prompt(text)], max_tokens=5)[0][0].text for text in "abcd"}
    got: dict[str, str] = {}
    with opened(random_gguf, tmp_path) as model:

        def ask(text: str) -> None:
            got[text] = model.generate([prompt(text)], max_tokens=5)[0][0].text

        threads = [threading.Thread(target=ask, args=(text,)) for text in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == expected
    assert len(kept_files(tmp_path)) == 1
