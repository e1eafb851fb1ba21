"""Loading and closing: bad files, odd chat templates and settings out of range end in a sentence, never in a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from pytrace.errors import DeviceUnavailableError, MissingDependencyError, ModelError, ModelFileError
from pytrace.models.language_model import Prompt
from pytrace.models.llama import runtime
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import supports_gpu_offload
from tests.gguf_files import CHAT_TEMPLATE, write_random_gguf

LOAD_ALL = """
import sys
from pytrace.errors import ModelFileError
from pytrace.models.llama.llama_cpp import LlamaCppModel
for path in sys.argv[1:]:
    print(path, flush=True)
    try:
        LlamaCppModel(path, threads=1, context=64)
    except ModelFileError as error:
        assert path in str(error)
    else:
        sys.exit(f"{path} was loaded")
"""
BOS, END = 0, 2


def test_what_is_missing_or_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelFileError, match="No such file"):
        LlamaCppModel(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="directory"):
        LlamaCppModel(tmp_path)
    for name in ("text.gguf", "empty.gguf"):
        with pytest.raises(ModelFileError, match="is no GGUF file"):
            LlamaCppModel(tmp_path / name)


def test_truncated_files_are_refused_and_never_crash(random_gguf: Path, tmp_path: Path) -> None:
    whole = random_gguf.read_bytes()
    cuts = [4, 7, 8, 15, 16, 23, 24, 60, 500, 3000, 9000, len(whole) // 2, len(whole) - 4096, len(whole) - 1]
    for cut in cuts:
        (tmp_path / f"{cut}.gguf").write_bytes(whole[:cut])
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL, *(str(tmp_path / f"{cut}.gguf") for cut in cuts)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-200:], done.stderr[-2000:])


def test_the_first_error_of_the_loader_is_told(tmp_path: Path) -> None:
    path = tmp_path / "hollow.gguf"
    writer = gguf.GGUFWriter(path, "hollow")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="unknown model architecture"):
        LlamaCppModel(path, threads=1)


def test_a_gpu_that_is_not_there_is_never_replaced_in_silence(random_gguf: Path) -> None:
    if supports_gpu_offload():
        pytest.skip("this llama.cpp has a GPU")
    for layers in (1, -1):
        with pytest.raises(DeviceUnavailableError, match="no GPU"):
            LlamaCppModel(random_gguf, gpu_layers=layers)


@pytest.mark.parametrize("option", ["context", "cache_tokens", "max_parallel", "batch", "threads", "reuse_tokens"])
def test_sizes_out_of_range_are_refused(random_gguf: Path, option: str) -> None:
    for value in (-1, 2**32 + 64):  # the latter would wrap to 64 in llama.cpp's 32 bits
        with pytest.raises(ValueError, match=f"{option} must be"):
            LlamaCppModel(random_gguf, **{option: value})  # type: ignore[arg-type]
    if option != "reuse_tokens":
        with pytest.raises(ValueError, match=f"{option} must be at least 1"):
            LlamaCppModel(random_gguf, **{option: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 8, 1), (600, 600, 2000), (16, 4000, 700)])
def test_any_sizes_of_context_cache_and_batch_work(random_gguf: Path, sizes: tuple[int, int, int]) -> None:
    context, cache, batch = sizes
    with LlamaCppModel(random_gguf, threads=1, context=context, cache_tokens=cache, batch=batch) as model:
        assert model.context_tokens == min(context, 512)  # the model was trained for 512
        prompts = [letter * max(1, model.context_tokens - 1) for letter in "abc"]
        if context > 1:
            assert len(model.score_options(prompts, [["A"]] * 3)) == 3
            assert [row[0].tokens for row in model.generate(prompts, max_tokens=1)] == [1, 1, 1]
        else:
            with pytest.raises(ModelError, match="do not fit the 1 tokens"):
                model.generate(prompts, max_tokens=1)


def test_a_closed_model_says_so(random_gguf: Path) -> None:
    model = LlamaCppModel(random_gguf, threads=1, context=64)
    known = model.count_tokens("known")
    assert known == 5
    model.close()
    model.close()
    prompt = Prompt("Say.", (), "x")
    for call in (
        lambda: model.count_tokens("known"),
        lambda: model.count_tokens("new"),
        lambda: model.render(prompt),
        lambda: model.generate(["known"], max_tokens=2),
        lambda: model.generate([prompt], max_tokens=2, grammar='root ::= "a"'),
        lambda: model.score_options(["known"], [["A"]]),
        lambda: model.score_continuations(["known"], [["A"]]),
        lambda: model.generate([], max_tokens=2),
    ):
        with pytest.raises(ModelError, match="closed"):
            call()


def test_damaged_weights_are_noticed(tmp_path: Path) -> None:
    path = write_random_gguf(tmp_path / "nan.gguf", embedding_scale=float("nan"))
    with LlamaCppModel(path, threads=1, context=64) as model:
        with pytest.raises(ModelError, match="damaged"):
            model.score_options(["a"], [["A"]])
        for temperature in (0.0, 1.0):
            with pytest.raises(ModelError, match="damaged"):
                model.generate(["a"], max_tokens=2, temperature=temperature)


def test_a_sequence_begins_with_one_bos_if_the_model_wants_one(tmp_path: Path) -> None:
    prompt = Prompt("Say.", (("a", "b"),), "c")
    for name, template in (("with", "{{ bos_token }}" + CHAT_TEMPLATE), ("without", CHAT_TEMPLATE)):
        path = write_random_gguf(tmp_path / f"{name}.gguf", template=template, add_bos=True)
        with LlamaCppModel(path, threads=1, context=128) as model:
            for one in (prompt, "text", ""):
                tokens = model.render(one).tolist()
                assert tokens[0] == BOS
                assert tokens.count(BOS) == 1


def test_a_template_without_a_system_role_opens_with_the_instruction(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT_TEMPLATE
    strict = LlamaCppModel(write_random_gguf(tmp_path / "strict.gguf", template=refusing), threads=1, context=128)
    usual = LlamaCppModel(write_random_gguf(tmp_path / "usual.gguf"), threads=1, context=128)
    with strict, usual:
        np.testing.assert_array_equal(
            strict.render(Prompt("Say.", (), "a<|im_end|>")), usual.render(Prompt("", (), "Say.\n\na<|im_end|>"))
        )


@pytest.mark.parametrize(
    "template",
    [
        "{% for message in messages %}",
        "{{ raise_exception('never') }}",
        "{{ messages[99].content.x }}",
        "{{ 1 // 0 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages[-1].content }}",
        "{{ messages | tojson }}",
        "{{ 'a' * 10 ** 10 }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a'.center(2000000) }}",
        "",
    ],
)
def test_templates_that_cannot_be_used_are_refused(tmp_path: Path, template: str) -> None:
    path = write_random_gguf(tmp_path / "odd.gguf", template=template)
    prompt = Prompt("Say.", (), "a")

    def chat() -> None:
        with LlamaCppModel(path, threads=1, context=128, style="chat") as model:
            model.render(prompt)

    with pytest.raises(ModelError, match="chat template"):
        chat()
    with LlamaCppModel(path, threads=1, context=128, style="plain") as model:
        assert len(model.render(prompt)) == len("Say.\n\na")


def test_a_model_without_a_template_takes_plain_text(tmp_path: Path) -> None:
    path = write_random_gguf(tmp_path / "base.gguf", template=None)
    with LlamaCppModel(path, threads=1, context=128) as model:
        assert model.style == "plain"
        assert END not in model.render(Prompt("Say.", (), "a"))
    with pytest.raises(ModelError, match="no chat template"):
        LlamaCppModel(path, threads=1, context=128, style="chat")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'llama_cpp'"), "which takes a C\\+\\+ compiler; without one"),
        (
            RuntimeError("libgomp.so.1: cannot open"),
            "cannot be loaded \\(libgomp.so.1: cannot open\\); install the library",
        ),
    ],
)
def test_a_binding_that_is_missing_or_cannot_be_loaded_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "llama_cpp":
                raise error

    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match=said):
        runtime.library.__wrapped__()
