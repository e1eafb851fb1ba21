"""Encoders and cross-encoders by whatever names them, and settings that they take or refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pytrace import load
from pytrace.cli.commands import Command, click_command
from pytrace.cli.shared_options import MODELS
from pytrace.engine.encoders import load_cross_encoder, load_encoder
from pytrace.engine.loading import Engine
from pytrace.errors import InputError, ModelFileError
from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.encoders.static_encoder import StaticEncoder
from pytrace.models.llama.gguf_encoder import GgufEncoder
from pytrace.models.llama.gguf_reranker import GgufReranker
from pytrace.models.servers.remote_encoder import RemoteEncoder
from pytrace.models.servers.remote_reranker import RemoteReranker
from tests import embedding_gguf
from tests.bert_gguf import write_bert_gguf
from tests.models import test_cross_encoder, test_encoder, test_static_encoder
from tests.text_model_double import text_model_double

TEXTS = ["red house", "a river"]


def test_an_encoder_is_what_its_name_leads_to(tmp_path: Path) -> None:
    onnx = test_encoder.make(tmp_path / "onnx")
    test_static_encoder.saved(tmp_path / "static", test_static_encoder.wordpiece())
    with text_model_double("openai") as server:
        for name, kind, settings in (
            (str(onnx), OnnxEncoder, ("pooling=cls,max", "query_prompt=query: ", "normalize=true")),
            (str(onnx / "model.onnx"), OnnxEncoder, ("truncate_dim=3",)),
            (str(tmp_path / "static"), StaticEncoder, ("truncate_dim=3", "passage_prompt=red ")),
            (str(write_bert_gguf(tmp_path / "bert.gguf")), GgufEncoder, ("truncate_dim=3", "pooling=cls")),
            (server.url.replace("http", "HTTP", 1), RemoteEncoder, ("model=double", "normalize=true")),
        ):
            encoder = load_encoder(name, settings)
            assert type(encoder) is kind
            assert encoder.encode(TEXTS).shape == (2, encoder.dimension)
    twice = load_encoder(str(onnx), ["pooling=cls,max"])
    assert twice.dimension == 2 * test_encoder.DIMENSION
    # A text before those of one kind changes these and no others.
    asked = load_encoder(str(onnx), ["query_prompt=query: "])
    np.testing.assert_array_equal(asked.encode(["red"], kind="query"), load_encoder(str(onnx)).encode(["query: red"]))
    np.testing.assert_array_equal(asked.encode(["red"]), load_encoder(str(onnx)).encode(["red"]))


def test_a_cross_encoder_is_what_its_name_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = test_cross_encoder.make(tmp_path / "home" / "models" / "judge", labels=2)
    encoder = load_cross_encoder(str(place), ["positive=1"])
    assert type(encoder) is OnnxCrossEncoder
    assert encoder.score([("red", "blue")]).shape == (1,)
    (tmp_path / "ranker").mkdir()
    model = embedding_gguf.xlm_roberta()
    ranker = embedding_gguf.write(model, tmp_path / "ranker" / "a.gguf", pooling=embedding_gguf.RANK)
    for named in (ranker, ranker.parent):  # a directory with one file of that kind stands for it
        assert type(load_cross_encoder(str(named))) is GgufReranker
    with text_model_double("cohere") as server:
        assert type(load_cross_encoder(server.url, ["model=double"])) is RemoteReranker
    # By a name of one's own catalog, in either role.
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    for role, said in (("reranker", None), ("entailment", None), ("encoder", "is for the role encoder, not reranker")):
        files = [{"path": name, "sources": [{"uri": name}]} for name in ("model.onnx", "tokenizer.json")]
        model = {"name": "judge", "role": role, "description": "", "license": "MIT", "files": files}
        (tmp_path / "home" / "catalog.json").write_text(json.dumps({"models": [model]}), encoding="utf-8")
        (place / "pulled.json").unlink(missing_ok=True)
        with pytest.raises(ModelFileError, match=said or "pytrace models pull judge"):
            load_cross_encoder("judge")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("poling=cls",), r"the setting 'poling=cls' of the encoder is not name=value with a name among: dtype, model"),
        (("truncate_dim=many",), "a setting of the encoder cannot be used"),
        (("model=other",), r"takes no setting 'model', but dtype, normalize, output, pooling, prompts, truncate_dim"),
        (("pooling=middle",), "there is no pooling 'middle'"),
        (("dtype=float16",), r"has no graph of dtype 'float16', but model.onnx"),
    ],
)
def test_a_setting_that_an_encoder_does_not_take_is_refused(settings: tuple[str], said: str, tmp_path: Path) -> None:
    place = test_encoder.make(tmp_path)
    with pytest.raises(InputError, match=said):
        load("tiny", encoder=str(place), encoder_settings=settings).encoder  # noqa: B018


class Shown(Command):
    """Print what the options say of the models."""

    models: Engine = MODELS

    def run(self) -> None:
        encoder = self.models.encoder
        print(encoder.dimension, self.models.cross_encoder.name)


def test_the_command_line_takes_settings_of_both(tmp_path: Path) -> None:
    onnx, cross = test_encoder.make(tmp_path / "onnx"), test_cross_encoder.make(tmp_path / "cross", labels=2)
    arguments = ["--encoder", str(onnx), "--encoder-set", "truncate_dim=3", "--encoder-set", "pooling=cls"]
    arguments += ["--cross-encoder", str(cross), "--cross-encoder-set", "positive=0"]
    result = CliRunner().invoke(click_command(Shown), arguments)
    assert (result.exit_code, result.output) == (0, "3 cross\n"), result.output


def test_a_closed_engine_loads_its_models_again(tmp_path: Path) -> None:
    engine = load("tiny", encoder=str(test_encoder.make(tmp_path)))
    first = engine.encoder
    assert engine.encoder is first
    engine.close()
    assert engine.encoder is not first
