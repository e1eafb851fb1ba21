"""Methods by name: what each is with which model, which settings it takes, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace.cli.ask import Ask
from pytrace.cli.commands import click_command
from pytrace.engine import Corpus, Engine
from pytrace.errors import InputError
from pytrace.kg.knowledge import Knowledge
from pytrace.kg.linking import EntityLinker
from pytrace.kg.queries.few_shot import FewShotGenerator
from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.methods.catalog import (
    METHODS,
    MethodName,
    check_overrides,
    default_settings,
    make_method,
    method_settings,
    parse_method,
)
from pytrace.methods.trace.trace import TraceSettings
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document
from pytrace.retrieval.searching import Found
from tests.store_double import StoreDouble

QUESTIONS = ["In which country is Ada Foah?", "What is baked?"]
DOCUMENTS = [
    Document("1", "Ada Foah", ("Ada Foah is a town.", "It lies in Ghana.")),
    Document("2", "Bread", ("Bread is baked from dough.",)),
]


def towns(model: ScriptedModel) -> Callable[[], Knowledge]:
    """Give the methods that ask one a knowledge base."""
    store = StoreDouble([("ada_foah", "country", "ghana")])
    generator = FewShotGenerator(model, store.relations())
    return lambda: Knowledge(store, EntityLinker(store, None), generator)


class Lengths:
    """A cross-encoder that likes long passages."""

    name = fingerprint = "lengths"

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        return np.array([len(passage) for _, passage in pairs], dtype=np.float32)


def search_own(questions: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[Found]:
    """Search each question's own documents across hops."""
    engine = cast(Engine, SimpleNamespace(encoder=HashEncoder()))
    return [
        Corpus(of_question).search([question], engine)[0]
        for question, of_question in zip(questions, documents, strict=True)
    ]


@pytest.mark.parametrize("abilities", [UNABLE, CAPABLE])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers_every_question_under_its_own_name(method: str, abilities: Abilities) -> None:
    model = ScriptedModel(["<Ada Foah; country; Ghana>", "Ghana"])
    made = make_method(
        method, model, HashEncoder, abilities, [], knowledge=towns(model), cross_encoder=Lengths, hops=search_own
    )
    answers = made.answer(QUESTIONS, [DOCUMENTS, DOCUMENTS])
    assert [answer.question for answer in answers] == QUESTIONS
    for answer in answers:
        assert answer.method == method
        assert set(answer.seconds) == set(answer.usage)
        # Spans are read without a language model.
        assert abilities is UNABLE or sum(usage.calls for usage in answer.usage.values()) > 0
        assert set(answer.evidence.document_ids) <= {"1", "2"}
    assert made.answer([], []) == []


@pytest.mark.parametrize("method", METHODS)
def test_no_document_at_all_is_never_a_crash(method: str) -> None:
    model = ScriptedModel(["Ghana"])
    made = make_method(
        method, model, HashEncoder, UNABLE, [], knowledge=towns(model), cross_encoder=Lengths, hops=search_own
    )
    (answer,) = made.answer(QUESTIONS[:1], [[]])
    assert answer.text or answer.notes
    with pytest.raises(InputError, match="question 1 of 1 is empty"):
        made.answer([" \n"], [DOCUMENTS])


def test_methods_that_need_no_documents_do_not_say_that_evidence_is_missing() -> None:
    for method in sorted(name for name, row in METHODS.items() if not row.needs):
        model = ScriptedModel(["Ada Foah is in Ghana."])
        made = make_method(method, model, HashEncoder, UNABLE, [], knowledge=towns(model), hops=search_own)
        (answer,) = made.answer(QUESTIONS[:1], [[]])
        assert answer.text, method


def test_a_method_that_asks_a_knowledge_base_is_refused_without_one() -> None:
    with pytest.raises(InputError, match="cok asks a knowledge base, and there is none; give --kb"):
        make_method("cok", ScriptedModel(["x"]), HashEncoder, UNABLE, [])


def test_an_encoder_is_asked_for_only_where_it_is_needed() -> None:
    def unwanted() -> Encoder:
        raise AssertionError

    for method in ("rag", "bm25", "cross-encoder"):
        made = make_method(method, ScriptedModel(["x"]), unwanted, UNABLE, [], cross_encoder=Lengths)
        made.answer(QUESTIONS, [DOCUMENTS] * 2)


def test_a_cross_encoder_is_asked_for_only_by_its_method() -> None:
    def unwanted() -> CrossEncoder:
        raise AssertionError

    for method in METHODS:
        if method != "cross-encoder":
            model = ScriptedModel(["x"])
            make_method(
                method, model, HashEncoder, UNABLE, [], knowledge=towns(model), cross_encoder=unwanted, hops=search_own
            )


def test_settings_behind_a_colon_are_part_of_the_name_and_win() -> None:
    named = parse_method(" scope-coe: cover=exact , top=3 ")
    assert named == MethodName("scope-coe", ("cover=exact", "top=3"))
    assert named.label == "scope-coe:cover=exact,top=3"
    settings = method_settings(named, UNABLE, ["top=9", "pool=4"])
    assert (settings.cover, settings.top, settings.pool) == ("exact", 3, 4)  # type: ignore[attr-defined]
    made = make_method("dense:top=1", ScriptedModel(["x"]), HashEncoder, UNABLE, [])
    (answer,) = made.answer(QUESTIONS[:1], [DOCUMENTS])
    assert (answer.method, answer.evidence.document_ids) == ("dense:top=1", ("1",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tracer", "there is no method 'tracer'; choose one of hops, trace, trace-doc"),
        ("", "there is no method ''"),
        ("rag:", "does not name settings behind the colon"),
        ("rag:top", "does not name settings behind the colon"),
    ],
)
def test_names_that_are_none_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


def test_each_method_gets_the_settings_that_it_has() -> None:
    methods = [parse_method(name) for name in ("ks-llm", "dense", "rag")]
    own = check_overrides(methods, ["sentences=3", "top=2", "reader_demonstrations=1"])
    assert own == {
        "ks-llm": ("sentences=3", "reader_demonstrations=1"),
        "dense": ("top=2", "reader_demonstrations=1"),
        "rag": ("reader_demonstrations=1",),
    }
    with pytest.raises(InputError, match=r"'chains=3' is not name=value with a name among those of ks-llm, dense, rag"):
        check_overrides(methods, ["chains=3"])
    with pytest.raises(InputError, match="a setting of dense cannot be used: Expected `int` >= 1"):
        check_overrides(methods, ["top=0"])


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "1e300", "99999999999999999999", "9" * 5_000])
def test_no_setting_takes_a_number_without_bounds(value: str) -> None:
    numbers = [
        (method, field.name)
        for method, row in METHODS.items()
        for field in msgspec.structs.fields(row.settings)
        if isinstance(getattr(row.settings, field.name), int | float) and field.type is not bool
    ]
    assert ("trace", "link_weight") in numbers
    for method, name in numbers:
        with pytest.raises(InputError, match=f"setting (of {method}|{name} of {method}) ") as told:
            method_settings(method, UNABLE, [f"{name}={value}"])
        assert len(str(told.value)) < 400
        assert "\n" not in str(told.value)


def test_none_is_a_value_only_where_a_setting_may_be_none() -> None:
    assert method_settings("cot", UNABLE, ["context=none"]).context == "none"  # type: ignore[attr-defined]
    assert method_settings("trace", UNABLE, ["reader_documents=none"]).reader_documents is None  # type: ignore[attr-defined]
    assert method_settings("trace-doc", CAPABLE) == TraceSettings(reader="document")


def test_small_models_have_settings_of_their_own_and_others_the_papers() -> None:
    assert default_settings("scope-coe", UNABLE).judge == "text"  # type: ignore[attr-defined]
    paper = default_settings("scope-coe", CAPABLE)
    assert (paper.judge, paper.cover, paper.recheck, paper.top) == ("model", "greedy", False, 5)  # type: ignore[attr-defined]
    ks = default_settings("ks-llm", CAPABLE)
    assert (ks.sentences, ks.document_tokens, ks.reader_demonstrations) == (2, 300, 0)  # type: ignore[attr-defined]
    thoughts = default_settings("cot-sc", CAPABLE)
    assert (thoughts.samples, thoughts.temperature) == (5, 0.7)  # type: ignore[attr-defined]


DOCS = Path(__file__).parents[2] / "docs"


def test_the_documents_list_of_methods_is_the_registry_s() -> None:
    table = (DOCS / "answer.md").read_text(encoding="utf-8").partition("## Methods")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    listed = [re.findall("`([^`]+)`", names) for names, _ in rows]
    assert sorted(name for names in listed for name in names) == sorted(METHODS)
    for names, (_, summary) in zip(listed, rows, strict=True):
        if len(names) == 1:
            assert summary.strip().replace("`", "'").startswith(METHODS[names[0]].summary)


def test_help_and_tables_name_registered_methods_alone() -> None:
    (option,) = [one for one in click_command(Ask).params if one.name == "method"]
    named = (getattr(option, "help", None) or "").removeprefix("How to answer: ").partition(" and others")[0]
    assert set(re.split(r",\s*", named)) <= set(METHODS)
    baselines = (DOCS / "ablations.md").read_text(encoding="utf-8").partition("## Baselines")[2].partition("\n## ")[0]
    cells = [line.split("|")[3] for line in baselines.splitlines() if line.startswith("|") and "`" in line]
    for name in [name for cell in cells for name in re.findall("`([^`]+)`", cell)]:
        parse_method(name)
