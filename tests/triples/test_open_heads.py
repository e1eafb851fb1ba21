"""Facts of texts that are not about one thing: which documents have open heads, and what is read, kept and stored of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytrace.documents import read_documents
from pytrace.errors import DataError
from pytrace.methods.trace.trace import TraceSettings
from pytrace.methods.trace.triple_method import make_extractor
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts import OpenTripleDemonstration, TripleDemonstration
from pytrace.records import Document, Origin, Triple
from pytrace.triples.extraction import PhraseExtractor, build_graph, has_open_heads
from pytrace.triples.graph import TripleStore
from pytrace.triples.kg_generator import LanguageModelExtractor
from pytrace.triples.parsing import locate, span_grammar

SENTENCES = (
    "Nordwind AG opened a factory in Poznań in 2021.",
    "It employed 300 people.",
    "The board met in Oslo on Monday.",
)
REPORT = Document("r", "annual report", SENTENCES, origin=Origin("r", "annual report", titled=False))
PASSAGE = Document("b#2", "Nordwind > Sites", SENTENCES, origin=Origin("b", "Nordwind", ("Sites",)))
TITLED = Document("n", "Nordwind", SENTENCES, origin=Origin("n", "Nordwind"))
ROW = Document("w", "Nordwind", SENTENCES)


@pytest.mark.parametrize(("document", "expected"), [(REPORT, True), (PASSAGE, True), (TITLED, False), (ROW, False)])
def test_heads_are_open_without_a_title_and_in_passages_of_longer_documents(document: Document, expected: bool) -> None:
    assert has_open_heads(document, "auto") is expected
    assert has_open_heads(document, "open")
    assert not has_open_heads(document, "title")


def test_what_is_read_of_files_says_whether_it_has_a_title(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Revenue rose. It was good.\n")
    (tmp_path / "plan.md").write_text("# The plan\n\nRevenue rises.\n")
    (tmp_path / "rows.jsonl").write_text('{"title": "A", "text": "B is C."}\n')
    long = "\n\n".join(["Opening words of the text.", "Risks", "The euro fell. " * 20])
    (tmp_path / "report.txt").write_text(long)
    read = list(read_documents(tmp_path, words=30))
    titled = {one.title: one.origin is None or one.origin.titled for one in read}
    assert titled == {"note": False, "The plan": True, "A": True, "report": False, "Risks": False}
    assert [has_open_heads(one, "auto") for one in read if one.title in ("The plan", "A")] == [False, False]


# By rule


def facts(document: Document, **options: object) -> list[tuple[str, str, str, int]]:
    (extraction,) = PhraseExtractor(**options).extract([document])  # type: ignore[arg-type]
    return [(one.head, one.relation, one.tail, one.sentence) for one in extraction.units if isinstance(one, Triple)]


def test_by_rule_the_head_is_the_subject_and_a_pronoun_stands_for_the_one_before() -> None:
    assert facts(REPORT) == [
        ("Nordwind AG", "opened a factory in", "Poznań", 0),
        ("Nordwind AG", "in", "2021", 0),
        ("Nordwind AG", "It employed", "300 people", 1),
        ("board", "met in", "Oslo", 2),
        ("board", "on", "Monday", 2),
    ]
    assert {head for head, *_ in facts(ROW)} == {"Nordwind"}
    assert {head for head, *_ in facts(REPORT, heads="title")} == {"annual report"}
    assert facts(ROW, heads="open") == facts(REPORT)


def test_where_no_sentence_has_had_a_subject_the_headings_stand_in() -> None:
    document = Document(
        "d#1", "Nordwind > Sites", ("They opened a factory in Poznań.",), origin=Origin("d", "Nordwind")
    )
    assert facts(document) == [("Nordwind > Sites", "They opened a factory in", "Poznań", 0)]


def test_what_stands_before_the_subject_is_told_of_it_and_the_subject_not_of_itself() -> None:
    document = Document("d", "x", ("In May 2020, Tom Weber sells 2 boats of Tom Weber to Oslo.",))
    assert [fact[:3] for fact in facts(document, heads="open")] == [
        ("Tom Weber", "In", "May 2020"),
        ("Tom Weber", "sells", "2 boats of Tom Weber"),
        ("Tom Weber", "to", "Oslo"),
    ]


# By a language model


WRITTEN = (
    "Nordwind AG; opened a factory in; Poznań>\n<Nordwind AG; employs; 300 people>\n<It; employs; 300 people>\n"
    "<Acme Corporation; employs; 300 people>\n<board; met in; Madrid>\n<board; met; it>\n<board; is; board>\n"
    "<annual report; year; 2021>\n<no head>\n<board; met on; Monday>"
)


def test_open_heads_and_tails_must_stand_in_the_text_and_pronouns_are_neither() -> None:
    (one,) = LanguageModelExtractor(ScriptedModel([WRITTEN]), demonstrations=0).extract([REPORT])
    assert [(unit.text, unit.sentence) for unit in one.units] == [
        ("<Nordwind AG; opened a factory in; Poznań>", 0),
        ("<Nordwind AG; employs; 300 people>", 1),
        ("<board; met on; Monday>", 2),
    ]
    counts = one.statistics
    assert (counts.lines, counts.parsed, counts.dropped, counts.failure) == (10, 3, 7, "")


def test_a_head_may_stand_in_the_headings() -> None:
    model = ScriptedModel(["Sites; number; 300>\n<Nordwind; met in; Oslo>\n<Sales; met in; Oslo>"])
    (one,) = LanguageModelExtractor(model, demonstrations=0).extract([PASSAGE])
    assert [unit.text for unit in one.units] == ["<Sites; number; 300>", "<Nordwind; met in; Oslo>"]


def test_between_sentences_that_say_the_tail_the_head_decides() -> None:
    document = Document("x", "x", ("Venn sang in Quill.", "Ada sang in Quill."))
    triples = [Triple("Ada", "sang in", "Quill"), Triple("Venn", "sang in", "Quill"), Triple("Xyw", "in", "Quill")]
    located = locate(document, triples, heading="")
    assert [triple.sentence for triple in located[:2]] == [1, 0]
    assert [triple.support for triple in located[:2]] == [100.0, 100.0]
    assert located[2].support < 80


def test_the_prompt_has_the_headings_and_no_name_of_a_file_and_others_are_as_ever() -> None:
    model = ScriptedModel([""])
    LanguageModelExtractor(model, demonstrations=1).extract([ROW, REPORT, PASSAGE, TITLED])
    ends = [prompt.rpartition("\n\n")[2] for prompt in model.prompts]
    text = " ".join(SENTENCES)
    assert ends == [
        f"Title: Nordwind\nText: {text}\nTriples:\n<Nordwind;",
        f"Text: {text}\nTriples:\n<",
        f"Heading: Nordwind > Sites\nText: {text}\nTriples:\n<",
        f"Title: Nordwind\nText: {text}\nTriples:\n<Nordwind;",
    ]
    ours, opened = TripleDemonstration.load()[0], OpenTripleDemonstration.load()[0]
    for prompt, shown in zip(model.prompts, (ours, opened, opened, ours), strict=True):
        assert shown.text in prompt
        assert prompt.count("\n<") == len(shown.triples) + 1


def test_the_nearest_labelled_text_stands_last() -> None:
    labelled = [
        OpenTripleDemonstration(text, (("violin", "has", "four strings"),))
        for text in ("An oak is a tree.", "The violin has four strings.", "An otter swims in the river.")
    ]
    model = ScriptedModel([""])
    document = Document("c", "x", ("The viola has four strings, as the violin has.",))
    extractor = LanguageModelExtractor(
        model, encoder=HashEncoder(), demonstrations=2, heads="open", open_labelled=labelled
    )
    extractor.extract([document])
    assert re.findall("^Text: (.*)$", model.prompts[0], re.MULTILINE)[-2] == "The violin has four strings."


def test_open_heads_are_spans_of_the_text_or_headings_when_held_to_spans() -> None:
    grammar = span_grammar('A "b" > C; d > E', ("Ada; Bo.",), open_heads=True)
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    assert rules["root"] == r'head "; " relation "; " tail ">" ("\n<" head "; " relation "; " tail ">")* "\n\n"?'
    assert rules["head"] == r'tail | "A \"b\"" | "E"'
    assert [rules[name] for name in rules["tail"].split(" | ")] == ['"Ada"', '"Bo"']


def test_each_document_is_held_to_the_grammar_of_its_heads() -> None:
    grammars: list[object] = []

    class Held(ScriptedModel):
        def generate(self, prompts: list[Prompt | str], **options: object) -> list[list[Completion]]:  # type: ignore[override]
            grammars.append(options["grammar"])
            return super().generate(prompts, **options)  # type: ignore[arg-type]

    LanguageModelExtractor(Held([""]), spans=True).extract([ROW, REPORT])
    assert grammars == [[span_grammar("Nordwind", SENTENCES), span_grammar("", SENTENCES, open_heads=True)]]


def test_a_heading_that_is_a_text_by_itself_is_left_out() -> None:
    model = ScriptedModel(["Nordwind AG; opened a factory in; Poznań>"])
    document = Document("h", "word " * 600, SENTENCES, origin=Origin("x", "x"))
    (one,) = LanguageModelExtractor(model, demonstrations=0).extract([document])
    assert "Heading" not in model.prompts[0]
    assert one.statistics.failure == ""


# Recipes, stores


def test_a_recipe_names_its_heads_and_that_of_titles_is_what_it_was() -> None:
    for make in (lambda **options: LanguageModelExtractor(ScriptedModel(), **options), PhraseExtractor):
        recipes = {heads: make(heads=heads).recipe for heads in ("auto", "title", "open")}  # type: ignore[operator]
        assert len({recipe.hash for recipe in recipes.values()}) == 3
        assert "heads" not in recipes["title"].options
        assert recipes["auto"].options["heads"] == "auto"
    changed = OpenTripleDemonstration.load()[1:]
    one, other = (LanguageModelExtractor(ScriptedModel(), open_labelled=rows).recipe for rows in (None, changed))
    assert one.hash != other.hash


def test_a_graph_and_its_export_keep_what_has_no_title(tmp_path: Path) -> None:
    extractor = PhraseExtractor()
    file = tmp_path / "graph.jsonl"
    with TripleStore(recipe=extractor.recipe) as graph:
        build_graph(graph, extractor, [REPORT, TITLED])
        assert list(graph.documents()) == [REPORT, TITLED]
        graph.export(file)
    assert [json.loads(line).get("origin", {}).get("titled") for line in file.read_text().splitlines()[1:]] == [
        False,
        None,
    ]
    with TripleStore(recipe=extractor.recipe) as copy:
        copy.import_(file)
        assert list(copy.documents()) == [REPORT, TITLED]
        assert [triple.head for triple in copy.triples(["r"])][:1] == ["Nordwind AG"]


# Labelled texts of one's own


def settings(path: Path, **changes: object) -> TraceSettings:
    return TraceSettings(triple_demonstrations_file=str(path), adaptive_triple_demonstrations=False, **changes)  # type: ignore[arg-type]


def rows(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ABOUT = {"title": "Tern", "text": "Tern is a ship.", "triples": [["Tern", "type", "ship"]]}
OPEN = {"text": "Bo sails the Tern.", "triples": [["Bo", "sails", "Tern"]]}


def shown(path: Path, **changes: object) -> list[str]:
    model = ScriptedModel([""])
    make_extractor(model, HashEncoder(), settings(path, **changes)).extract([ROW, REPORT])
    return [prompt.split("\n\n")[1].partition("Text: ")[2].partition("\n")[0] for prompt in model.prompts]


def test_own_labelled_texts_are_shown_to_documents_of_their_kind(tmp_path: Path) -> None:
    ours = [TripleDemonstration.load()[0].text, OpenTripleDemonstration.load()[0].text]
    assert shown(rows(tmp_path / "both.jsonl", ABOUT, OPEN)) == [ABOUT["text"], OPEN["text"]]
    assert shown(rows(tmp_path / "about.jsonl", ABOUT)) == [ABOUT["text"], ours[1]]
    assert shown(rows(tmp_path / "open.jsonl", OPEN)) == [ours[0], OPEN["text"]]
    assert shown(tmp_path / "open.jsonl", heads="open") == [OPEN["text"]] * 2


@pytest.mark.parametrize(("row", "heads"), [(OPEN, "title"), (ABOUT, "open")])
def test_own_labelled_texts_of_the_other_kind_alone_are_refused(
    tmp_path: Path, row: dict[str, object], heads: str
) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}/one.jsonl: has .*heads="):
        shown(rows(tmp_path / "one.jsonl", row), heads=heads)
