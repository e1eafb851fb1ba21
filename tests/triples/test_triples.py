"""The KG generator: what is read of a model's lines, where it stands in the document, and what is never lost."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts import TripleDemonstration
from pytrace.records import Document, TextUnit, Triple
from pytrace.triples.extraction import (
    DocumentExtractor,
    Extraction,
    SentenceExtractor,
    build_graph,
)
from pytrace.triples.graph import Recipe, TripleStore
from pytrace.triples.kg_generator import LanguageModelExtractor
from pytrace.triples.parsing import locate, parse_triples, span_grammar

ROME = Document(
    "rome", "Rome", ("Rome is the capital of Italy.", "It lies on the river Tiber.", "Its mayor sits on the Capitol.")
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<Rome; country; Italy>", [("Rome", "country", "Italy")]),
        ("<Rome; country; Italy", [("Rome", "country", "Italy")]),
        ("Rome; country; Italy>", [("Rome", "country", "Italy")]),
        ("rome;country;Italy", [("Rome", "country", "Italy")]),
        ("<Rome; country; Italy>.", [("Rome", "country", "Italy")]),
        ("<Rome; country; Italy>;", [("Rome", "country", "Italy")]),
        ("<<Rome; country; Italy>>", [("Rome", "country", "Italy")]),
        ("<Rome; a; b>, <Rome; c; d> <Rome; e; f>", [("Rome", "a", "b"), ("Rome", "c", "d"), ("Rome", "e", "f")]),
        ("<Rome; said; veni; vidi; vici>", [("Rome", "said", "veni; vidi; vici")]),
        ("<Rome; said; veni;; >", [("Rome", "said", "veni")]),
        (
            "- <Rome; a; b>\n* <Rome; c; d>\n3. <Rome; e; f>\n12) <g; h>",
            [("Rome", *p) for p in ("ab", "cd", "ef", "gh")],
        ),
        ("<river; Tiber>", [("Rome", "river", "Tiber")]),
        ("<Tiber; mouth; Ostia>", [("Tiber", "mouth", "Ostia")]),
        ("<Rome; abbreviated; S.P.Q.R.>", [("Rome", "abbreviated", "S.P.Q.R.")]),
        ("<Rome; area; > 1,000 km>", [("Rome", "area", "> 1,000 km")]),
    ],
)
def test_lines_are_read_leniently(text: str, expected: list[tuple[str, str, str]]) -> None:
    parsed = parse_triples(text, "Rome")
    assert (parsed.triples, parsed.malformed, parsed.lines) == (expected, 0, len(expected))


@pytest.mark.parametrize(
    "text",
    ["Here are the triples:", "<Rome>", "<Rome; country>", "<Rome; ; Italy>", "<Rome; country; >", "<; a; b>", "<>"],
)
def test_what_has_no_relation_or_no_tail_is_malformed(text: str) -> None:
    assert parse_triples(text, "Rome") == type(parse_triples("", "Rome"))([], 1, 1)


@pytest.mark.parametrize("title", ["Steins;Gate", "A; B; C", "<i>", "x>", "S.", "Straße; Haus"])
def test_a_title_may_hold_what_separates_parts(title: str) -> None:
    assert parse_triples(f"<{title}; made by; Nitro+>", title).triples == [(title, "made by", "Nitro+")]


def test_the_last_line_of_a_text_that_was_cut_off_is_left_out_unless_its_bracket_closes() -> None:
    whole = "<Rome; a; b>\n<Rome; c; d>"
    assert len(parse_triples(whole, "Rome", complete=False).triples) == 2
    for end in range(whole.index("\n") + 1, len(whole)):
        parsed = parse_triples(whole[:end], "Rome", complete=False)
        # Whatever the rest looks like, it costs the finished line before it nothing.
        assert parsed.triples == [("Rome", "a", "b")]
        assert parsed.lines == 1 + parsed.malformed


NASTY = st.text(alphabet=st.one_of(st.sampled_from("<>;;, .\n\t-*1ab\u2028\x00é\ud800"), st.characters()), max_size=80)


@given(NASTY, NASTY.filter(str.strip), st.booleans())
def test_no_text_breaks_the_parser_and_every_line_is_accounted_for(text: str, title: str, complete: bool) -> None:
    parsed = parse_triples(text, title, complete=complete)
    assert parsed.lines == len(parsed.triples) + parsed.malformed
    for head, relation, tail in parsed.triples:
        assert head.strip()
        assert relation.strip()
        assert tail.strip()


WORD = (
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzäß '-(),.", min_size=1, max_size=12)
    .map(str.strip)
    .filter(
        lambda word: bool(re.search(r"\w", word)) and word[0] not in ",." and word[-1] not in ",." and word[0] != "-"
    )
)


@given(st.lists(st.tuples(WORD, WORD), max_size=6), st.sampled_from(["\n", ", ", " ", "\n\n- "]))
def test_what_was_written_soundly_is_read_back(facts: list[tuple[str, str]], separator: str) -> None:
    text = separator.join(Triple("The Title", relation, tail).text for relation, tail in facts)
    assert parse_triples(text, "The Title").triples == [("The Title", *fact) for fact in facts]


def test_a_triple_gets_the_sentence_that_says_its_tail() -> None:
    triples = [
        Triple("Rome", "river", "the river Tiber", "rome"),
        Triple("Rome", "capital of", "Italy", "rome"),
        Triple("Rome", "seat of its mayor", "the Capitol", "rome"),
        Triple("Rome", "founder", "Agamemnon of Mycenae", "rome"),
    ]
    located = locate(ROME, triples)
    assert [triple.sentence for triple in located[:3]] == [1, 0, 2]
    assert [triple.support for triple in located[:3]] == [100.0] * 3
    assert located[3].support < 60
    assert [(one.head, one.relation, one.tail) for one in located] == [(t.head, t.relation, t.tail) for t in triples]


def test_the_relation_decides_between_sentences_that_say_the_tail_as_well() -> None:
    document = Document("x", "Venn", ("Born in Quill, Venn sang.", "", "Venn died in Quill.", "Quill."))
    born, died = locate(document, [Triple("Venn", "born", "Quill"), Triple("Venn", "died", "quill")])
    assert (born.sentence, died.sentence) == (0, 2)


def test_documents_without_words_leave_triples_where_they_are() -> None:
    triple = Triple("x", "a", "b", "x")
    assert locate(Document("x", "X", ()), [triple]) == [triple]
    assert locate(Document("x", "X", (" ", "")), [triple]) == [triple]
    assert locate(ROME, []) == []


def writing(text: str) -> LanguageModelExtractor:
    return LanguageModelExtractor(ScriptedModel([text]), demonstrations=1)


def test_lines_are_counted_as_kept_repeated_or_dropped() -> None:
    (one,) = writing(
        " capital of; Italy>\n<Rome; Capital of; ITALY>\n<Rome; river; Tiber>\n<Rome; twin town; Paris>\nnonsense\n<Rome; >"
    ).extract([ROME])
    assert [(triple.text, triple.sentence) for triple in one.units] == [
        ("<Rome; capital of; Italy>", 0),
        ("<Rome; river; Tiber>", 1),
    ]
    assert {triple.document_id for triple in one.units} == {"rome"}
    counts = one.statistics
    assert (counts.lines, counts.parsed, counts.repeated, counts.dropped) == (6, 2, 1, 3)
    assert (counts.truncated, counts.failure) == (False, "")


def test_two_heads_with_one_relation_and_tail_are_two_facts() -> None:
    (one,) = writing(" lies on; Tiber>\n<Ostia; lies on; Tiber>").extract([ROME])
    assert [triple.head for triple in one.units] == ["Rome", "Ostia"]


def test_grounding_can_be_turned_off() -> None:
    model = ScriptedModel([" twin town; Paris>"])
    (kept,) = LanguageModelExtractor(model, grounding=0.0).extract([ROME])
    assert [triple.tail for triple in kept.units] == ["Paris"]


class CutOff(ScriptedModel):
    """Stops where it is told to, as a model does whose tokens are used up, and says so only at the end of the call."""

    def generate(self, prompts: list[Prompt | str], **options: object) -> list[list[Completion]]:  # type: ignore[override]
        del options["done"]
        rows = super().generate(prompts, **options)  # type: ignore[arg-type]
        return [[Completion(one.text, one.tokens, "length", 0.0) for one in row] for row in rows]


@pytest.mark.parametrize("last", ["<Rome; river; Tib", "<Rome; riv", "<Ro", "<Rome; river"])
def test_the_half_line_of_an_answer_that_was_cut_off_is_dropped_and_counted(last: str) -> None:
    (one,) = LanguageModelExtractor(CutOff([f" capital of; Italy>\n{last}"])).extract([ROME])
    assert [triple.tail for triple in one.units] == ["Italy"]
    assert (one.statistics.lines, one.statistics.parsed, one.statistics.dropped) == (2, 1, 1)
    assert one.statistics.truncated


def test_an_answer_cut_off_after_its_bracket_keeps_its_last_line() -> None:
    (one,) = LanguageModelExtractor(CutOff([" capital of; Italy>\n<Rome; river; Tiber>"])).extract([ROME])
    assert [triple.tail for triple in one.units] == ["Italy", "Tiber"]


def copying(prompt: str) -> str:
    """Write a sound triple for each name in the text that the prompt ends with."""
    names = re.findall(r"\bw\d+\b", prompt.rpartition("\nText: ")[2])
    return "\n".join(f"<Book; names; {name}>" for name in names).removeprefix("<Book;")


def test_a_long_document_is_read_in_parts_and_nothing_of_it_is_lost() -> None:
    sentences = tuple(f"Line {number} of this long old book names w{number}." for number in range(200))
    document = Document("book", "Book", sentences)
    model = ScriptedModel(copying)
    (one,) = LanguageModelExtractor(model, demonstrations=2).extract([document])
    assert len(model.prompts) > 3
    assert [triple.sentence for triple in one.units] == list(range(200))
    assert all(model.count_tokens(prompt.rpartition("\nText: ")[2]) < 520 for prompt in model.prompts)


def test_parts_shrink_with_the_context_of_the_model() -> None:
    document = Document("book", "Book", tuple(f"Line {number} names w{number}." for number in range(40)))
    model = ScriptedModel(copying, context_tokens=90)
    (one,) = LanguageModelExtractor(model, demonstrations=0).extract([document])
    assert [triple.sentence for triple in one.units] == list(range(40))
    assert max(model.count_tokens(prompt.rpartition("\nText: ")[2]) for prompt in model.prompts) <= 30 + 4


def test_a_document_without_a_sound_triple_is_represented_by_its_sentences_and_says_so() -> None:
    one, two = writing(" twin town; Paris>").extract([ROME, Document("b", "B", ("Only this.", " ", "And that."))])
    assert [triple.text for triple in one.units] == [f"[Rome] {sentence}" for sentence in ROME.sentences]
    assert [triple.sentence for triple in two.units] == [0, 2]
    assert one.statistics.failure == "no sound triple in 1 lines; the document's sentences stand in"
    assert (one.statistics.parsed, one.statistics.dropped) == (0, 1)


def test_documents_without_words_are_not_sent_to_the_model() -> None:
    model = ScriptedModel([" capital of; Italy>"])
    empty = [Document("e", "E", ()), Document("f", "F", ("", "  "))]
    results = LanguageModelExtractor(model).extract([empty[0], ROME, empty[1]])
    assert [one.document.id for one in results] == ["e", "rome", "f"]
    assert [len(one.units) for one in results] == [0, 1, 0]
    assert results[0].statistics.failure
    assert len(model.prompts) == 1
    assert LanguageModelExtractor(model).extract([]) == []
    for extractor in (SentenceExtractor(), DocumentExtractor()):
        assert [len(one.units) for one in extractor.extract(empty)] == [0, 0]


def test_results_are_in_the_order_of_the_documents_whatever_the_batch() -> None:
    documents = [Document(str(n), f"T{n}", (f"It has w{n}.",)) for n in range(7)]
    for batch in (1, 3, 32):
        extractor = LanguageModelExtractor(
            ScriptedModel(lambda prompt: f" has; w{prompt.rpartition('<T')[2].rstrip(';')}>"), batch=batch
        )
        results = extractor.extract(documents)
        assert [(one.document.id, one.units[0].tail) for one in results] == [(str(n), f"w{n}") for n in range(7)]


LABELLED = tuple(
    TripleDemonstration(title, text, ((relation, tail),))
    for title, text, relation, tail in [
        ("Oak", "The oak is a tree of the forest.", "is", "a tree"),
        ("Violin", "The violin is an instrument with four strings.", "has", "four strings"),
        ("Otter", "The otter swims in the river.", "swims in", "the river"),
    ]
)


def shown_titles(prompt: str) -> list[str]:
    return re.findall(r"^Title: (.*)$", prompt, flags=re.MULTILINE)[:-1]


def test_adaptive_demonstrations_are_the_nearest_and_the_nearest_stands_last() -> None:
    model = ScriptedModel([""])
    documents = [
        Document("c", "Cello", ("The cello is an instrument with four strings.",)),
        Document("b", "Beaver", ("The beaver swims in the river by the forest.",)),
    ]
    LanguageModelExtractor(model, encoder=HashEncoder(), demonstrations=2, labelled=LABELLED).extract(documents)
    assert shown_titles(model.prompts[0])[-1] == "Violin"
    assert shown_titles(model.prompts[1]) == ["Oak", "Otter"]


def test_fixed_demonstrations_are_the_first_and_prompts_share_them() -> None:
    model = ScriptedModel([""])
    documents = [Document("c", "Cello", ("It has strings.",)), Document("b", "Beaver", ("It swims.",))]
    LanguageModelExtractor(model, demonstrations=2, labelled=LABELLED).extract(documents)
    assert [shown_titles(prompt) for prompt in model.prompts] == [["Oak", "Violin"]] * 2
    first, second = (prompt.partition("Title: Cello")[0].partition("Title: Beaver")[0] for prompt in model.prompts)
    assert first == second
    assert model.prompts[0].endswith("\n<Cello;")
    model.prompts.clear()
    LanguageModelExtractor(model, encoder=HashEncoder(), demonstrations=0).extract(documents)
    assert [shown_titles(prompt) for prompt in model.prompts] == [[], []]


def tails_of(grammar: str) -> set[str]:
    """Write out every tail that a span grammar accepts."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())

    def texts(name: str) -> list[str]:
        found = re.fullmatch(r'"((?:[^"\\]|\\.)*)"(?: \("((?:[^"\\]|\\.)*)" (w\d+)\)\?)?', rules[name])
        assert found, rules[name]
        word, between, following = found.groups()
        return [word, *(word + between + rest for rest in (texts(following) if following else []))]

    tails = {text for name in rules["tail"].split(" | ") for text in texts(name)}
    return {re.sub(r"\\(.)", r"\1", tail) for tail in tails}


def test_a_span_grammar_accepts_the_spans_of_whole_words_of_each_sentence_and_nothing_else() -> None:
    sentences = ('She wrote "Salt & Sea" in 1,871 words.', "Don't!", "...", "A back\\slash")
    words = [list(re.finditer(r"[\w,']+(?<!,)", sentence)) for sentence in sentences]
    expected = {
        sentence[first.start() : last.end()]
        for sentence, own in zip(sentences, words, strict=True)
        for number, first in enumerate(own)
        for last in own[number:]
    }
    tails = tails_of(span_grammar('The "Title"', sentences))
    assert tails == expected
    assert {"1,871", "Salt & Sea", "Don't", "in 1,871 words", "back\\slash"} <= tails
    assert r"\n<The \"Title\"; " in span_grammar('The "Title"', sentences)


def test_each_prompt_is_held_to_the_spans_of_its_own_text() -> None:
    grammars: list[object] = []

    class Held(ScriptedModel):
        def generate(self, prompts: list[Prompt | str], **options: object) -> list[list[Completion]]:  # type: ignore[override]
            grammars.append(options["grammar"])
            return super().generate(prompts, **options)  # type: ignore[arg-type]

    other = Document("ostia", "Ostia", ("It lies by the sea.",))
    LanguageModelExtractor(Held([""]), spans=True).extract([ROME, other])
    assert grammars == [[span_grammar("Rome", ROME.sentences), span_grammar("Ostia", other.sentences)]]
    LanguageModelExtractor(Held([""])).extract([ROME])
    assert grammars[1] is None


class Other(ScriptedModel):
    fingerprint = "other-model"  # type: ignore[assignment]


def test_the_recipe_changes_with_everything_that_changes_triples() -> None:
    def make(**options: object) -> Recipe:
        model = options.pop("model", ScriptedModel())
        return LanguageModelExtractor(model, **options).recipe  # type: ignore[arg-type]

    ours = TripleDemonstration.load()
    recipes = [
        make(),
        make(model=Other()),
        make(model=ScriptedModel(context_tokens=300)),
        make(encoder=HashEncoder()),
        make(encoder=HashEncoder(dimension=64)),
        make(demonstrations=2),
        make(grounding=70.0),
        make(spans=True),
        make(labelled=ours[1:]),
        make(labelled=ours[::-1]),
        SentenceExtractor().recipe,
        DocumentExtractor().recipe,
    ]
    assert len({recipe.hash for recipe in recipes}) == len(recipes)
    assert make(batch=1) == make(batch=7) == make()
    assert make(demonstrations=99) == make(demonstrations=len(ours))


def test_a_negative_number_of_demonstrations_is_refused() -> None:
    with pytest.raises(ValueError, match="demonstrations must be 0 or more, not -1"):
        LanguageModelExtractor(ScriptedModel(), demonstrations=-1)


def corpus(count: int) -> list[Document]:
    return [Document(f"d{number}", f"T{number}", (f"It has w{number}.",)) for number in range(count)]


def having(prompt: str) -> str:
    return f" has; w{prompt.rpartition('<T')[2].rstrip(';')}>"


def test_a_graph_is_built_once_per_content() -> None:
    model = ScriptedModel(having)
    extractor = LanguageModelExtractor(model, demonstrations=0)
    documents = corpus(5)
    twin = Document("twin", documents[2].title, documents[2].sentences)
    done: list[str] = []
    with TripleStore(recipe=extractor.recipe) as graph:
        assert build_graph(graph, extractor, [*documents, twin], done=lambda one: done.append(one.document.id)) == 5
        assert done == [document.id for document in documents]
        assert build_graph(graph, extractor, iter(documents)) == 0
        changed = Document("d0", "T0", ("It has w0 and more.",))
        assert build_graph(graph, extractor, [changed, *documents[1:]]) == 1
        assert len(model.prompts) == 6
        assert [triple.document_id for triple in graph.triples([twin])] == ["twin"]


def test_what_failed_is_tried_again_only_on_request() -> None:
    answers = {"text": "nonsense"}
    extractor = LanguageModelExtractor(ScriptedModel(lambda _: answers["text"]), demonstrations=0)
    with TripleStore(recipe=extractor.recipe) as graph:
        build_graph(graph, extractor, [ROME])
        assert [name for name, _ in graph.failures()] == ["rome"]
        answers["text"] = " capital of; Italy>"
        assert build_graph(graph, extractor, [ROME]) == 0
        assert build_graph(graph, extractor, [ROME], retry=True) == 1
        assert [triple.text for triple in graph.triples([ROME])] == ["<Rome; capital of; Italy>"]
        assert list(graph.failures()) == []


class Choosy(ScriptedModel):
    """Raises at texts that hold a word, and at all if `broken`; finishes the last prompt of a call first."""

    def __init__(self, word: str = "unreadable", error: type[ModelError] = ContextOverflowError) -> None:
        super().__init__(copying)
        self.word = word
        self.error = error
        self.broken = False

    def generate(self, prompts: list[Prompt | str], **options: Any) -> list[list[Completion]]:  # type: ignore[override]
        done, caps = options.pop("done", None), options.pop("max_tokens")
        rows: list[list[Completion]] = [[] for _ in prompts]
        for index in reversed(range(len(prompts))):
            prompt = prompts[index]
            text = prompt if isinstance(prompt, str) else prompt.input
            if self.broken or self.word in text:
                raise self.error(f"cannot read {self.word}")
            rows[index] = super().generate(
                [prompt], max_tokens=caps if isinstance(caps, int) else caps[index], **options
            )[0]
            if done is not None:
                done(index, rows[index])
        return rows


def texts(*words: str) -> list[Document]:
    return [Document(word, "Book", (f"It names {word}.",)) for word in words]


def test_documents_are_handed_over_as_they_finish_and_returned_in_order() -> None:
    documents = texts(*(f"w{number}" for number in range(7)))
    extractor = LanguageModelExtractor(Choosy(), demonstrations=0, batch=3)
    order: list[str] = []

    def given() -> Iterator[Document]:
        for number, document in enumerate(documents):
            assert number - len(order) < 3 + 1, "more in memory than in flight"
            yield document

    extractor.extract_each(given(), lambda one: order.append(one.document.id))
    assert order == ["w2", "w1", "w0", "w5", "w4", "w3", "w6"]
    assert [one.document.id for one in extractor.extract(documents)] == [document.id for document in documents]


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("batch", [1, 4, 32])
@pytest.mark.parametrize("error", [ContextOverflowError, ModelError])
def test_a_document_at_which_the_model_raises_does_not_hold_up_the_others(
    place: int, batch: int, error: type[ModelError]
) -> None:
    words = [f"w{number}" for number in range(7)]
    words[place] = "unreadable"
    model = Choosy(error=error)
    extractor = LanguageModelExtractor(model, demonstrations=0, batch=batch)
    with TripleStore(recipe=extractor.recipe) as graph:
        assert build_graph(graph, extractor, texts(*words)) == 7
        reason = "cannot read unreadable; the document's sentences stand in"
        assert list(graph.failures()) == [("unreadable", reason)]
        assert [triple.text for triple in graph.triples(["unreadable"])] == ["[Book] It names unreadable."]
        others = [word for word in words if word != "unreadable"]
        assert [triple.tail for triple in graph.triples(others)] == others
        model.word = "nothing"
        assert build_graph(graph, extractor, retry=True) == 1
        assert graph.count_pending(failed=True) == 1
        assert [reason for _, reason in graph.failures()] == [
            "no sound triple in 1 lines; the document's sentences stand in"
        ]


def test_a_model_that_works_no_more_ends_the_build_and_nothing_is_put_down_to_a_document() -> None:
    model = Choosy(error=ModelError)
    extractor = LanguageModelExtractor(model, demonstrations=0, batch=2)

    def breaks(extraction: Extraction) -> None:
        model.broken = extraction.document.id == "w2"

    with TripleStore(recipe=extractor.recipe) as graph:
        documents = texts(*(f"w{number}" for number in range(8)))
        graph.sync(documents)
        with pytest.raises(ModelError, match="cannot read"):
            build_graph(graph, extractor, done=breaks)
        assert [document.id for document in graph.pending()] == ["w4", "w5", "w6", "w7"]
        assert list(graph.failures()) == []
        model.broken = False
        assert build_graph(graph, extractor) == 4


def test_a_model_that_knows_no_grammar_ends_a_build_that_needs_one() -> None:
    class Free(ScriptedModel):
        def generate(self, prompts: list[Prompt | str], **options: Any) -> list[list[Completion]]:  # type: ignore[override]
            if options.get("grammar"):
                raise ModelError("this server takes no grammar")
            return super().generate(prompts, **options)

    extractor = LanguageModelExtractor(Free([" names; w1>"]), spans=True)
    with TripleStore(recipe=extractor.recipe) as graph:
        with pytest.raises(ModelError, match="takes no grammar"):
            build_graph(graph, extractor, texts("w1", "w2"))
        assert len(graph) == 0


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_model() -> None:
    def refuse(_: Extraction) -> None:
        raise ModelError("full")

    extractor = LanguageModelExtractor(Choosy(), demonstrations=0)
    with TripleStore(recipe=extractor.recipe) as graph:
        with pytest.raises(ModelError, match="full"):
            build_graph(graph, extractor, texts("w1", "w2"), done=refuse)
        assert list(graph.failures()) == []


def test_the_sentences_of_a_part_that_failed_stand_in_for_it_alone() -> None:
    sentences = [f"Line {number} of this long old book names w{number}." for number in range(120)]
    sentences[40] = "Line 40 is unreadable."
    sentences[119] = "The last line of all names nobody " * 30
    document = Document("book", "Book", tuple(sentences))
    (one,) = LanguageModelExtractor(Choosy(), demonstrations=0).extract([document])
    assert re.fullmatch(
        r"part 2 of 6: cannot read unreadable; part \d of 6: no sound triple in 1 lines;.* their sentences stand in",
        one.statistics.failure,
    )
    assert [triple.sentence for triple in one.units] == list(range(120))
    stand_ins = [unit.sentence for unit in one.units if isinstance(unit, TextUnit)]
    assert stand_ins[-1] == 119
    assert stand_ins[:-1] == list(range(stand_ins[0], stand_ins[0] + len(stand_ins) - 1))
    assert 40 in stand_ins
    assert one.statistics.parsed == 120 - len(stand_ins)


def test_a_document_whose_parts_all_fail_is_represented_by_all_its_sentences() -> None:
    sentences = tuple(f"Line {number} of this long unreadable book names w{number}." for number in range(200))
    (one,) = LanguageModelExtractor(Choosy(), demonstrations=0).extract([Document("book", "Book", sentences)])
    assert [unit.body for unit in one.units] == list(sentences)
    assert one.statistics.failure.startswith("part 1 of 8: cannot read unreadable; part 2 of 8: ")
    assert one.statistics.failure.endswith("; and 5 parts more; the document's sentences stand in")


BUILD = """
import sys, time
from pathlib import Path
from pytrace.triples.graph import TripleStore
from pytrace.models.scripted import ScriptedModel
from pytrace.triples.extraction import build_graph
from pytrace.triples.kg_generator import LanguageModelExtractor
from pytrace.records import Document

directory, log, pause = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def answer(prompt):
    number = prompt.rpartition("<T")[2].rstrip(";")
    with log.open("a") as file:
        file.write(number + "\\n")
    time.sleep(pause)
    return f" has; w{number}>"

documents = [Document(f"d{n}", f"T{n}", (f"It has w{n}.",)) for n in range(300)]
extractor = LanguageModelExtractor(ScriptedModel(answer), demonstrations=0)
with TripleStore.open(directory, recipe=extractor.recipe, mode="resume") as graph:
    graph.sync(documents)
    print("extracted", build_graph(graph, extractor), flush=True)
"""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_build_killed_at_any_moment_loses_the_document_in_flight_and_repeats_no_other(tmp_path: Path) -> None:
    directory, log = tmp_path / "graph", tmp_path / "log"
    rng = random.Random(7)

    def asked() -> list[str]:
        # The last line may be half written where the process was killed.
        return re.findall(r"(\d+)\n", log.read_text(encoding="utf-8")) if log.exists() else []

    def stored() -> set[str]:
        with TripleStore.open(directory, mode="read") as graph:
            assert len(graph) == 300
            waiting = {document.id for document in graph.pending()}
            done = [document.id for document in graph.documents() if document.id not in waiting]
            assert [triple.tail for triple in graph.triples(done)] == [name.replace("d", "w") for name in done]
            return {name[1:] for name in done}

    kept: set[str] = set()
    kills = 6
    for _ in range(kills):
        before = len(asked())
        process = subprocess.Popen(
            [sys.executable, "-c", BUILD, str(directory), str(log), "0.002"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        target = before + rng.randint(1, 45)
        wait_for(lambda wanted=target: len(asked()) >= wanted, process)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.004))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = stored()
        assert kept < now or (kept == now and len(asked()) - before == 1)
        # All that was asked before is stored, but for the one document whose answer or transaction was not finished.
        assert set(asked()) - now <= {asked()[-1]}
        kept = now
    finished = subprocess.run(
        [sys.executable, "-c", BUILD, str(directory), str(log), "0"], capture_output=True, text=True, check=True
    )
    assert finished.stdout == f"extracted {300 - len(kept)}\n"
    assert stored() == {str(number) for number in range(300)}
    assert len(asked()) <= 300 + kills


def test_a_title_as_long_as_a_text_does_not_stop_the_others() -> None:
    long = Document("1", "word " * 400, ("It has one sentence.",))
    short = Document("2", "Rome", ("Rome lies in Italy.",))
    extractor = LanguageModelExtractor(ScriptedModel([" country; Italy>"], context_tokens=600))
    stood_in, extracted = extractor.extract([long, short])
    assert stood_in.statistics.failure
    assert [unit.body for unit in stood_in.units] == ["It has one sentence."]
    assert [triple.text for triple in extracted.units] == ["<Rome; country; Italy>"]


@pytest.mark.parametrize("tail", ["> " * 1_000_000 + "x", ">" + " " * 1_000_000 + "x"])
def test_a_long_closing_takes_no_quadratic_time(tail: str) -> None:
    (triple,) = parse_triples(f"<Ada; is in; Ghana{tail}", "Ada").triples
    assert triple[:2] == ("Ada", "is in")
    assert not parse_triples(f"<Ada; is in; Ghana{tail}", "Ada", complete=False).triples
