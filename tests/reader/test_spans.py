"""Answers as spans of the evidence: what may be one, which of two was first, and that no answer stands nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from pytrace.models.scripted import ScriptedModel
from pytrace.reader.answers import Reading
from pytrace.reader.evidence import all_documents, triple_evidence
from pytrace.reader.places import answer_places
from pytrace.reader.readers import ReaderName, ReaderSettings, make_reader
from pytrace.reader.spans.candidates import are_english, read_entries, spans_of
from pytrace.reader.spans.comparison import Entry, earlier_or_later, life, merge_articles
from pytrace.reader.spans.features import candidates, shape_of
from pytrace.reader.spans.focus import focus_stems
from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.reader import SpanReader
from pytrace.reader.spans.weights import SpanWeights, learned_questions, shipped_weights
from pytrace.reader.spans.words import stem, words
from pytrace.reader.spans.yes_no import yes_features
from pytrace.records import AnswerPlace, Chain, Document, Evidence, Origin, Triple

FORT = Document(
    "fort", "Fort Kongenstein", ("Fort Kongenstein was a Danish trading fort located in Ada Foah, built in 1783.",)
)
TOWN = Document(
    "town",
    "Ada Foah",
    ("Ada Foah is a town on the coast.", "It lies in the Greater Accra Region of Ghana, 40 km from Tema."),
)
FILMS = (
    Document("one", "The Old Mill (film)", ("The Old Mill is a film directed by Ann Reed.",)),
    Document("two", "Sea Walls", ("Sea Walls is a 1931 film by director Bo Ek.",)),
    Document("ann", "Ann Reed", ("Ann Reed (3 May 1901 – 9 June 1980) was an English director.",)),
    Document("bo", "Bo Ek", ("Bo Ek (born 12 March 1899) is a Swedish director.",)),
)


def entries_of(documents: Sequence[Document]) -> tuple[str, ...]:
    return all_documents(documents).context


def texts_of(entries: Sequence[str]) -> list[str]:
    sentences = read_entries(entries)
    english = are_english(sentences)
    return [
        entries[sentence.entry][span.start : span.end]
        for number, sentence in enumerate(sentences)
        for span in spans_of(number, sentence, english=english)
    ]


def test_names_dates_numbers_and_phrases_are_found_and_no_name_is_cut() -> None:
    found = set(texts_of(entries_of([FORT, TOWN])))
    assert {"Fort Kongenstein", "Danish", "trading fort", "Danish trading fort", "Ada Foah", "1783"} <= found
    assert {"Greater Accra Region", "Greater Accra Region of Ghana", "Ghana", "40 km", "Tema", "coast", "town"} <= found
    assert not {"Kongenstein", "Accra Region", "Greater Accra", "Ada", "Foah", "in 1783", "Ghana,", "the", "It"} & found


def test_names_begin_behind_titles_and_owners_and_end_before_what_is_owned() -> None:
    told = (
        "[Salzburg] Actress Ann Reed met Emperor Minh Mạng, son of Prince Richard I of Capua, at Mozart's Eine kleine Nachtmusik. "
        'She is a French-American, won the Danish World Cup, sang "Life Is a Minestrone" and owned about $1.18 trillion, since 2007.'
    )
    found = set(texts_of([told]))
    assert {
        "Ann Reed",
        "Actress Ann Reed",
        "Minh Mạng",
        "Richard I of Capua",
        "Mozart",
        "Eine kleine Nachtmusik",
    } <= found
    assert {"French", "American", "French-American", "Danish", "World Cup", "Life Is a Minestrone"} <= found
    assert {"about $1.18 trillion", "$1.18 trillion", "2007"} <= found
    assert not {"Richard", "Cup", "Mozart's", "Reed", "about"} & found


def test_dates_begin_behind_capitals_and_have_shortened_months() -> None:
    found = set(
        texts_of(["[A song] Recorded August 16, 1967 in Accra. It came out on Sept. 10, 1968, in a shop of the town."])
    )
    assert {"August 16, 1967", "Sept. 10, 1968"} <= found
    assert shape_of(words("Sept. 10, 1968")) == shape_of(words("10 Dec 1968")) == "date"


@pytest.mark.parametrize(
    "entry",
    ["<Ada Foah; located in; Greater Accra Region>", "[Ada Foah] It has 3 churches.", "A plain text of Tema.", ""],
)
def test_every_span_stands_where_it_says(entry: str) -> None:
    for sentence in read_entries([entry]):
        assert entry[sentence.start : sentence.start + len(sentence.text)] == sentence.text
        for word in sentence.words:
            assert sentence.text[word.start : word.end] == word.text
    assert all(text == text.strip() and text in entry for text in texts_of([entry]))


def test_of_a_triple_head_and_tail_may_be_answers() -> None:
    assert texts_of(["<Ada Foah; located in; Greater Accra Region>"]) == ["Ada Foah", "Greater Accra Region"]


def test_white_space_within_a_sentence_does_not_move_a_span() -> None:
    entry = "[Tema] Tema  lies\nin   Ghana. It was\nbuilt in 1960."
    assert {"Ghana", "1960", "Tema"} <= set(texts_of([entry]))


def test_other_languages_have_stretches_of_words_or_characters() -> None:
    german = "[Berlin] Berlin wurde 1237 erstmals urkundlich erwähnt, nachdem Kaufleute dort siedelten."
    assert {"1237", "erstmals urkundlich", "Kaufleute"} <= set(texts_of([german]))
    japanese = "[東京] 東京は日本の首都である。"
    assert {"日本", "首都"} <= set(texts_of([japanese]))


def test_texts_of_any_shape_are_read_in_bounded_time() -> None:
    for text in (
        "(" * 3000,
        "a " * 20_000,
        "A" * 20_000,
        "\x00 \ud800 é" * 500,
        "«" + "1," * 5000,
        "[" * 4000,
        "<a; b; " * 2000,
        "`` a" + " " * 20_000,
        "“" * 5000 + "`` a " * 2000 + "French-" * 3000,
    ):
        assert isinstance(candidates("Who is A?", [text]), list)
    assert candidates("", []) == []
    assert candidates("???", ["...", "[] "]) == []


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who wrote Faust?", "person"),
        ("Which film director was born in Rome?", "person"),
        ("When did it open?", "date"),
        ("In which city does she live?", "place"),
        ("What is the population of Bonn?", "number"),
        ("What nationality is the director of Sea Walls?", "origin"),
        ("Are both films French?", "yes-no"),
        ("Was Ann Reed or Bo Ek born first?", "other"),
        ("What is the date of birth of Bo Ek?", "date"),
        ("Is it so or not?", "yes-no"),
        ("Bo Ek has a boat. Does Ann Reed also have one?", "yes-no"),
        ("What type of boat does he own?", "sort"),
        ("What genre is the album?", "sort"),
        ("In what year did it open?", "year"),
        ("How many large rooms are there?", "number"),
        ("", "other"),
    ],
)
def test_what_a_question_asks_for(question: str, kind: str) -> None:
    assert read_question(question).kind == kind


def test_words_of_a_family_have_one_stem() -> None:
    assert {stem(word) for word in ("die", "died", "Death")} == {"die"}
    assert {stem(word) for word in ("writes", "written", "wrote", "author's")} == {"write"}
    assert stem("produced") == stem("producers") == "produce"
    assert stem("rivers") == stem("river") == "river"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("12 March 1899", "date"),
        ("May 1901", "month"),
        ("12 March", "day"),
        ("1899", "year"),
        ("40", "number"),
        ("40 km", "quantity"),
        ("Danish", "origin"),
        ("Tema", "name of one word"),
        ("Ada Foah", "name of two words"),
        ("Greater Accra Region", "name"),
        ("town of Ada", "partly a name"),
        ("trading fort", "words"),
        ("", "part"),
    ],
)
def test_what_a_span_looks_like(text: str, shape: str) -> None:
    assert shape_of(words(text)) == shape


@pytest.mark.parametrize(
    ("question", "chosen"),
    [
        ("Who was born first, Ann Reed or Bo Ek?", 3),
        ("Who is younger, Ann Reed or Bo Ek?", 2),
        ("Which film has the director who was born later, The Old Mill or Sea Walls?", 0),
        ("Which film has the director who died first, The Old Mill or Sea Walls?", None),  # one may live
        ("Which film was released first, The Old Mill or Sea Walls?", None),  # of one nobody tells
        ("Who lived longer, Ann Reed or Bo Ek?", None),
        ("Which film is longer, The Old Mill or Sea Walls?", None),
        ("Who was born first?", None),
        ("Was Ann Reed born earlier or later than Bo Ek?", None),
    ],
)
def test_which_of_two_by_their_dates(question: str, chosen: int | None) -> None:
    entries = [Entry(document.title, document.sentences) for document in FILMS]
    assert earlier_or_later(question, entries) == chosen
    for order in ((1, 0, 2, 3), (3, 2, 1, 0)):
        turned = earlier_or_later(question, [entries[place] for place in order])
        assert (None if turned is None else order[turned]) == chosen


@pytest.mark.parametrize(
    ("question", "chosen"),
    [
        ("Which film stars Bo Ek, First Blood or Die Hard?", None),
        ("Which film was released first, First Blood or Die Hard?", 0),
        ("Which film was released later, First Blood or Die Hard?", 1),
        ("Which is older, Die Hard or First Blood?", None),
        ("Which film's director is older, Die Hard or First Blood?", None),
        ("Which film was released first/earlier, First Blood or Die Hard?", 0),
        ("Which of the two came first-of-all: First Blood or Die Hard?", 0),
    ],
)
def test_words_of_titles_do_not_say_how_two_are_compared(question: str, chosen: int | None) -> None:
    entries = [
        Entry("First Blood", ["First Blood is a film of 1982 with Ann Reed, who was born in 1946 and died in 2020."]),
        Entry("Die Hard (film)", ["Die Hard is a film of 1988 with Bo Ek, who died in 2010."]),
    ]
    assert earlier_or_later(question, entries) == chosen


def test_a_title_that_is_the_word_of_the_comparison_is_taken_out_once() -> None:
    entries = [Entry("Last", ["Last is an album of 1992."]), Entry("Jaws", ["Jaws is a film of 1975."])]
    assert earlier_or_later("Which came out last: Jaws or Last?", entries) == 0


def test_a_span_is_found_though_its_last_letter_changes_with_what_follows() -> None:
    entry = "[Τ] ΠΡΟΕΔΡΟΣ:Γιώργος Παπάς"
    at = entry.index("ΠΡΟΕΔΡΟΣ")
    found = candidates("Τ?", [entry], near=[(0, at, at + 8)])
    assert "ΠΡΟΕΔΡΟΣ" in [one.text for one in found]


def test_a_title_never_names_the_role_by_way_of_which_two_are_compared() -> None:
    entries = [
        Entry("The Director", ["The Director is a film of 1990, directed by Ann Reed."]),
        Entry("Sea Walls", ["Sea Walls is a film of 1931, directed by Bo Ek."]),
        Entry("Ann Reed", ["Ann Reed (born 1840) was a judge."]),
        Entry("Bo Ek", ["Bo Ek (born 1899) is a man."]),
    ]
    assert earlier_or_later("Which film was released first, The Director or Sea Walls?", entries) == 1


def test_a_yes_or_no_question_without_evidence_has_no_candidates() -> None:
    for entries in ([], [""], ["  "]):
        assert candidates("Is the ferry late?", entries) == []


def test_pieces_of_one_article_are_compared_as_one() -> None:
    entries = [
        Entry("Ann Reed", ["She became a judge in 1873.", "She died on 9 March 1902."]),
        Entry("Bo Ek", ["Bo Ek (born 12 March 1899) is a man."]),
        Entry("Ann Reed", ["Ann Reed (born 1840) was a judge."]),
    ]
    assert earlier_or_later("Who is older, Ann Reed or Bo Ek?", entries) is None
    assert merge_articles(entries)[0] == Entry("Ann Reed", [*entries[2].sentences, *entries[0].sentences])
    texts = [f"[{title}] {' '.join(said)}" for title, said in entries]
    evidence = Evidence("documents", tuple(texts), tuple("abc"))
    assert SpanReader(ScriptedModel()).read(["Who is older, Ann Reed or Bo Ek?"], [evidence])[0].text == "Ann Reed"


def test_no_candidate_has_one_bracket_of_two() -> None:
    entry = "[Bo Ek] Bo (born Ek, 1844–1906) on April 3 left Lund (the city), Malmö), and (Ystad for the port (of Tema."
    for one in candidates("Where did Bo go?", [entry]):
        assert one.text.count("(") == one.text.count(")"), one.text


@pytest.mark.parametrize(
    ("text", "birth", "death"),
    [
        ("Bo (born March 12, 1899 in Lund) is a man.", (1899, 3, 12), None),
        ("Bo (12 March 1899, Lund – 9 June 1980) was a man.", (1899, 3, 12), (1980, 6, 9)),
        ("Bo (née Ek (of Lund); 1899 – 1980) was.", (1899, 0, 0), (1980, 0, 0)),
        ("Bo (died 1980) was a man.", None, (1980, 0, 0)),
        ("Bo was born in Lund in May 1899. He died on 9 June 1980.", (1899, 5, 0), (1980, 6, 9)),
        ("Bo (born 12 Sept. 1899; died Jan. 5, 1980) was.", (1899, 9, 12), (1980, 1, 5)),
        ("Bo is a film of 1931.", None, None),
        ("", None, None),
    ],
)
def test_the_dates_of_a_life(text: str, birth: Any, death: Any) -> None:
    assert life(text) == (birth, death)


def test_dates_are_compared_as_exactly_as_both_are_told() -> None:
    entries = [Entry("A", ["A (born 1899) is a man."]), Entry("B", ["B (born 12 March 1899) is a man."])]
    assert earlier_or_later("Who is older, A or B?", entries) is None


@pytest.mark.parametrize(
    ("question", "entries", "told"),
    [
        (
            "Are Ann Reed and Bo Ek from the same country?",
            [
                Entry("Ann Reed", ["Ann Reed was an English director."]),
                Entry("Bo Ek", ["Bo Ek is a Swedish director."]),
            ],
            {"yes": 1.0, "yes: one country False": 1.0},
        ),
        (  # by way of their directors
            "Do both directors of films Sea Walls and The Old Mill share the same nationality?",
            [
                Entry("Sea Walls", ["Sea Walls is a French film directed by Bo Ek."]),
                Entry("The Old Mill", ["The Old Mill is an English film directed by Ann Reed."]),
                Entry("Ann Reed", ["Ann Reed was a director from Wales."]),
                Entry("Bo Ek", ["Bo Ek is a Scottish director."]),
            ],
            {"yes": 1.0, "yes: one country True": 1.0},
        ),
        (  # a title tells nothing, and nor does "us"
            "Are Danish Pastry and Irish Stew of the same nationality?",
            [Entry("Danish Pastry", ["Danish Pastry is for us."]), Entry("Irish Stew", ["It is a French dish."])],
            {"yes": 1.0},
        ),
        (  # letters that ignoring case takes for an "i"
            "Are Ann Reed and Bo Ek from the same country?",
            [Entry("Ann Reed", ["Ann Reed was an Italıan director."]), Entry("Bo Ek", ["Bo Ek was born in İran."])],
            {"yes": 1.0},
        ),
        (
            "Are Ann Reed and Bo Ek both directors?",
            [Entry("Ann Reed", ["Ann Reed was a director."]), Entry("Bo Ek", ["Bo Ek sold boats."])],
            {"yes": 1.0, "yes: the least said": 0.0, "yes: the most unsaid": 1.0},
        ),
        ("Are Ann Reed and Bo Ek from the same country?", [], {"yes": 1.0}),
        ("Is it so?", [Entry("Tema", ["Tema is a city."])], {"yes": 1.0}),
    ],
)
def test_what_speaks_for_yes(question: str, entries: list[Entry], told: dict[str, float]) -> None:
    assert yes_features(question, entries) == told


def test_places_are_found_in_titles_and_in_documents_that_are_there() -> None:
    evidence = all_documents([FORT, TOWN])
    at = evidence.context[1].index("Ada Foah")
    assert answer_places([(1, at, at + 8)], evidence, [FORT, TOWN]) == (AnswerPlace("town", -1, 0, 8),)
    assert answer_places([(1, at, at + 8)], evidence, [FORT]) == ()


def test_places_of_passages_that_were_joined_are_of_the_passage_that_has_the_sentence() -> None:
    passages = [
        Document("d#1", "Tema", ("Tema lies in Ghana.",), origin=Origin("d", "Tema", start=0, end=19, sentences=(0,))),
        Document(
            "d#2", "Tema", ("It was built in 1960.",), origin=Origin("d", "Tema", start=20, end=41, sentences=(20,))
        ),
    ]
    evidence = all_documents(passages)
    (entry,) = evidence.context
    at = entry.index("1960")
    assert answer_places([(0, at, at + 4)], evidence, passages) == (AnswerPlace("d#2", 0, 16, 20),)


def test_places_of_a_triple_are_in_the_sentence_that_supports_it_or_the_title() -> None:
    triple = Triple("Ada Foah", "region", "Greater Accra Region", "town", 1)
    evidence = triple_evidence([Chain((triple,), (0.0,), 0.0, finished=False)])
    (entry,) = evidence.context
    head, tail = ((0, entry.index(text), entry.index(text) + len(text)) for text in (triple.head, triple.tail))
    assert answer_places([tail], evidence, [TOWN]) == (AnswerPlace("town", 1, 15, 35),)
    assert TOWN.sentences[1][15:35] == triple.tail
    assert answer_places([head], evidence, [TOWN]) == (AnswerPlace("town", -1, 0, 8),)
    assert answer_places([head, tail], evidence, []) == ()


def read_one(question: str, documents: Sequence[Document]) -> Reading:
    (reading,) = SpanReader(ScriptedModel()).read([question], [all_documents(documents)])
    return reading


def test_an_answer_has_its_places_and_a_probability_and_asks_no_model() -> None:
    model = ScriptedModel()
    evidence = all_documents([FORT, TOWN])
    (reading,) = SpanReader(model).read(["In which year was Fort Kongenstein built?"], [evidence])
    assert reading.text == "1783"
    assert reading.probability is not None
    assert 0 < reading.probability < 1
    assert all(evidence.context[entry][start:end] == "1783" for entry, start, end in reading.places)
    assert reading.places
    assert model.usage.calls == 0


def test_yes_and_no_are_answers_to_questions_that_can_have_no_other() -> None:
    assert read_one("Are both films French?", FILMS).text in ("yes", "no")


def test_dates_decide_which_of_two_was_first() -> None:
    assert read_one("Who was born first, Ann Reed or Bo Ek?", FILMS).text == "Bo Ek"
    assert read_one("Who was born later, Ann Reed or Bo Ek?", FILMS).text == "Ann Reed"


@pytest.mark.parametrize("context", [("...",), ()])
def test_evidence_without_any_candidate_has_no_answer(context: tuple[str, ...]) -> None:
    (reading,) = SpanReader(ScriptedModel()).read(
        ["Who is it?"], [Evidence("documents", context, ("a",) * len(context))]
    )
    assert reading.text == ""
    assert reading.places == ()


def test_methods_without_evidence_have_the_model_write() -> None:
    model = ScriptedModel(("Lund",))
    (reading,) = SpanReader(model).read(["Where was Bo Ek born?"], [Evidence("none", (), ())])
    assert (reading.text, reading.probability) == ("Lund", None)


def test_a_passage_that_the_search_prefers_is_preferred() -> None:
    first = Document("a", "Ann Venn", ("Ann Venn was born in Lund in 1901.",))
    second = Document("b", "Ann Venn", ("Ann Venn was born in Turku in 1901.",))
    for order, best in (((first, second), "Lund"), ((second, first), "Turku")):
        evidence = msgspec.structs.replace(
            all_documents(order), relevance=(0.9, 0.05), signals={"hops": 0.1, "best seed": 1.2}
        )
        (reading,) = SpanReader(ScriptedModel()).read(["In which town was Ann Venn born?"], [evidence])
        assert reading.text == best


def test_readers_have_names_and_keep_their_settings_with_another_model() -> None:
    assert set(get_args(ReaderName)) == {"free", "span"}
    for name in get_args(ReaderName):
        reader = make_reader(ScriptedModel(), ReaderSettings(reading=name, reader_demonstrations=3))
        other = ScriptedModel()
        changed = reader.with_model(other)
        assert type(changed) is type(reader)
        assert changed.model is other
        assert changed._settings == reader._settings


@pytest.mark.parametrize(
    ("question", "focus"),
    [
        ("Who founded the company that owns the Marigold Tern?", {"found", "company"}),
        ("In which year was the railway opened for which her father worked?", {"year", "railway", "open"}),
        ("Who wrote the book about the stone of which the tower is built?", {"wrote", "book", "stone", "built"}),
        ("Wie heißt der Fluss?", {"heißt", "der"}),
    ],
)
def test_the_focus_of_a_question_leaves_out_relative_clauses_and_names(question: str, focus: set[str]) -> None:
    found = focus_stems(question)
    assert {stem(word) for word in focus} & found
    assert not {"marigold", "tern", "father", "tower", "wie", "fluss"} & found


def test_the_shipped_weights_weigh_what_is_found() -> None:
    weights = shipped_weights()
    known = {
        name for one in candidates("Which city lies on the coast?", entries_of([FORT, TOWN])) for name in one.features
    }
    assert len(known & set(weights.choice)) > 30
    assert all(np.isfinite(list(weights.choice.values())))
    assert {"always", "log-odds"} <= set(weights.certainty)
    assert SpanWeights({"a": 2.0}, {}).score({"a": 3.0, "b": 1.0}) == 6.0
    assert SpanWeights({}, {}).probability({"log-odds": 0.0}) == 0.5
    assert SpanWeights({}, {"always": -1e9}).probability({"always": 1.0}) < 1e-12


def test_the_shipped_weights_list_the_questions_that_they_learned_from() -> None:
    hashes = learned_questions()
    assert hashes is not None
    assert len(hashes) > 1000


@pytest.mark.parametrize(
    ("question", "denied"),
    [
        ("Does Ferry follow redirects by default?", True),
        ("Does Ferry not follow redirects by default?", False),
        ("Does Ferry support HTTP/2?", False),
    ],
)
def test_a_sentence_that_denies_what_is_asked_decides_for_no(question: str, denied: bool) -> None:
    text = "[Redirects] Ferry does not follow redirects by default. In Ferry, HTTP/2 support is not enabled by default."
    found = {one.text: one.features for one in candidates(question, [text])}
    assert found.keys() == {"yes", "no"}
    assert ("denied" in found["no"]) == denied
    (best, _) = SpanReader(ScriptedModel(["unused"])).rank(question, Evidence("documents", (text,), ("redirects",)))
    assert best.candidate.text == "no" or not denied


def test_a_title_says_whom_a_denial_speaks_of() -> None:
    text = "[Otto Grim] Otto Grim was an engineer. He never worked on clocks."
    for question, denied in (("Did Otto Grim work on clocks?", True), ("Did Isolde Tarrant paint clocks?", False)):
        found = {one.text: one.features for one in candidates(question, [text])}
        assert ("denied" in found["no"]) == denied


def test_a_question_about_names_that_were_not_read_is_hardly_ever_answered() -> None:
    evidence = Evidence("documents", ("[Ferry] About 290 people live in Pellisk.",), ("ferry",))
    reader = SpanReader(ScriptedModel(["unused"]))
    foreign, own = reader.read(
        ["How many people live in Berlin?", "How many people live in Pellisk?"], [evidence, evidence]
    )
    assert foreign.probability is not None
    assert foreign.probability < 0.15 < own.probability


def test_near_places_only_what_touches_them_and_what_rules_decide_for_are_candidates() -> None:
    entries = entries_of([FORT, TOWN])
    everything = {one.text: one for one in candidates("Where does the fort lie?", entries)}
    start = entries[1].index("Accra")
    near = candidates("Where does the fort lie?", entries, near=[(1, start, start + len("Accra Region"))])
    assert {"Greater Accra Region", "Greater Accra Region of Ghana"} <= {one.text for one in near} < {*everything}
    assert all(one == everything[one.text] for one in near)
    assert candidates("Where does the fort lie?", entries, near=[]) == []
    # A form that touches a place brings its other places.
    both = candidates("Where?", entries, near=[(0, entries[0].index("Ada Foah"), entries[0].index("Ada Foah") + 3)])
    (town,) = [one for one in both if one.text == "Ada Foah"]
    assert {place[0] for place in town.spans} == {0, 1}
    question = "Which film has the director who was born first, The Old Mill or Sea Walls?"
    films = entries_of(FILMS)
    assert [one.text for one in candidates(question, films, near=[]) if one.features["the one of two"]] == ["Sea Walls"]
    code = ("[Limits] Call `httpx.Limits` to set them, or `httpx.Timeout`.",)
    asked = "Which class sets limits?"
    assert read_question(asked).identifier
    assert candidates(asked, code, near=[]) == candidates(asked, code) != []
