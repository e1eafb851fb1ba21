"""Readers that choose: held to the words of the evidence, the better of two answers, how likely it is, and abstaining."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from pytrace.reader.certainty import certainty
from pytrace.reader.choosing import ABSTENTION
from pytrace.reader.grammar import MOST_PLACES, WIDTH, GrammarReader
from pytrace.reader.spans.agreement import AgreementReader

from pytrace.certify.claims.answer_claims import answer_statement
from pytrace.certify.response_parsing import parse_response
from pytrace.errors import InputError
from pytrace.methods.abilities import CAPABLE
from pytrace.methods.baselines import Rag
from pytrace.methods.catalog import method_settings
from pytrace.models import registry
from pytrace.models.base_model import GenerationRequest
from pytrace.models.language_model import Completion, ContinuationScore
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.evidence import all_documents
from pytrace.reader.readers import ReaderName, ReaderSettings, make_reader
from pytrace.reader.spans.candidates import MOST_WORDS
from pytrace.reader.spans.reader import SpanReader
from pytrace.reader.spans.weights import SpanWeights, shipped_weights
from pytrace.records import AnswerPlace, Document, Evidence
from tests.reader.test_spans import FILMS, FORT

TOWN = Document(
    "town",
    "Ada Foah",
    ("Ada Foah is a town on the coast.", "It lies in the Greater Accra Region of Ghana, 40 km from Tema."),
)
QUESTION = "In which region does Ada Foah lie?"
EVIDENCE = all_documents([TOWN])


class Knowing(ScriptedModel):
    """A model that likes what begins as some texts do, the longest beginning most; it writes what it is told to."""

    def __init__(self, *liked: str, writes: str = "") -> None:
        super().__init__()
        self.liked = liked
        self.writes = writes
        self.asked: list[list[str]] = []

    def _generate(self, call: GenerationRequest) -> list[list[Completion]]:
        return [[Completion(self.writes, 3, "stop", -1.5)] for _ in call.prompts]

    def _score_continuations(self, _: Any, continuations: Any) -> list[list[ContinuationScore]]:
        self.asked += [list(texts) for texts in continuations]
        return [[self._score(text) for text in texts] for texts in continuations]

    def _score(self, text: str) -> ContinuationScore:
        for one in self.liked:
            if text == f" {one}\n":
                return ContinuationScore(np.array([-0.5]))
            if one.startswith(text.strip()):
                return ContinuationScore(np.array([-1.0]))
        return ContinuationScore(np.array([-9.0]))


def test_what_is_written_is_held_to_the_words_of_the_evidence() -> None:
    model = Knowing("Greater Accra Region", "the Volta Region")
    (reading,) = GrammarReader(model, demonstrations=0).read([QUESTION], [EVIDENCE])
    assert reading.text == "Greater Accra Region"
    ((entry, start, end),) = reading.places
    assert EVIDENCE.context[entry][start:end] == reading.text
    openings, texts = model.asked
    # Every word once, and what the likeliest go on to: a sentence's words in their order, and no further.
    assert openings == [
        " yes", " no", " Ada", " Foah", " is", " a", " town", " on", " the", " coast", " It", " lies", " in", " Greater",
        " Accra", " Region", " of", " Ghana", " 40", " km", " from", " Tema",
    ]  # fmt: skip
    assert " Greater Accra Region of Ghana, 40\n" in texts
    assert {text.split()[0] for text in texts} <= {word.strip() for word in openings}
    assert len({text.split()[0] for text in texts} - {"yes", "no"}) <= WIDTH
    assert not any(text.endswith(",\n") for text in texts)


def test_the_beam_says_yes_or_no_where_the_model_does() -> None:
    (reading,) = GrammarReader(Knowing("yes")).read(["Is Ada Foah a town?"], [EVIDENCE])
    assert (reading.text, reading.places) == ("yes", ())


def test_a_beam_in_a_chat_has_no_line_end() -> None:
    model = Knowing()
    model.style = "chat"  # type: ignore[attr-defined]
    (reading,) = GrammarReader(model).read([QUESTION], [EVIDENCE])
    assert reading.text
    assert not any(text.startswith(" ") or text.endswith("\n") for texts in model.asked for text in texts)


def test_characters_are_words_of_scripts_without_spaces() -> None:
    evidence = Evidence("documents", ("[東京] 東京は日本の首都です。",), ("a",))
    (reading,) = GrammarReader(Knowing("日本")).read(["東京はどの国の首都ですか。"], [evidence])
    assert (reading.text, reading.places) == ("日本", ((0, 8, 10),))


def test_a_word_that_stands_everywhere_is_gone_on_from_a_few_times() -> None:
    model = Knowing("the")
    evidence = Evidence("documents", tuple(f"[T{n}] It is the house{n} of the town{n}." for n in range(50)), ("a",))
    GrammarReader(model).read(["Which?"], [evidence])
    assert len([text for text in model.asked[1] if text.startswith(" the house")]) <= MOST_PLACES * MOST_WORDS
    assert len({text.split()[1] for text in model.asked[1] if text.startswith(" the ")}) <= MOST_PLACES


def test_evidence_of_any_kind_has_an_answer() -> None:
    for context in (("[東京] 東京は日本の首都です。",), ("...",), ("[] ",), ("<Ada Foah; region; Greater Accra>",)):
        evidence = Evidence("documents", context, ("a",))
        (reading,) = GrammarReader(Knowing()).read(["何?"], [evidence])
        assert reading.text in ("yes", "no") or reading.text in context[0]


def test_what_is_written_speaks_for_the_span_that_says_the_same() -> None:
    spans, both = SpanReader(Knowing(writes="Tema.")), AgreementReader(Knowing(writes="The Tema."))
    prompts = both._prompts([QUESTION], [EVIDENCE])[1]
    ((alone,), (ranked,)) = (reader.rank([QUESTION], [EVIDENCE.context], prompts) for reader in (spans, both))
    told = {one.candidate.text: one.told for one in ranked}
    assert told["Tema"]["written"] == 1.0
    assert told["Tema"]["log-probability of what is written"] == -0.5
    assert [text for text, known in told.items() if "written" in known] == ["Tema"]
    assert {one.candidate.text for one in alone} == set(told)


def test_what_is_written_and_stands_nowhere_is_a_candidate_without_a_place() -> None:
    sure = SpanWeights({}, {}, {"written": 5.0})
    (reading,) = AgreementReader(Knowing(writes="Volta"), weights=sure).read([QUESTION], [EVIDENCE])
    assert (reading.text, reading.places) == ("Volta", ())
    unsure = SpanWeights({}, {}, {"written": 5.0, "written, and no candidate": -9.0})
    (reading,) = AgreementReader(Knowing(writes="Volta"), weights=unsure).read([QUESTION], [EVIDENCE])
    assert reading.text != "Volta"
    (reading,) = AgreementReader(Knowing(writes=""), weights=sure).read([QUESTION], [EVIDENCE])
    assert reading.text


@pytest.mark.parametrize("reading", ["span", "grammar", "agreement"])
def test_an_answer_that_is_not_likely_enough_is_withheld(reading: ReaderName) -> None:
    settings = ReaderSettings(reading=reading)
    (given,) = Rag(Knowing("Tema", writes="Tema"), settings).answer([QUESTION], [[TOWN]])
    assert given.probability is not None
    assert 0 < given.probability < 1
    assert given.places == (AnswerPlace("town", 1, 57, 61),)
    for least in (0.0, given.probability, min(given.probability + 1e-3, 1.0)):
        careful = msgspec.structs.replace(settings, min_confidence=least)
        (answer,) = Rag(Knowing("Tema", writes="Tema"), careful).answer([QUESTION], [[TOWN]])
        if least <= given.probability:
            assert (answer.text, answer.places, answer.notes) == ("Tema", given.places, ())
        else:
            assert (answer.text, answer.places) == (ABSTENTION, ())
            assert answer.probability == given.probability
            assert answer.notes == (
                f"not likely enough to be given: 'Tema', right with probability {given.probability:.2f}",
            )


def test_where_there_is_no_evidence_a_careful_reader_abstains() -> None:
    nothing = Evidence("documents", (), ())
    for least, text in ((0.0, "Lund"), (0.1, ABSTENTION)):
        (reading,) = SpanReader(ScriptedModel(["Lund"]), min_confidence=least).read(["Where?"], [nothing])
        assert (reading.text, reading.probability) == (text, None)
    (answer,) = Rag(ScriptedModel(["Lund"]), ReaderSettings(reading="span", min_confidence=0.1)).answer(
        ["Where?"], [[]]
    )
    assert answer.notes == ("not likely enough to be given: 'Lund'",)


def test_a_confidence_needs_a_reader_that_knows_it() -> None:
    with pytest.raises(InputError, match="set reading=span, grammar or agreement"):
        make_reader(ScriptedModel(), ReaderSettings(min_confidence=0.5))
    for wrong in ("min_confidence=1.5", "min_confidence=nan", "min_confidence=-0.1", "reading=best"):
        with pytest.raises(InputError, match=r"cannot be used|is nan|not within"):
            method_settings("rag", CAPABLE, [wrong])
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        SpanReader(ScriptedModel(), min_confidence=2)
    assert {*get_args(ReaderName)} == {"free", "span", "grammar", "agreement"}


def test_an_abstention_is_known_to_the_checkers() -> None:
    assert parse_response(ABSTENTION).form == "abstained"
    assert answer_statement("Where does it lie?", ABSTENTION) == ""


def test_certainty_tells_what_is_not_in_the_evidence() -> None:
    entries = EVIDENCE.context
    known = certainty("In which region does Ada Foah lie?", entries, [-2.0, -2.0], -1.0)
    strange = certainty("In which region does Cape Coast lie?", entries, [-2.0, -2.0], -1.0, ruled=True)
    assert known["log-odds"] == 0.0
    assert (known["names unseen"], known["ruled"]) == (0.0, 0.0)
    assert (strange["names unseen"], strange["ruled"]) == (0.5, 1.0)
    assert strange["words unseen"] > known["words unseen"]
    for scores in ([0.0], [0.0, -1e9], [0.0] * 1000):
        assert np.isfinite(list(certainty("", [], scores, -1.0).values())).all()
    assert {name for weights in shipped_weights().certainty.values() for name in weights} <= set(known)


@pytest.mark.models
def test_without_the_passages_that_support_them_answers_are_less_likely(tiny_models: dict[registry.Role, Path]) -> None:
    places = [FORT, TOWN]
    asked = [
        ("In which region is the town in which Fort Kongenstein is located?", places, FILMS),
        ("When was Fort Kongenstein built?", places, FILMS),
        ("Who directed the film The Old Mill?", FILMS, places),
        ("Which film was directed by Bo Ek?", FILMS, places),
    ]
    questions = [question for question, _, _ in asked]
    with LlamaCppModel(tiny_models["language-model"], style="plain", context=2048, threads=1) as model:
        for reading in ("span", "grammar", "agreement"):
            reader = make_reader(model, ReaderSettings(reading=reading, reader_demonstrations=2))  # type: ignore[arg-type]
            given, absent = (
                reader.read(questions, [all_documents(one[place]) for one in asked])  # type: ignore[arg-type]
                for place in (1, 2)
            )
            likely = [[one.probability or 0.0 for one in some] for some in (given, absent)]
            assert all(there > gone for there, gone in zip(*likely, strict=True)), (reading, likely)
            assert sum(likely[0]) > 2 * sum(likely[1]), (reading, likely)
            careful = ReaderSettings(reading=reading, reader_demonstrations=2, min_confidence=max(likely[1]) + 1e-6)  # type: ignore[arg-type]
            told = make_reader(model, careful).read(questions, [all_documents(documents) for _, _, documents in asked])
            assert {one.text for one in told} == {ABSTENTION}
            assert [one.withheld for one in told] == [one.text for one in absent]
