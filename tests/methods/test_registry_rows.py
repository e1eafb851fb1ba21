"""The registry: a method is one file with one row, and a row that does not hold together is an error at once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import pytrace
from pytrace.cli import program
from pytrace.errors import InputError, ModelFileError
from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.methods.base import METHODS, Count, Method, MethodRow, Replacement, Selected, Stages, choice, register
from pytrace.methods.baselines import Rag
from pytrace.methods.catalog import default_settings, make_method, method_settings, substitutions
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel, deferred
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.answers import Reader
from pytrace.reader.evidence import all_documents
from pytrace.records import Document

DOCUMENTS = [Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",)), Document("2", "Bread", ("It is baked.",))]


class ToySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    first: Count = 1
    reader_demonstrations: Count = 0


class Toy(Method):
    """Reads the first documents."""

    def __init__(self, model: LanguageModel, encoder: Encoder, settings: ToySettings, *, name: str = "toy") -> None:
        del encoder
        self.settings, self.name, self._model = settings, name, model
        self._reader = Reader(model, demonstrations=settings.reader_demonstrations)

    def _select(
        self, questions: Sequence[str], documents: Sequence[Sequence[Document]], stages: Stages
    ) -> list[Selected]:
        del questions
        with stages.stage("select"):
            return [Selected(all_documents(own[: self.settings.first])) for own in documents]


ROW = MethodRow(
    "toy",
    "the first documents",
    Toy,
    ToySettings(),
    (Replacement("letters", ("first=2",), "two documents instead of one"),),
    space=(choice("first", 1, 2),),
)


@pytest.fixture
def toy() -> Iterator[None]:
    register(ROW)
    yield
    del METHODS["toy"]


@pytest.mark.usefixtures("toy")
def test_a_registered_method_selects_and_answers() -> None:
    method = make_method("toy:first=2", ScriptedModel(["Ghana"]), HashEncoder, CAPABLE)
    (evidence,) = method.select(["Where is Ada Foah?"], [DOCUMENTS])
    assert evidence.document_ids == ("1", "2")
    (answer,) = method.answer(["Where is Ada Foah?"], [DOCUMENTS])
    assert (answer.text, answer.method, answer.evidence) == ("Ghana", "toy:first=2", evidence)


@pytest.mark.usefixtures("toy")
def test_a_part_is_replaced_where_the_model_lacks_the_ability_and_the_user_did_not_choose() -> None:
    without = Abilities(letters=False)
    assert (default_settings("toy", CAPABLE).first, default_settings("toy", without).first) == (1, 2)
    assert substitutions("toy", CAPABLE) == ()
    assert substitutions("toy", without) == ("two documents instead of one",)
    assert method_settings("toy:first=3", without).first == 3
    assert substitutions("toy:first=3", without) == substitutions("toy", without, ["first=3"]) == ()


@pytest.mark.models
@pytest.mark.usefixtures("toy")
def test_the_command_line_asks_evaluates_and_tunes_a_registered_method(tmp_path: Path) -> None:
    rows = [
        {"question": "Where is Ada Foah?", "answers": ["Ghana"], "supporting_documents": ["Ada Foah"],
         "documents": [{"title": one.title, "text": one.text} for one in DOCUMENTS]}
        for _ in range(4)
    ]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    docs = tmp_path / "docs.jsonl"
    docs.write_text(json.dumps({"title": "Ada Foah", "text": "Ada Foah is a town in Ghana."}), encoding="utf-8")
    one_thread = ("--threads", "1", "--json")
    calls = (
        ("ask", "Where is Ada Foah?", "--docs", docs, "--method", "toy", *one_thread),
        ("eval", "toy", "toy:first=2", "--data", data, *one_thread),
        (
            "tune",
            "toy",
            "--data",
            data,
            "--hold-out",
            "0",
            "--objective",
            "f1",
            "--out",
            tmp_path / "tuned",
            *one_thread,
        ),
    )
    answered, evaluated, tuned = (
        json.loads(result.stdout)
        for call in calls
        if (result := CliRunner().invoke(program, [str(part) for part in call], catch_exceptions=False)).exit_code == 0
    )
    assert answered["method"] == "toy"
    assert [one["method"] for one in evaluated["methods"]] == ["toy", "toy:first=2"]
    assert tuned["method"].startswith("toy")


class NoVerbs(Method):
    """Lacks `_select`."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "trace"}, "the name is taken by Trace"),
        ({"name": "Two Words"}, "lower-case letters"),
        ({"summary": " "}, "no summary"),
        ({"replacements": (Replacement("luck", ("first=2",)),)}, "there is no ability 'luck'; use logits, letters"),
        ({"replacements": (Replacement("letters", ("last=2",)),)}, "'last=2' of toy is not name=value"),
        ({"method": NoVerbs}, "no class with the verbs select and answer"),
        ({"method": ToySettings}, "no class with the verbs"),
        ({"needs": frozenset({"luck"})}, "nothing is known of luck"),
        ({"space": (choice("last", 1),)}, "'last=1' of toy is not name=value"),
        ({"space": (choice("first", -1),)}, "cannot be used"),
    ],
)
def test_a_row_that_does_not_hold_together_is_refused(change: dict[str, object], said: str) -> None:
    import pytrace.methods.catalog  # noqa: F401  # all methods are there

    before = dict(METHODS)
    with pytest.raises(InputError, match=said):
        register(dataclasses.replace(ROW, **change))  # type: ignore[arg-type]
    assert before == METHODS


def test_a_class_without_a_row_is_an_error_at_import() -> None:
    from pytrace.methods import catalog

    class Forgotten(Rag):
        __module__ = "pytrace.methods.forgotten"

    assert "Forgotten" in catalog._unregistered(Method)
    del Forgotten


@pytest.mark.parametrize("method", ["trace", "trace-doc", "rag", "dense", "top-triples"])
def test_selection_by_the_encoder_alone_never_loads_a_language_model(method: str, tmp_path: Path) -> None:
    def missing() -> LanguageModel:
        raise ModelFileError(f"there is no {tmp_path / 'missing.gguf'}")

    made = make_method(f"{method}:reading=free", deferred(missing), HashEncoder, UNABLE)
    (evidence,) = made.select(["In which country is Ada Foah?"], [DOCUMENTS])
    assert evidence.context
    with pytest.raises(ModelFileError, match=r"missing\.gguf"):
        made.answer(["In which country is Ada Foah?"], [DOCUMENTS])


def test_another_model_may_read() -> None:
    selector, reader = ScriptedModel(["Togo"]), ScriptedModel(["Ghana"])
    made = make_method("trace:reading=free", selector, HashEncoder, UNABLE, reader=reader)
    (answer,) = made.answer(["In which country is Ada Foah?"], [DOCUMENTS])
    assert answer.text == "Ghana"
    assert answer.usage["read"].calls == reader.usage.calls == 1
    assert selector.usage.calls == 0
    with pytest.raises(InputError, match="cot has no reader apart from its model"):
        make_method("cot", selector, HashEncoder, UNABLE, reader=reader)


def test_the_front_door_exports_what_it_says() -> None:
    assert sorted(pytrace.__all__) == dir(pytrace)
    assert len(pytrace.__all__) <= 26
    for name in pytrace.__all__:
        assert getattr(pytrace, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = pytrace.missing
