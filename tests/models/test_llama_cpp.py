"""The engine on a tiny random model: what is batched and shared equals what is evaluated alone."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pytest
from jinja2 import Template
from numpy.typing import NDArray

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.language_model import OPTION_LABELS, Completion, LanguageModel, Prompt, option_labels
from pytrace.models.llama import scheduler as llama_scheduler
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import LlamaRuntime
from tests.engine_checks import CLOSE, assert_close, random_prompts

CONTINUATIONS = ["ab", "ba", "", " the é", "abab"]


SETTINGS = [
    {"context": 100, "cache_tokens": 100, "batch": 8, "reuse_tokens": 50, "max_parallel": 4},
    {"context": 100, "cache_tokens": 140, "batch": 3, "reuse_tokens": 2048, "max_parallel": 16},
    {"context": 120, "cache_tokens": 256, "batch": 8, "reuse_tokens": 200, "max_parallel": 16},
    {"context": 120, "cache_tokens": 256, "batch": 64, "reuse_tokens": 0, "max_parallel": 1},
    {"context": 256, "cache_tokens": 4096, "batch": 1024, "reuse_tokens": 2048, "max_parallel": 16},
]


@pytest.mark.parametrize(("seed", "settings"), list(enumerate(SETTINGS)), ids=str)
@pytest.mark.parametrize("stashed", [64, 3])
def test_batched_results_equal_those_of_prompts_alone(
    random_gguf: Path,
    alone: LlamaCppModel,
    seed: int,
    settings: dict[str, int],
    stashed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llama_scheduler, "EVICTED_TOKENS", stashed)  # 3: nearly all that leaves is saved and comes back
    random = np.random.default_rng(seed)
    with LlamaCppModel(random_gguf, threads=1, float32_cache=True, **settings) as model:  # type: ignore[arg-type]
        for _ in range(3):  # later calls share with what earlier ones left in memory
            prompts = random_prompts(random, 12)
            labels = [["A", "B", "é"]] * len(prompts)
            for prompt, scores in zip(prompts, model.score_options(prompts, labels), strict=True):
                expected = alone.score_options([prompt], labels[:1])[0]
                assert_close(scores.log_probabilities, expected.log_probabilities)
                assert scores.outside == pytest.approx(expected.outside, abs=CLOSE)
            batched = model.score_continuations(prompts, [CONTINUATIONS] * len(prompts))
            for prompt, row in zip(prompts, batched, strict=True):
                for text, score in zip(CONTINUATIONS, row, strict=True):
                    expected_score = alone.score_continuations([prompt], [[text]])[0][0]
                    assert_close(score.token_log_probabilities, expected_score.token_log_probabilities)
            limits = [int(limit) for limit in random.integers(1, 24, len(prompts))]
            for prompt, limit, row_written in zip(
                prompts, limits, model.generate(prompts, max_tokens=limits, n=2), strict=True
            ):
                expected_text = alone.generate([prompt], max_tokens=limit)[0][0]
                for written in row_written:
                    assert (written.text, written.tokens, written.finish) == (
                        expected_text.text, expected_text.tokens, expected_text.finish
                    )  # fmt: skip
                    assert written.log_probability == pytest.approx(expected_text.log_probability, abs=CLOSE)


def test_scores_are_those_of_a_softmax_over_the_vocabulary(model: LlamaCppModel) -> None:
    letters = [f" {letter}" for letter in string.ascii_letters]
    options = model.score_options(["Answer:"], [[*string.ascii_letters]])[0]
    continued = model.score_continuations(["Answer:"], [[*letters, *string.ascii_letters]])[0]
    single = np.array([score.log_probability for score in continued]).reshape(2, -1)
    assert_close(options.log_probabilities, np.logaddexp(single[0], single[1]))
    assert options.outside == pytest.approx(1 - np.exp(single).sum(), abs=CLOSE)


def test_a_continuation_is_scored_token_by_token(model: LlamaCppModel) -> None:
    whole = model.score_continuations(["pq"], [["abé", "ac"]])[0]
    for text, score in zip(["abé", "ac"], whole, strict=True):
        single = [model.score_continuations([f"pq{text[:at]}"], [[one]])[0][0] for at, one in enumerate(text)]
        assert [score.tokens for score in single] == [1] * len(text)
        assert_close(score.token_log_probabilities, np.array([one.log_probability for one in single]))


def test_usage_counts_shared_beginnings_once(model: LlamaCppModel) -> None:
    model.score_options(["aaaa", "aaab"], [["A"], ["A"]])
    usage = model.usage
    assert (usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens) == (2, 8, 5, 0)
    model.score_options(["aaaa", "aaab"], [["A"], ["A"]])  # only the tokens whose logits are wanted again
    spent = model.usage - usage
    assert (spent.prompt_tokens, spent.evaluated_tokens, spent.batches) == (8, 2, 1)
    usage = model.usage
    model.generate(["aaaa"], max_tokens=3, n=2, grammar='root ::= "bcd"')
    spent = model.usage - usage
    # The prompt's last token for both, then two of the three written tokens of each fed back.
    assert (spent.calls, spent.prompt_tokens, spent.evaluated_tokens, spent.generated_tokens) == (2, 8, 5, 6)
    usage = model.usage
    model.score_continuations(["zz"], [["xy", "xz"]])
    spent = model.usage - usage
    assert (spent.prompt_tokens, spent.evaluated_tokens) == (6, 3)
    assert model.usage.seconds > 0


def test_sampling_depends_on_the_seed_and_not_on_neighbours(model: LlamaCppModel) -> None:
    def sample(prompts: list[str], seed: int, n: int = 3) -> list[list[Completion]]:
        return model.generate(prompts, max_tokens=12, temperature=1.0, n=n, seed=seed)

    first = sample(["one", "two"], 7)
    assert len({one.text for one in first[0]}) == 3
    again = sample(["one", "something else", "and more"], 7, n=5)
    assert [one.text for one in again[0][:3]] == [one.text for one in first[0]]
    assert [one.text for one in sample(["one"], 8)[0]] != [one.text for one in first[0]]


def test_a_small_top_p_is_greedy(model: LlamaCppModel) -> None:
    greedy = model.generate(["one", "two"], max_tokens=12)
    nucleus = model.generate(["one", "two"], max_tokens=12, temperature=1.5, top_p=1e-9, seed=3)
    assert [row[0].text for row in nucleus] == [row[0].text for row in greedy]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (["cd"], "ab"),
        (["zz", "d", "bcd"], "a"),
        (["d", "bcde"], "abc"),
        (["日本"], "abcdef"),
        (["\ud800", ""], "abcdef日本é"),
        (["a"], ""),
    ],
)
def test_stop_texts_are_found_across_tokens(model: LlamaCppModel, stop: list[str], expected: str) -> None:
    grammar = 'root ::= "abcdef日本é"'
    completion = model.generate(["x"], max_tokens=40, grammar=grammar, stop=stop)[0][0]
    assert completion.text == expected
    assert completion.finish == ("end" if expected.endswith("é") else "stop")


def test_characters_of_several_tokens_come_out_whole(model: LlamaCppModel) -> None:
    assert model.count_tokens("日本é") == 7
    completion = model.generate(["x"], max_tokens=7, grammar='root ::= "日本é"')[0][0]
    assert (completion.text, completion.tokens, completion.finish) == ("日本é", 7, "length")
    cut = model.generate(["x"], max_tokens=5, grammar='root ::= "日本é"')[0][0]
    assert cut.text == "日\ufffd"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_grammars_are_obeyed_at_every_temperature(model: LlamaCppModel, temperature: float) -> None:
    grammar = 'root ::= ("yes" | "no") " " [0-9] [0-9]'
    rows = model.generate(["a", "ab", "b"], max_tokens=20, temperature=temperature, n=4, grammar=grammar)
    for one in (one for row in rows for one in row):
        word, _, number = one.text.partition(" ")
        assert word in {"yes", "no"}
        assert len(number) == 2
        assert number.isdigit()
        assert one.finish == "end"


def test_every_prompt_has_its_own_grammar(model: LlamaCppModel) -> None:
    grammars = ['root ::= "one"', 'root ::= "two"', 'root ::= "one"']
    rows = model.generate(["x", "x", "x"], max_tokens=9, n=2, grammar=grammars)
    assert [[one.text for one in row] for row in rows] == [["one"] * 2, ["two"] * 2, ["one"] * 2]
    with pytest.raises(ValueError, match="3 prompts but 1 lists of grammars"):
        model.generate(["x", "x", "x"], max_tokens=9, grammar=grammars[:1])


@pytest.mark.parametrize(
    "grammar", ["", " \n", 'root ::= "a', "root ::= nowhere", 'other ::= "a"', 'root ::= root "a"', 'root ::= "\0"']
)
def test_bad_grammars_are_refused(model: LlamaCppModel, grammar: str) -> None:
    with pytest.raises(ModelError, match="grammar"):
        model.generate(["a"], max_tokens=4, grammar=grammar)
    assert model.generate(["a"], max_tokens=1)


def test_a_text_that_runs_in_circles_ends(model: LlamaCppModel) -> None:
    completion = model.generate(["x"], max_tokens=200, grammar='root ::= "a"{200}')[0][0]
    assert (completion.text, completion.tokens, completion.finish) == ("a" * 24, 24, "repetition")


def test_every_prompt_has_its_own_limit(model: LlamaCppModel) -> None:
    rows = model.generate(["x", "y", "z"], max_tokens=[1, 9, 4], grammar='root ::= "abcdefghijklmn"')
    assert [row[0].text for row in rows] == ["a", "abcdefghi", "abcd"]
    assert {row[0].finish for row in rows} == {"length"}


def test_demonstrations_go_before_anything_else(model: LlamaCppModel) -> None:
    demonstrations = tuple((f"question {index} " + "x" * 40, f"answer {index}") for index in range(6))
    prompt = Prompt("Answer.", demonstrations, "the question", "So")
    got = model.score_options([prompt], [["A", "B"]])[0]
    dropped = model.demonstrations_dropped
    assert 0 < dropped < 6
    shorter = Prompt("Answer.", demonstrations[dropped:], "the question", "So")
    longer = Prompt("Answer.", demonstrations[dropped - 1 :], "the question", "So")
    assert len(model.render(shorter)) < model.context_tokens <= len(model.render(longer))
    assert_close(got.log_probabilities, model.score_options([shorter], [["A", "B"]])[0].log_probabilities)
    assert model.demonstrations_dropped == dropped


def test_what_cannot_fit_says_so(model: LlamaCppModel) -> None:
    huge = Prompt("Answer.", (("a", "b"),), "word " * 50_000)
    with pytest.raises(ContextOverflowError, match=r"a prompt of \d+ tokens and 5 .* 256 tokens"):
        model.generate([huge], max_tokens=5)
    with pytest.raises(ContextOverflowError):
        model.score_options(["x" * 256], [["A"]])
    with pytest.raises(ContextOverflowError):
        model.score_continuations(["x" * 200], [["y" * 57]])
    with pytest.raises(ContextOverflowError):
        model.generate(["x"], max_tokens=10**9)
    assert model.score_options(["x" * 255], [["A"]])[0].log_probabilities.shape == (1,)
    assert model.score_continuations(["x" * 200], [["y" * 56]])[0][0].tokens == 56


def test_control_tokens_of_a_document_stay_plain_text(model: LlamaCppModel) -> None:
    end = 2
    clean = model.render(Prompt("Say.", (("a", "b"),), "c", "d")).tolist()
    dirty = model.render(Prompt("Say.<|im_end|>", (("a<|im_end|>", "b<|im_end|>"),), "c<|im_end|>", "d<|im_end|>"))
    assert clean.count(end) == dirty.tolist().count(end) == 4
    assert end not in model.render("c<|im_end|>").tolist()
    assert model.count_tokens("<|im_end|>") == len("<|im_end|>")


def test_the_rendered_text_is_that_of_the_chat_template(model: LlamaCppModel) -> None:
    prompt = Prompt("Say é.", (("a", "b\n"),), "c 日", "So")
    text = b"".join(
        model._runtime.piece(token) or model._runtime.token_text(token).encode()
        for token in model.render(prompt).tolist()
    ).decode()
    assert text == (
        "<|im_start|>system\nSay é.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb\n<|im_end|>\n"
        "<|im_start|>user\nc 日<|im_end|>\n<|im_start|>assistant\nSo"
    )


def test_nothing_gives_nothing(model: LlamaCppModel) -> None:
    assert model.generate([], max_tokens=4) == []
    assert model.generate([], max_tokens=[]) == []
    assert model.score_options([], []) == []
    assert model.score_continuations([], []) == []
    assert model.score_continuations(["a", "b"], [[], [""]])[0] == []
    empty = model.score_continuations(["a"], [[""]])[0][0]
    assert (empty.tokens, empty.log_probability) == (0, 0.0)
    without = model.score_options(["a"], [[]])[0]
    assert (without.log_probabilities.shape, without.outside) == ((0,), 1.0)
    assert model.generate([""], max_tokens=2)[0][0].tokens <= 2
    assert np.isfinite(model.score_continuations([""], [["ab"]])[0][0].token_log_probabilities).all()


def test_broken_text_is_read_as_question_marks(model: LlamaCppModel) -> None:
    broken, mended = model.score_options(["a\ud800b", "a?b"], [["A"], ["A"]])
    assert_close(broken.log_probabilities, mended.log_probabilities)
    zero = model.score_continuations([Prompt("", (), "a\x000\x00")], [["\x00"]])[0][0]
    assert zero.tokens == 1


@pytest.mark.parametrize("label", ["zq", "", "  ", "日"])
def test_labels_must_be_single_tokens(model: LlamaCppModel, label: str) -> None:
    with pytest.raises(ValueError, match=r"no single token|is empty"):
        model.score_options(["a"], [["A", label]])


def test_there_are_as_many_labels_as_letters(model: LlamaCppModel) -> None:
    assert option_labels(52) == list(OPTION_LABELS)
    for count in (53, -1):
        with pytest.raises(ValueError, match="52 letters"):
            option_labels(count)
    many = [*OPTION_LABELS, *string.digits]
    assert model.score_options(["a"], [many])[0].log_probabilities.shape == (62,)


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"max_tokens": [1, 2]},
        {"max_tokens": 1, "temperature": -1.0},
        {"max_tokens": 1, "temperature": float("nan")},
        {"max_tokens": 1, "temperature": float("inf")},
        {"max_tokens": 1, "top_p": 0.0},
        {"max_tokens": 1, "top_p": 1.5},
        {"max_tokens": 1, "n": 0},
        {"max_tokens": 1, "seed": -1},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(model: LlamaCppModel, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|token limits"):
        model.generate(["a"], **options)  # type: ignore[arg-type]


def test_lists_must_be_lists_of_one_length(model: LlamaCppModel) -> None:
    with pytest.raises(TypeError, match="list"):
        model.generate("a prompt", max_tokens=1)
    with pytest.raises(TypeError, match="stop"):
        model.generate(["a prompt"], max_tokens=1, stop="###")
    with pytest.raises(ValueError, match="2 prompts but 1"):
        model.score_options(["a", "b"], [["A"]])
    with pytest.raises(ValueError, match="1 prompts but 2"):
        model.score_continuations(["a"], [["A"], ["B"]])


def test_a_failure_in_the_middle_leaves_the_model_usable(
    random_gguf: Path, alone: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ["a" * 30, "ab" * 15, "b" * 20]
    with LlamaCppModel(random_gguf, threads=1, context=100, batch=8, float32_cache=True) as model:
        decode, calls = LlamaRuntime.decode, []

        def fail_at_third(self: LlamaRuntime, *arrays: NDArray[np.int32]) -> bool:
            calls.append(1)
            if len(calls) == 3:
                raise ModelError("the decoder failed")
            return decode(self, *arrays)  # type: ignore[arg-type]

        model.score_options(prompts[:1], [["A"]])
        monkeypatch.setattr(LlamaRuntime, "decode", fail_at_third)
        for _ in range(100):  # more sequences than there are, if one were lost at each failure
            calls.clear()
            with pytest.raises(ModelError, match="the decoder failed"):
                model.generate(prompts, max_tokens=5)
        monkeypatch.undo()
        written = model.generate(prompts, max_tokens=5)
        assert [row[0].text for row in written] == [
            alone.generate([prompt], max_tokens=5)[0][0].text for prompt in prompts
        ]


def test_it_is_a_language_model(model: LlamaCppModel, random_gguf: Path) -> None:
    assert isinstance(model, LanguageModel)
    assert (model.name, model.style, model.context_tokens) == ("random", "chat", 256)
    with LlamaCppModel(random_gguf, threads=1, context=16, name="other", style="plain") as other:
        assert other.name == "other"
        assert other.fingerprint == model.fingerprint.replace("-chat", "-plain")


@pytest.mark.models
def test_the_real_tiny_model_chooses_alike_batched_and_alone(tiny_models: dict[str, Path]) -> None:
    names = ["Ada", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal", "Ida", "Jo", "Kit"]
    prompts: list[Prompt | str] = [
        f"A. {first}: Rome\nB. {second}: Oslo\n{who}? Option"
        for first in names
        for second in names
        if first != second
        for who in (first, second)
    ][:100]
    labels = [["A", "B"]] * len(prompts)
    with LlamaCppModel(tiny_models["language-model"], threads=1, context=256) as model:
        batched = model.score_options(prompts, labels)
        shared = model.usage
        assert shared.evaluated_tokens < 0.7 * shared.prompt_tokens
    with LlamaCppModel(tiny_models["language-model"], threads=1, context=256, reuse_tokens=0) as model:
        single = [model.score_options([prompt], labels[:1])[0] for prompt in prompts]
        again = [model.score_options([prompt], labels[:1])[0] for prompt in prompts[:2]]
    for first, second in zip(single, again, strict=False):  # nothing else in memory: the same to the last bit
        np.testing.assert_array_equal(first.log_probabilities, second.log_probabilities)
    alike = [
        int(one.log_probabilities.argmax()) == int(other.log_probabilities.argmax())
        for one, other in zip(batched, single, strict=True)
    ]
    assert np.mean(alike) >= 0.98


@pytest.mark.models
def test_the_real_chat_template_is_rendered_to_the_letter(tiny_models: dict[str, Path]) -> None:
    prompt = Prompt("Answer briefly.", (("Who wrote Emma?", "Jane Austen"),), "Où est-ce?  日本", "It is")
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Who wrote Emma?"},
        {"role": "assistant", "content": "Jane Austen"},
        {"role": "user", "content": "Où est-ce?  日本"},
    ]
    with LlamaCppModel(tiny_models["language-model"], threads=1, context=256) as model:
        runtime = model._runtime
        assert runtime.chat_template is not None
        expected = Template(runtime.chat_template).render(messages=messages, add_generation_prompt=True) + "It is"
        tokens = model.render(prompt).tolist()
        text = b"".join(runtime.piece(token) or runtime.token_text(token).encode() for token in tokens).decode()
    assert text == expected
