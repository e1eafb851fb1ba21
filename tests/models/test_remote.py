"""Models on real servers against the engine in this process: llama.cpp's own server and llama-cpp-python's.

Both run the same random float32 weights as the engine. llama.cpp's server keeps keys and values in float32 too, so that
log-probabilities differ by rounding alone: 2e-6 was seen, 1e-4 is allowed. llama-cpp-python's keeps them in float16: 1e-3 was
seen, 5e-3 is allowed. What the real tiny model writes is compared under the marker `models`.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python, the engine to compare with, is not installed")

from pytrace.errors import ContextOverflowError, InputError, LogitsUnavailableError, ModelError, ServerError
from pytrace.methods.trace.trace import Trace, TraceSettings
from pytrace.models import registry
from pytrace.models.language_model import Prompt
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import HashEncoder
from pytrace.models.servers.remote_model import RemoteModel
from pytrace.records import Document
from tests.gguf_files import write_random_gguf
from tests.remote_servers import llama_cpp_python_server, llama_server

CLOSE = 1e-4
CLOSE_FLOAT16 = 5e-3
LETTERS = 'root ::= [a-z ]+ "."?'
PROMPTS: list[Prompt | str] = [
    Prompt("Answer in one word.", (("Is snow warm?", "no"), ("Is fire hot?", "yes")), "Is the sea wet? <|im_end|>"),
    Prompt("", (), "Say something", answer_start="I say"),
    "The sky over the sea is",
    "Hundreds of birds sat in an old tree,",
]
TEXTS = ["", " the sea", " a grün thing — né", "!"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def url(random_gguf: Path, logs: Path) -> Iterator[str]:
    with llama_server(random_gguf, logs / "llama-server.txt") as address:
        yield address


@pytest.fixture(scope="module")
def remote(url: str) -> Iterator[RemoteModel]:
    with RemoteModel(url) as model:
        yield model


@pytest.fixture(scope="module")
def engine(random_gguf: Path) -> Iterator[LlamaCppModel]:
    with LlamaCppModel(random_gguf, threads=1, float32_cache=True) as model:
        yield model


@pytest.fixture(scope="module", params=["begins with a token", "begins without"])
def other(request: pytest.FixtureRequest, random_gguf: Path, logs: Path) -> Iterator[tuple[str, LlamaCppModel]]:
    path = random_gguf
    if request.param == "begins with a token":
        path = write_random_gguf(logs / "bos.gguf", seed=1, add_bos=True)
    with (
        llama_cpp_python_server(path, logs / f"{path.stem}.txt") as address,
        LlamaCppModel(path, threads=1, float32_cache=True, style="plain") as model,
    ):
        yield address, model


def test_llama_server_is_recognised_and_asked_for_its_context(remote: RemoteModel, url: str) -> None:
    assert (remote.dialect, remote.name, remote.context_tokens) == ("llama-server", "random.gguf", 512)
    assert (remote.style, remote.gives_logits) == ("chat", True)
    with RemoteModel(f"{url}/v1/", context=100, style="plain") as other:
        assert (other.context_tokens, other.style) == (100, "plain")


def test_a_fingerprint_names_the_model_and_the_style_but_no_place(remote: RemoteModel, url: str, logs: Path) -> None:
    with RemoteModel(url) as same, RemoteModel(url, style="plain") as plain:
        assert same.fingerprint == remote.fingerprint
        assert plain.fingerprint != remote.fingerprint
        assert plain.fingerprint.endswith("-plain")
    assert url not in remote.fingerprint
    wider = write_random_gguf(logs / "random.gguf", width=32)
    with llama_server(wider, logs / "wider.txt") as address, RemoteModel(address) as model:
        assert model.name == remote.name
        assert model.fingerprint != remote.fingerprint


def test_a_model_that_the_server_does_not_have_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"no model 'gpt'.*random\.gguf"):
        RemoteModel(url, model="gpt")


def test_texts_have_as_many_tokens_as_the_engine_counts(remote: RemoteModel, engine: LlamaCppModel) -> None:
    for text in ("", "the", "<|im_end|>", "grün — né", "a" * 100):
        assert remote.count_tokens(text) == engine.count_tokens(text)


@pytest.mark.parametrize("style", ["chat", "plain"])
def test_prompts_become_the_engines_tokens_and_no_control_token_comes_out_of_a_document(
    url: str, random_gguf: Path, style: str
) -> None:
    with (
        RemoteModel(url, style=style) as remote,  # type: ignore[arg-type]
        LlamaCppModel(random_gguf, style=style, threads=1) as engine,  # type: ignore[arg-type]
    ):
        for prompt in PROMPTS:
            rendered = remote._client.run(remote._server.render(prompt, remote.style))
            assert rendered.content == engine.render(prompt).tolist()
            assert rendered.count == len(engine.render(prompt))


def test_a_template_without_a_system_role_gets_its_words_in_the_first_message(logs: Path) -> None:
    template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    path = write_random_gguf(logs / "no-system.gguf", template=template)
    with (
        llama_server(path, logs / "no-system.txt") as address,
        RemoteModel(address, style="chat") as remote,
        LlamaCppModel(path, threads=1) as engine,
    ):
        rendered = remote._client.run(remote._server.render(PROMPTS[0], "chat"))
        # llama-server puts one line break between them, the engine two.
        assert rendered.count == len(engine.render(PROMPTS[0])) - 1
        joined = engine.render("ord.\nIs snow warm?").tolist()
        assert " ".join(map(str, joined)) in " ".join(map(str, rendered.content))


def test_demonstrations_go_where_the_context_is_short_and_a_prompt_that_cannot_fit_is_refused(url: str) -> None:
    shown = tuple((f"question {number} " * 8, "answer") for number in range(12))
    with RemoteModel(url, style="plain") as remote:
        long = Prompt("Answer.", shown, "Is it?")
        assert remote.count_tokens(long.plain()) > 512
        assert remote.generate([long], max_tokens=4, grammar=LETTERS)[0][0].tokens <= 4
        assert 0 < remote.demonstrations_dropped < 12
        with pytest.raises(ContextOverflowError, match=r"a prompt of \d+ tokens and 4 .* 512 tokens"):
            remote.generate(["far too long " * 200], max_tokens=4)


def test_greedy_texts_are_the_engines(remote: RemoteModel, engine: LlamaCppModel) -> None:
    ours = remote.generate(PROMPTS, max_tokens=[20, 30, 24, 12], grammar=LETTERS)
    theirs = engine.generate(PROMPTS, max_tokens=[20, 30, 24, 12], grammar=LETTERS)
    for (one,), (other,) in zip(ours, theirs, strict=True):
        assert (one.text, one.tokens, one.finish) == (other.text, other.tokens, other.finish)
        assert one.log_probability == pytest.approx(other.log_probability, abs=CLOSE * one.tokens)


def test_texts_end_where_the_engines_do(remote: RemoteModel, engine: LlamaCppModel) -> None:
    def both(**how: object) -> list[tuple[str, int, str]]:
        rows = [model.generate(["Well,"], **how)[0][0] for model in (remote, engine)]  # type: ignore[arg-type]
        assert rows[0].log_probability == pytest.approx(rows[1].log_probability, abs=CLOSE * 40)
        return [(row.text, row.tokens, row.finish) for row in rows]

    ended = both(max_tokens=9, grammar='root ::= "yes" | "no"')
    assert ended[0] == ended[1]
    assert ended[0][2] == "end"
    stopped = both(max_tokens=30, grammar='root ::= "some words | and more"', stop=["|"])
    assert stopped[0] == stopped[1]
    assert stopped[0][0::2] == ("some words ", "stop")
    long = both(max_tokens=5, grammar='root ::= "some words"')
    assert long[0] == long[1]
    assert long[0][1:] == (5, "length")
    endless = both(max_tokens=300, grammar='root ::= "ab " root')
    assert endless[0] == endless[1]
    assert endless[0][2] == "repetition"
    assert endless[0][1] < 60


def test_a_sampled_text_does_not_depend_on_what_stands_beside_it(remote: RemoteModel) -> None:
    def sample(prompts: list[Prompt | str], seed: int, n: int = 2) -> list[list[str]]:
        rows = remote.generate(prompts, max_tokens=12, temperature=1.0, n=n, seed=seed, grammar=LETTERS)
        return [[one.text for one in row] for row in rows]

    alone = sample(PROMPTS[:1], 7)
    assert sample(PROMPTS, 7)[:1] == alone
    assert sample(PROMPTS[:1], 7, n=3)[0][:2] == alone[0]
    assert sample(PROMPTS[:1], 8) != alone
    assert alone[0][0] != alone[0][1]


def test_copies_of_a_greedy_text_are_alike(remote: RemoteModel) -> None:
    before = remote.usage
    row = remote.generate(["Well,"], max_tokens=5, n=3, grammar=LETTERS)[0]
    assert len(row) == 3
    assert len(set(row)) == 1
    assert (remote.usage - before).calls == 1


def test_options_are_scored_as_the_engine_scores_them(remote: RemoteModel, engine: LlamaCppModel) -> None:
    options = [["A", "B", "C"], ["Y"], [], ["é"]]
    ours, theirs = remote.score_options(PROMPTS, options), engine.score_options(PROMPTS, options)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, atol=CLOSE)
        assert one.outside == pytest.approx(other.outside, abs=CLOSE)
        assert one.bounded == ()
    with pytest.raises(ValueError, match="'two words' is no single token"):
        remote.score_options(["x"], [["two words"]])


def test_options_beyond_the_servers_list_are_bounded_and_flagged(url: str, engine: LlamaCppModel) -> None:
    labels = [[*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]] * len(PROMPTS)
    flagged = told = 0
    with RemoteModel(url, top_tokens=150) as remote:
        for one, true in zip(remote.score_options(PROMPTS, labels), engine.score_options(PROMPTS, labels), strict=True):
            assert len(one.bounded) == 26
            assert one.outside >= true.outside - CLOSE
            for value, bounded, exact in zip(one.log_probabilities, one.bounded, true.log_probabilities, strict=True):
                assert value >= exact - CLOSE
                assert value <= 0.0
                if not bounded:
                    assert value == pytest.approx(exact, abs=CLOSE)
                flagged += bounded
                told += not bounded
    assert flagged > 0
    assert told > 0


def test_texts_are_scored_as_the_engine_scores_them(remote: RemoteModel, engine: LlamaCppModel) -> None:
    ours = remote.score_continuations(PROMPTS, [TEXTS] * len(PROMPTS))
    theirs = engine.score_continuations(PROMPTS, [TEXTS] * len(PROMPTS))
    for row, expected in zip(ours, theirs, strict=True):
        for one, other in zip(row, expected, strict=True):
            assert one.tokens == other.tokens
            np.testing.assert_allclose(one.token_log_probabilities, other.token_log_probabilities, atol=CLOSE)


def test_a_text_costs_one_request_unless_its_characters_have_several_tokens(remote: RemoteModel) -> None:
    remote.score_continuations(["Well,"], [[" the sea", " — "]])
    before = remote.usage
    remote.score_continuations(["Well,"], [[" the sea"]])
    spent = remote.usage - before
    assert (spent.calls, spent.batches) == (1, 1)
    before = remote.usage
    remote.score_continuations(["Well,"], [[" — "]])
    spent = remote.usage - before
    assert spent.calls == 1
    assert spent.batches >= remote.count_tokens(" — ")


def test_usage_counts_what_the_server_evaluated(remote: RemoteModel) -> None:
    prompt = "Never seen before: " + "x y z " * 20
    count = remote.count_tokens(prompt)
    before = remote.usage
    row = remote.generate([prompt], max_tokens=4, grammar='root ::= "abcdef"')[0]
    spent = remote.usage - before
    assert row[0].tokens == 4
    assert (spent.calls, spent.prompt_tokens, spent.generated_tokens, spent.batches) == (1, count, 4, 1)
    assert spent.evaluated_tokens <= count + 3
    assert spent.seconds > 0
    before = remote.usage
    remote.generate([prompt], max_tokens=4, grammar='root ::= "abcdef"')
    assert (remote.usage - before).evaluated_tokens < count  # the server still has the prompt in its cache


def test_done_is_called_in_the_callers_thread_once_a_prompt(remote: RemoteModel) -> None:
    seen: list[tuple[int, int, int]] = []
    rows = remote.generate(
        PROMPTS,
        max_tokens=6,
        n=2,
        temperature=0.5,
        grammar=LETTERS,
        done=lambda index, row: seen.append((index, len(row), threading.get_ident())),
    )
    assert sorted(seen) == [(index, 2, threading.get_ident()) for index in range(len(PROMPTS))]
    assert [len(row) for row in rows] == [2] * len(PROMPTS)

    def refuse(index: int, row: object) -> None:
        raise KeyError(index, row)

    with pytest.raises(KeyError):
        remote.generate(PROMPTS, max_tokens=6, grammar=LETTERS, done=refuse)
    assert remote.generate(["Well,"], max_tokens=3, grammar='root ::= "yes"')[0][0].text == "yes"


def test_nothing_asked_is_nothing_sent(remote: RemoteModel) -> None:
    before = remote.usage
    assert remote.generate([], max_tokens=4) == []
    assert remote.score_options([], []) == []
    assert remote.score_continuations(["x", "y"], [[], []]) == [[], []]
    assert (remote.usage - before).calls == 0


def test_arguments_are_checked_as_the_engine_checks_them(remote: RemoteModel) -> None:
    with pytest.raises(TypeError, match="prompts must be a list"):
        remote.generate("text", max_tokens=4)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, not 0"):
        remote.generate(["text"], max_tokens=0)
    with pytest.raises(ValueError, match="2 prompts but 1 lists of options"):
        remote.score_options(["a", "b"], [["A"]])
    with pytest.raises(ServerError, match=r"400.*grammar"):
        remote.generate(["text"], max_tokens=4, grammar="root ::= <<")


def test_a_closed_model_says_so(url: str) -> None:
    with RemoteModel(url) as remote:
        pass
    with pytest.raises(ServerError, match="was closed"):
        remote.generate(["text"], max_tokens=4)
    with pytest.raises(ServerError, match="was closed"):
        remote.count_tokens("a text not seen yet")


def test_a_key_comes_from_the_environment_and_is_told_to_nobody(
    random_gguf: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sesame-0123456789"
    log = logs / "keys.txt"
    with llama_server(random_gguf, log, keys=(secret,)) as address:
        monkeypatch.delenv("PYTRACE_API_KEY", raising=False)
        with pytest.raises(ServerError, match="environment variable PYTRACE_API_KEY"):
            RemoteModel(address, style="plain").generate(["x"], max_tokens=1)
        monkeypatch.setenv("OUR_KEY", secret)
        with RemoteModel(address, api_key_env="OUR_KEY") as remote:
            assert remote.generate(["Well,"], max_tokens=3, grammar='root ::= "yes"')[0][0].text == "yes"
            assert secret not in f"{remote!r} {vars(remote)} {vars(remote._client)} {remote.fingerprint} {remote.name}"
        monkeypatch.setenv("OUR_KEY", "wrong-9876543210")
        with pytest.raises(ServerError, match="environment variable OUR_KEY") as refused:
            RemoteModel(address, api_key_env="OUR_KEY").generate(["x"], max_tokens=1)
        assert "9876543210" not in str(refused.value)
        monkeypatch.setenv("OUR_KEY", "two\nlines")
        with pytest.raises(InputError, match="OUR_KEY holds no usable key") as refused_key:
            RemoteModel(address, api_key_env="OUR_KEY")
        assert "two" not in str(refused_key.value).replace("two words", "")


def test_trace_runs_on_a_server_and_finds_the_engines_chains(url: str, engine: LlamaCppModel) -> None:
    documents = [
        Document("1", "Tern", ("The Tern is a ferry owned by Brack.", "It is white.")),
        Document("2", "Brack", ("Brack is a company.", "It was founded by Tobias Rook.")),
    ]
    settings = TraceSettings(
        unit="sentence", scoring="pmi", candidates=3, length=2, beams=2, chains=2, demonstrations=1,
        adaptive_demonstrations=False, reader_demonstrations=1,
    )  # fmt: skip
    with RemoteModel(url, style="plain") as remote:
        chains = []
        for model in (remote, LlamaCppModel(engine._path, threads=1, float32_cache=True, style="plain")):
            trace = Trace(model, HashEncoder(), settings)
            answer = trace.answer(["Who founded the company that owns the Tern?"], [documents])[0]
            chains.append([[triple.text for triple in chain.units] for chain in answer.evidence.chains])
    assert chains[0]
    assert chains[0] == chains[1]


def test_llama_cpp_pythons_server_writes_and_scores_as_the_engine_does(other: tuple[str, LlamaCppModel]) -> None:
    address, engine = other
    prompts = [prompt for prompt in PROMPTS if "<|im_end|>" not in str(prompt)]
    with RemoteModel(address, context=512) as remote:
        assert (remote.dialect, remote.style, remote.gives_logits) == ("llama-cpp-python", "plain", True)
        for text in ("", "the", "grün — né"):
            assert remote.count_tokens(text) == engine.count_tokens(text)
        ours = remote.generate(prompts, max_tokens=12, grammar=LETTERS)
        theirs = engine.generate(prompts, max_tokens=12, grammar=LETTERS)
        for (one,), (expected,) in zip(ours, theirs, strict=True):
            assert one.text == expected.text
            assert math.isnan(one.log_probability)
        options = [["A", "B"], ["C"], ["X", "Y", "Z"]]
        for one, true in zip(
            remote.score_options(prompts, options), engine.score_options(prompts, options), strict=True
        ):
            np.testing.assert_allclose(one.log_probabilities, true.log_probabilities, atol=CLOSE_FLOAT16)
            assert one.outside == pytest.approx(true.outside, abs=CLOSE_FLOAT16)
            assert one.bounded == ()
        texts = [["", " the sea", "!"]] * len(prompts)
        for row, expected_row in zip(
            remote.score_continuations(prompts, texts), engine.score_continuations(prompts, texts), strict=True
        ):
            for score, wanted in zip(row, expected_row, strict=True):
                np.testing.assert_allclose(
                    score.token_log_probabilities, wanted.token_log_probabilities, atol=CLOSE_FLOAT16
                )


def test_llama_cpp_pythons_chat_interface_cannot_begin_an_answer_and_says_so(other: tuple[str, LlamaCppModel]) -> None:
    with RemoteModel(other[0], style="chat", context=512) as remote:
        written = remote.generate([Prompt("Answer.", (("a", "b"),), "c")], max_tokens=4, grammar='root ::= "yes"')
        assert written[0][0].text == "yes"
        with pytest.raises(ModelError, match="use style='plain'"):
            remote.generate([Prompt("", (), "c", answer_start="I")], max_tokens=4)


def test_a_repeating_text_is_cut_afterwards_where_the_server_does_not_stream(other: tuple[str, LlamaCppModel]) -> None:
    with RemoteModel(other[0], context=512) as remote:
        row = remote.generate(["Well,"], max_tokens=200, grammar='root ::= "ab " root')[0][0]
    assert row.finish == "repetition"
    assert 24 <= len(row.text.split()) < 60


def test_echoed_log_probabilities_are_used_where_they_are_right_and_refused_where_they_are_not(
    other: tuple[str, LlamaCppModel],
) -> None:
    # Seen as any OpenAI server. Without a first token, llama-cpp-python shifts echoed log-probabilities by one.
    address, engine = other
    begins = engine.render("x").tolist() != engine.render("x").tolist()[-1:]
    with RemoteModel(address, dialect="openai", context=512, top_tokens=200) as remote:
        assert remote.gives_logits
        if not begins:
            with pytest.raises(LogitsUnavailableError, match="scoring='letters'"):
                remote.score_continuations(["The sea"], [[" is"]])
            return
        ours = remote.score_continuations(["The sea", "A tree"], [[" is", " and"], [""]])
        theirs = engine.score_continuations(["The sea", "A tree"], [[" is", " and"], [""]])
        for row, expected in zip(ours, theirs, strict=True):
            for one, true in zip(row, expected, strict=True):
                np.testing.assert_allclose(
                    one.token_log_probabilities, true.token_log_probabilities, atol=CLOSE_FLOAT16
                )
        with pytest.raises(ModelError, match="takes no grammar"):
            remote.generate(["x"], max_tokens=2, grammar=LETTERS)


@pytest.mark.models
def test_the_tiny_model_answers_on_a_server_as_it_does_here(tiny_models: dict[registry.Role, Path], logs: Path) -> None:
    path = tiny_models["language-model"]
    prompts: list[Prompt | str] = [
        "The capital of France is",
        Prompt("Answer the question in a few words.", (("Which planet is red?", "Mars"),), "Which colour has snow?"),
    ]
    with (
        llama_server(path, logs / "tiny.txt", context=1024, slots=2) as address,
        RemoteModel(address, style="plain") as remote,
        LlamaCppModel(path, style="plain", context=1024, float32_cache=True) as engine,
    ):
        ours = remote.generate(prompts, max_tokens=8, stop=["\n"])
        theirs = engine.generate(prompts, max_tokens=8, stop=["\n"])
        assert [row[0].text for row in ours] == [row[0].text for row in theirs]
        # Weights of 4 bits meet inputs rounded to 8, which other instruction sets round elsewhere: tenths, not thousandths.
        texts = [[" Paris, the city of light", " London"], [" white", " blue as the sea"]]
        for row, expected in zip(
            remote.score_continuations(prompts, texts), engine.score_continuations(prompts, texts), strict=True
        ):
            for one, true in zip(row, expected, strict=True):
                np.testing.assert_allclose(one.token_log_probabilities, true.token_log_probabilities, atol=0.6)
            assert (row[0].log_probability > row[1].log_probability) == (
                expected[0].log_probability > expected[1].log_probability
            )
        assert json.dumps(remote.usage.calls) == "6"
