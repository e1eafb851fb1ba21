"""What prompts leave in memory, and calls of several threads: shared, put aside, told of, and never in each other's way."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace.errors import ModelError
from pytrace.models.language_model import Completion
from pytrace.models.llama.evicted_prefixes import EvictedPrefixes
from pytrace.models.llama.llama_cpp import LlamaCppModel
from tests.engine_checks import assert_close, random_prompts


def test_memory_holds_what_the_books_say(model: LlamaCppModel) -> None:
    model.generate(["abc", "abf"], max_tokens=9, n=3)
    model.score_continuations(["abe"], [["xyz", "xyy"]])
    runtime, scheduler = model._runtime, model._scheduler
    held = {node.sequence: node.end - 1 for node in scheduler._trie.root.below() if not node.children}
    # "ab", which the two written prompts share, and its longer form "abe"; of "abc" and "abf" nothing more is kept.
    assert list(held.values()) == [2]
    for sequence in range(runtime.sequences):
        last = runtime._c.llama_memory_seq_pos_max(runtime._memory, sequence)
        assert last == held.get(sequence, -1)


def test_kept_prompts_stay_below_reuse_tokens(random_gguf: Path) -> None:
    settings = {"context": 100, "threads": 1, "max_parallel": 2}
    with LlamaCppModel(random_gguf, reuse_tokens=30, **settings) as model:  # type: ignore[arg-type]
        for letter in "abcdefg":
            model.score_options([letter * 20], [["A"]])
        usage = model.usage
        for letter in "gabcdef":  # the last one first
            model.score_options([letter * 20], [["A"]])
        # 30 cells hold one prompt of 20 tokens: of 140 tokens 19 were there.
        assert (model.usage - usage).evaluated_tokens == 140 - 19


def test_what_prompts_shared_comes_back_from_outside_the_cells(random_gguf: Path, alone: LlamaCppModel) -> None:
    beginning = "abcd" * 20
    prompts = [beginning + ending for ending in "xyz"]
    others = [letter * 150 for letter in "efg"]
    evaluated = {}
    for swap_bytes in (0, 1 << 20):
        with LlamaCppModel(
            random_gguf, threads=1, context=256, float32_cache=True, reuse_tokens=100, swap_bytes=swap_bytes
        ) as model:
            model.score_options(prompts[:2], [["A", "B"]] * 2)
            for other in others:  # each by itself, so that it is kept in cells
                model.score_options([other], [["A"]])
            usage = model.usage
            scores = model.score_options(prompts[2:], [["A", "B"]])[0]
            evaluated[swap_bytes] = (model.usage - usage).evaluated_tokens
            assert_close(scores.log_probabilities, alone.score_options(prompts[2:], [["A", "B"]])[0].log_probabilities)
            stash = model._scheduler._evicted
            assert stash.bytes <= swap_bytes
            assert stash.knows(model.render(beginning)) == (swap_bytes > 0)
    assert evaluated == {0: 81, 1 << 20: 1}


def test_what_one_prompt_began_with_is_there_for_the_next_call_though_it_did_not_fit_the_cells(
    random_gguf: Path, alone: LlamaCppModel
) -> None:
    beginning = "abcd" * 20
    with LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True, reuse_tokens=20) as model:
        for ending in "xyz":
            usage = model.usage
            scores = model.score_options([beginning + ending], [["A", "B"]])[0]
            expected = alone.score_options([beginning + ending], [["A", "B"]])[0]
            assert_close(scores.log_probabilities, expected.log_probabilities)
            assert (model.usage - usage).evaluated_tokens == (81 if ending == "x" else 1)


def test_the_stash_keeps_what_was_used_last_within_its_bytes() -> None:
    stash = EvictedPrefixes(100)
    first, second, longer = (np.array(tokens, dtype=np.int32) for tokens in ([1, 2], [3, 4, 5], [1, 2, 6, 7]))
    stash.put(first, np.zeros(40, dtype=np.uint8))
    stash.put(second, np.zeros(40, dtype=np.uint8))
    assert stash.knows(first)
    assert stash.knows(first[:1])
    assert not stash.knows(longer)
    size, tokens, state = stash.longest(longer) or (0, None, None)
    assert (size, tokens is first, state is not None) == (2, True, True)
    stash.put(np.array([9], dtype=np.int32), np.zeros(40, dtype=np.uint8))  # `second` was used less recently
    assert (len(stash), stash.bytes, stash.longest(second)) == (2, 80, None)
    stash.put(longer, np.zeros(60, dtype=np.uint8))  # it continues `first`, which goes
    assert (len(stash), stash.bytes, stash.knows(first)) == (2, 100, True)
    stash.put(second, np.zeros(101, dtype=np.uint8))  # too big for any place
    assert (len(stash), stash.bytes) == (2, 100)
    stash.clear()
    assert (len(stash), stash.bytes, stash.longest(longer)) == (0, 0, None)


def test_threads_may_share_a_model(model: LlamaCppModel, alone: LlamaCppModel) -> None:
    prompts = [["a" * 20, "ab"], ["b" * 20, "é"], ["abc", "a" * 19], ["x", "yz"]]
    expected = [[alone.generate([one], max_tokens=9)[0][0].text for one in two] for two in prompts]
    got: dict[int, list[list[str]]] = {index: [] for index in range(len(prompts))}

    def work(index: int) -> None:
        for _ in range(5):
            got[index].append([row[0].text for row in model.generate(prompts[index], max_tokens=9)])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {index: [texts] * 5 for index, texts in enumerate(expected)}


def test_one_decode_carries_the_scoring_of_one_thread_and_the_generation_of_another(
    model: LlamaCppModel, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_text = alone.generate(["abab"], max_tokens=12)[0][0].text
    expected_scores = alone.score_options(["ba" * 9], [["A", "B"]])[0].log_probabilities
    decode = model._runtime.decode
    sizes: list[int] = []
    begun, asked = threading.Event(), threading.Event()

    def slow_decode(*arrays: NDArray[np.int32]) -> bool:
        sizes.append(len(arrays[0]))
        begun.set()
        assert asked.wait(30)
        while len(sizes) == 1 and not model._scheduler._inbox:  # until the other call stands in line
            time.sleep(0.001)
        return decode(*arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(model._runtime, "decode", slow_decode)
    texts: list[str] = []
    writer = threading.Thread(target=lambda: texts.append(model.generate(["abab"], max_tokens=12)[0][0].text))
    writer.start()
    assert begun.wait(30)
    asked.set()
    scores = model.score_options(["ba" * 9], [["A", "B"]])[0].log_probabilities
    writer.join()
    assert texts == [expected_text]
    assert_close(scores, expected_scores)
    # The prompt of 4 tokens; then 18 scored tokens together with one written; then the others written, one at a time.
    assert sizes == [4, 19, *[1] * 10]


def test_a_caller_is_told_of_each_prompt_when_it_is_finished(model: LlamaCppModel) -> None:
    prompts, limits = ["ab", "ba", "abab"], [9, 2, 5]
    told: list[tuple[int, int]] = []

    def tell(index: int, completions: list[Completion]) -> None:
        assert len(completions) == 2
        told.append((index, model.usage.batches))

    results = model.generate(prompts, max_tokens=limits, n=2, done=tell)
    assert len(told) == len(prompts)
    assert dict(told) == {
        index: max(completion.tokens for completion in group) for index, group in enumerate(results)
    }  # one decode a token, the prompt's first


def test_what_the_caller_does_when_told_cannot_hurt_the_model(model: LlamaCppModel, alone: LlamaCppModel) -> None:
    def ask_again(*_: object) -> None:
        model.generate(["again"], max_tokens=1)

    with pytest.raises(ModelError, match="called from a function that it had called"):
        model.generate(["ab"], max_tokens=3, done=ask_again)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.generate(["ab", "ba"], max_tokens=[3, 9], done=fail)
    assert model.generate(["ab"], max_tokens=5)[0][0].text == alone.generate(["ab"], max_tokens=5)[0][0].text


def test_what_a_caller_raises_is_raised_in_its_own_thread(
    model: LlamaCppModel, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone.generate(["abab"], max_tokens=20)[0][0].text
    decode = model._runtime.decode
    begun = threading.Event()

    def slow_decode(*arrays: NDArray[np.int32]) -> bool:
        if not begun.is_set():
            begun.set()
            while not model._scheduler._inbox:
                time.sleep(0.001)
        return decode(*arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(model._runtime, "decode", slow_decode)
    texts: list[str] = []
    driver = threading.Thread(target=lambda: texts.append(model.generate(["abab"], max_tokens=20)[0][0].text))
    driver.start()
    assert begun.wait(30)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):  # the other thread drives, and calls this one's function
        model.generate(["ba", "bb"], max_tokens=[2, 50], done=fail)
    driver.join()
    assert texts == [expected]
    assert not model._scheduler._writing
    assert not model._scheduler._waiting


def test_scoring_passes_by_texts_that_wait_for_their_turn(
    random_gguf: Path, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True, max_parallel=1) as model:
        decode = model._runtime.decode
        begun = threading.Event()
        sizes: list[int] = []

        def slow_decode(*arrays: NDArray[np.int32]) -> bool:
            sizes.append(len(arrays[0]))
            if len(sizes) == 1:
                begun.set()
                while not model._scheduler._inbox:
                    time.sleep(0.001)
            return decode(*arrays)  # type: ignore[arg-type]

        monkeypatch.setattr(model._runtime, "decode", slow_decode)
        texts: list[list[Completion]] = []
        writer = threading.Thread(target=lambda: texts.extend(model.generate(["aa", "ab", "ac"], max_tokens=9)))
        writer.start()
        assert begun.wait(30)
        scores = model.score_options(["zz"], [["A", "B"]])[0].log_probabilities  # sorts behind all that wait
        writer.join()
        assert_close(scores, alone.score_options(["zz"], [["A", "B"]])[0].log_probabilities)
        # Two tokens of "aa"; then the scored two with one written, although "ab" and "ac" stood before them.
        assert sizes[:3] == [2, 3, 1]
        assert [row[0].text for row in texts] == [
            alone.generate([prompt], max_tokens=9)[0][0].text for prompt in ["aa", "ab", "ac"]
        ]


def test_a_failure_in_one_thread_is_told_to_the_others(model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = model._runtime.decode
    begun = threading.Event()

    def broken_decode(*_: object) -> bool:
        begun.set()
        while not model._scheduler._inbox:
            time.sleep(0.001)
        raise ModelError("broken")

    monkeypatch.setattr(model._runtime, "decode", broken_decode)
    errors: list[str] = []

    def write() -> None:
        with pytest.raises(ModelError) as caught:
            model.generate(["ab"], max_tokens=3)
        errors.append(str(caught.value))

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(30)
    with pytest.raises(ModelError, match=r"another thread failed .*\(broken\); ask again"):
        model.score_options(["ba"], [["A"]])
    writer.join()
    assert errors == ["broken"]
    monkeypatch.setattr(model._runtime, "decode", decode)
    assert model.generate(["ab"], max_tokens=3)[0][0].tokens == 3


def test_a_deterministic_model_repeats_to_the_last_bit_whatever_was_asked_before(random_gguf: Path) -> None:
    prompts = random_prompts(np.random.default_rng(5), 12)
    labels = [["A", "B"]] * len(prompts)

    def ask(model: LlamaCppModel) -> tuple[list[list[float]], list[float], list[list[float]]]:
        scores = [one.log_probabilities.tolist() for one in model.score_options(prompts, labels)]
        texts = [row[0].log_probability for row in model.generate(prompts, max_tokens=7, temperature=0.9, seed=3)]
        continued = model.score_continuations(prompts, [["ab", "é"]] * len(prompts))
        return scores, texts, [[one.log_probability for one in row] for row in continued]

    options = {"threads": 1, "context": 256, "deterministic": True}
    with LlamaCppModel(random_gguf, **options) as model:  # type: ignore[arg-type]
        assert model.deterministic
        first = ask(model)
        model.generate(prompts[::-1], max_tokens=30)
        usage = model.usage
        assert ask(model) == first
        spent = model.usage - usage
    with LlamaCppModel(random_gguf, **options) as model:  # type: ignore[arg-type]
        assert ask(model) == first
        assert (model.usage.evaluated_tokens, model.usage.batches) == (spent.evaluated_tokens, spent.batches)
