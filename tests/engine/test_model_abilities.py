"""Settings follow from what a model can do: by its file's hash, wherever the file lies; tested once, and only where it matters."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pytrace.engine import model_abilities
from pytrace.engine.evaluation_jobs import EvaluationJob
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.engine.model_abilities import FILE, MeasuredAbilities, is_large, parameters, prompt_style
from pytrace.engine.self_test import AbilityVerdict
from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.methods.catalog import METHODS, default_settings, parse_method
from pytrace.models import registry
from pytrace.models.language_model import LanguageModel
from pytrace.models.llama.gguf_header import count_parameters, read_header
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.readers import ReaderSettings

YES, NO = (AbilityVerdict(able, 5, 5, True, 0.1) for able in (True, False))


def unwanted() -> LanguageModel:
    raise AssertionError("the language model was asked for")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PYTRACE_HOME."""
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of models that are tested, all of which choose letters, end no chains and write no triples."""
    tested: list[str] = []

    def choices(model: LanguageModel, *, presumed: bool) -> dict[str, AbilityVerdict]:
        del presumed
        tested.append(f"{model.name} choices")
        return {"letters": YES, "ends": NO}

    def triples(model: LanguageModel, *, presumed: bool) -> dict[str, AbilityVerdict]:
        del presumed
        tested.append(f"{model.name} triples")
        return {"triples": NO}

    monkeypatch.setattr(model_abilities, "measure_choices", choices)
    monkeypatch.setattr(model_abilities, "measure_triples", triples)
    with pytest.warns(UserWarning, match=r"testing how well .* once, in at most \d+ seconds"):
        yield tested


def test_the_header_has_the_parameters_that_llama_cpp_counts(random_gguf: Path, tmp_path: Path) -> None:
    with LlamaCppModel(random_gguf, threads=1) as model:
        assert count_parameters(read_header(random_gguf)) == model.parameters == parameters(str(random_gguf))
    assert not is_large(str(random_gguf))
    assert prompt_style(str(random_gguf)) == "plain"
    for unknown in ("http://localhost:1", str(tmp_path / "missing.gguf")):
        assert parameters(unknown) is None
        assert is_large(unknown)
        assert prompt_style(unknown) == "auto"


def test_a_file_is_tested_once_whatever_it_is_called(
    random_gguf: Path, home: Path, tmp_path: Path, tests: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    copy = Path(shutil.copy(random_gguf, folder / "copy.gguf"))
    first = MeasuredAbilities(str(random_gguf), ScriptedModel)
    assert [first.can(ability) for ability in ("letters", "ends", "triples", "logits", "reads")] == [
        *(True, False, False),
        *(True, False),
    ]
    assert tests == ["scripted choices", "scripted triples"]
    for name in (random_gguf, copy, folder):
        later = MeasuredAbilities(str(name), unwanted)
        assert later.known() == first.known() == Abilities(ends=False, triples=False, reads=False)
        assert (later.can("letters"), later.can("ends")) == (True, False)
    assert (home / FILE).exists()


@pytest.mark.parametrize("content", [b"", b"\xff{", b'{"a": 1}', b"[]"])
def test_a_damaged_record_costs_another_test(random_gguf: Path, home: Path, tests: list[str], content: bytes) -> None:
    home.mkdir()
    (home / FILE).write_bytes(content)
    for _ in range(2):
        assert MeasuredAbilities(str(random_gguf), ScriptedModel).can("letters")
    assert tests == ["scripted choices"]
    (verdicts,) = msgspec.json.decode((home / FILE).read_bytes(), type=dict[str, dict[str, AbilityVerdict]]).values()
    assert verdicts == {"letters": YES, "ends": NO}


@pytest.mark.usefixtures("home")
def test_verdicts_of_an_older_test_are_not_used(
    random_gguf: Path, monkeypatch: pytest.MonkeyPatch, tests: list[str]
) -> None:
    for version in (1, 2):
        monkeypatch.setattr(model_abilities, "VERSION", version)
        MeasuredAbilities(str(random_gguf), ScriptedModel).can("triples")
    assert tests == ["scripted triples"] * 2


@pytest.mark.usefixtures("home")
def test_servers_are_known_by_address_and_by_what_they_say_of_their_model(tests: list[str]) -> None:
    one, other = ScriptedModel(), ScriptedModel(gives_logits=False)
    other.name, other.fingerprint = "other", "remote-2"
    for _ in range(2):
        for address in ("http://a:1", "http://b:1"):
            for model in (one, other):
                found = MeasuredAbilities(address, lambda model=model: model)
                assert (found.can("letters"), found.can("logits"), found.can("reads")) == (
                    *(True, model.gives_logits),
                    True,
                )
    assert tests == ["scripted choices", "other choices"] * 2
    assert MeasuredAbilities("http://a:1", unwanted).known() == CAPABLE


@pytest.mark.usefixtures("home")
def test_no_model_is_tested_for_methods_that_do_not_select_by_it(random_gguf: Path) -> None:
    found = MeasuredAbilities(str(random_gguf), unwanted)
    warnings.simplefilter("ignore")
    tested = set()
    for method in METHODS:
        try:
            default_settings(method, found)
        except AssertionError:
            tested.add(method)
    assert tested == {"trace", "trace-doc", "top-triples", "scope-coe"}


@pytest.mark.usefixtures("home")
def test_models_that_come_with_the_package_need_neither_file_nor_test() -> None:
    for name in ("tiny", "smollm2-135m", "gemma", "gemma3-270m"):
        found = MeasuredAbilities(name, unwanted)
        assert found.known() == UNABLE
        assert default_settings("trace", found) == default_settings("trace", UNABLE)
        assert prompt_style(name) == "plain"


@pytest.mark.parametrize("abilities", [UNABLE, CAPABLE])
def test_every_method_that_reads_has_the_same_reader(abilities: Abilities) -> None:
    readers = {
        (settings.reading, settings.reader_demonstrations)
        for method in METHODS
        if isinstance(settings := default_settings(method, abilities), ReaderSettings)
    }
    assert readers == {("free", 0) if abilities.reads else ("span", 4)}


@pytest.mark.usefixtures("home")
def test_the_model_that_reads_decides_how_answers_are_read(random_gguf: Path) -> None:
    large, small = "http://localhost:1", str(random_gguf)
    for llm, reader, reading in (
        (large, None, "free"),
        (small, None, "span"),
        (large, small, "span"),
        (small, large, "free"),
    ):
        engine = Engine(llm=llm, reader_llm=reader)
        assert default_settings("rag", engine.abilities).reading == reading


def test_abilities_that_are_given_are_not_measured_and_go_to_other_processes(random_gguf: Path, home: Path) -> None:
    del home
    given = Abilities(letters=False)
    assert Engine(known_abilities=given).abilities is given
    job = EvaluationJob((parse_method("trace"),), (), Engine(llm=str(random_gguf)), KnowledgeOptions(*[None] * 9))
    assert job.for_processes(1).models.abilities == Abilities(reads=False)
    with pytest.raises(registry.ModelFileError):
        Engine(llm="missing.gguf").method("trace")
