"""Questions become queries: what a model is shown and held to, and what is made of what it writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import DataError, InputError, ModelError, ModelFileError
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries import SparqlQuery, TripletQuery, parse_query
from pytrace.kg.queries.few_shot import FewShotGenerator
from pytrace.kg.queries.grammar import query_grammar
from pytrace.kg.queries.relations import NearestRelations
from pytrace.kg.queries.sampling import QueryGenerator, read_query, repaired
from pytrace.kg.queries.trained import METADATA_KEY, TrainedGenerator, question_prompt, wrong_label
from pytrace.models import registry
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts.reasoning import QueryDemonstration
from tests.gguf_files import write_random_gguf

QUESTION = "In which country is Ada Foah?"
RELATIONS = [Relation("urn:country", "country"), Relation("urn:river", "river")]


class Recording(ScriptedModel):
    """A scripted model that remembers how it was asked, and gives each text a log-probability of its own."""

    def __init__(self, answers: Sequence[str] | Callable[[str], str], *, context_tokens: int = 100_000) -> None:
        super().__init__(answers, context_tokens=context_tokens)
        self.calls: list[dict[str, object]] = []
        self.asked: list[Prompt | str] = []
        self.likely: dict[str, float] = {}

    def generate(  # type: ignore[override]
        self,
        prompts: Sequence[Prompt | str],
        *,
        max_tokens: Sequence[int],
        stop: Sequence[str] = (),
        **settings: object,
    ) -> list[list[Completion]]:
        self.calls.append({"prompts": len(prompts), "max_tokens": max_tokens, "stop": stop, **settings})
        self.asked += prompts
        count = settings.get("n", 1)
        assert isinstance(count, int)
        rows = super().generate(prompts, max_tokens=max_tokens, stop=stop, n=count)
        return [
            [Completion(one.text, one.tokens, one.finish, self.likely.get(one.text.strip(), -1.0)) for one in row]
            for row in rows
        ]


# What a model writes


@pytest.mark.parametrize(
    ("written", "query"),
    [
        ("<Ada Foah; country; ?>", "<Ada Foah; country; ?>"),
        ("  <Ada Foah;country;?> \n", "<Ada Foah; country; ?>"),
        ("Query: <Ada Foah; country; ?>", "<Ada Foah; country; ?>"),
        ("```\n<Ada Foah; country; ?>\n```", "<Ada Foah; country; ?>"),
        ('The query is "<?; capital; Accra>", I think.', "<?; capital; Accra>"),
        ("<Ada Foah; a  > b; ?>", "<Ada Foah; a  > b; ?>"),
        ("<Ada Foah; country; ?>, <?; country; Ghana>", "<Ada Foah; country; ?>"),
        ("<Ada Foah; country; ?", "<Ada Foah; country; ?>"),
        ("<Ada Foah; `country`; ?>", "<Ada Foah; `country`; ?>"),
        ("select ?x where { ?x relation:/a/ ?y", "select ?x where { ?x relation:/a/ ?y }"),
        ("I ask: select ?x where { ?x relation:/a/ ?y }", "select ?x where { ?x relation:/a/ ?y }"),
        ("Sure!\nSELECT ?x\nWHERE {\n ?x relation:/a/ ?y }\nIt is so.", "SELECT ?x WHERE { ?x relation:/a/ ?y }"),
        ("ask { entity:/a } {b/ relation:/r/ ?x } }", "ask { entity:/a } {b/ relation:/r/ ?x }"),
        ("ask { { ?x relation:/r/ ?y } union { ?y relation:/r/ ?x", "ask { { ?x relation:/r/ ?y } union { ?y relation:/r/ ?x } }"),
    ],
)  # fmt: skip
def test_what_a_model_wraps_around_a_query_is_taken_off_and_brackets_are_closed(written: str, query: str) -> None:
    found = read_query(Completion(written, 9, "end", -2.0))
    assert found.query == parse_query(query)
    assert (found.written, found.log_probability, found.fault) == (written.strip(), -2.0, "")


@pytest.mark.parametrize(
    "written", ["", " ", "Ghana", "<>", "<a; b>", "<a; b; c>", "<?; ?; a>", "select", "ask", "\ud800", "{" * 5000]
)
def test_what_is_no_query_is_kept_with_its_fault(written: str) -> None:
    found = read_query(Completion(written, 9, "end", -2.0))
    assert found.query is None
    assert found.written == written.strip()
    assert len(found.fault) > 10
    assert "\n" not in found.fault


@given(st.text(alphabet=st.characters(), max_size=60) | st.text(alphabet="<>;?{} askelct:/\\`'\"", max_size=60))
def test_nothing_that_a_model_may_write_raises(written: str) -> None:
    found = read_query(Completion(written, 9, "end", -2.0))
    assert (found.query is None) == bool(found.fault)
    assert repaired(repaired(written)) is not None


def test_a_query_that_was_cut_off_is_a_fault_even_where_its_beginning_can_be_read() -> None:
    text = "select distinct ?x where { ?x relation:/river/ ?y"
    assert read_query(Completion(text, 9, "end", -2.0)).query is not None
    cut = read_query(Completion(text, 9, "length", -2.0))
    assert (cut.query, cut.fault) == (None, "the query is cut off after 9 tokens; allow more")
    assert "repeats itself" in read_query(Completion(text, 9, "repetition", -2.0)).fault


def test_a_probability_that_is_no_number_never_comes_out() -> None:
    assert read_query(Completion("<a; b; ?>", 9, "end", math.nan)).log_probability == -math.inf


# Candidates


def generators(model: ScriptedModel) -> list[QueryGenerator]:
    return [FewShotGenerator(model, RELATIONS), TrainedGenerator(model)]


def test_candidates_are_the_greedy_one_and_samples_without_repeats_by_probability() -> None:
    texts = [
        "<a; country; ?>",
        "<b; country; ?>",
        " <a;country;?>",
        "nothing",
        "<c; river; ?>",
        "<b; country; ?>",
        "<?; river; c>",
    ]
    for place in (0, 1):
        model = Recording(texts)
        model.likely = dict(zip(map(str.strip, texts), (-3.0, -2.0, -2.5, -1.0, -9.0, -2.0, -7.0), strict=True))
        (found,) = generators(model)[place].generate([QUESTION], candidates=4)
        assert [(one.written, one.log_probability) for one in found] == [
            ("<b; country; ?>", -2.0),
            ("<a;country;?>", -2.5),
            ("<?; river; c>", -7.0),
            ("<c; river; ?>", -9.0),
        ]
        assert [call.get("temperature", 0.0) for call in model.calls] == [0.0, 0.7]
        assert model.calls[1]["n"] == 6


def test_a_fault_makes_room_for_what_can_be_asked_but_is_kept_where_there_is_room() -> None:
    model = Recording(["nothing", "<a; river; ?>", "nothing"])
    model.likely = {"nothing": -1.0, "<a; river; ?>": -5.0}
    (found,) = FewShotGenerator(model, RELATIONS).generate([QUESTION], candidates=2)
    assert [one.query is None for one in found] == [True, False]
    model = Recording(["nothing", "<a; river; ?>", "<b; river; ?>"])
    model.likely = {"nothing": -1.0, "<a; river; ?>": -5.0, "<b; river; ?>": -6.0}
    (found,) = FewShotGenerator(model, RELATIONS).generate([QUESTION], candidates=2)
    assert [one.written for one in found] == ["<a; river; ?>", "<b; river; ?>"]


def test_one_candidate_costs_one_call_for_all_questions_and_no_question_costs_none() -> None:
    for place in (0, 1):
        model = Recording(["<a; country; ?>", "no"])
        generator = generators(model)[place]
        assert generator.generate([]) == []
        assert model.calls == []
        found = generator.generate([QUESTION, "Who?"])
        assert [len(row) for row in found] == [1, 1]
        assert found[1][0].fault
        assert [call["prompts"] for call in model.calls] == [2]
        assert generator.model is model


def test_at_temperature_zero_there_are_no_samples() -> None:
    model = Recording(["<a; country; ?>"])
    assert len(FewShotGenerator(model, RELATIONS, temperature=0.0).generate([QUESTION], candidates=5)[0]) == 1
    assert len(model.calls) == 1


@pytest.mark.parametrize("candidates", [0, -1])
def test_no_candidates_are_refused(candidates: int) -> None:
    for generator in generators(ScriptedModel(["x"])):
        with pytest.raises(InputError, match=f"{candidates} candidates were asked for; ask for at least 1"):
            generator.generate([QUESTION], candidates=candidates)


@pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(InputError, match="the temperature is"):
        FewShotGenerator(ScriptedModel(["x"]), RELATIONS, temperature=temperature)
    with pytest.raises(InputError, match="the temperature is"):
        TrainedGenerator(ScriptedModel(["x"]), temperature=temperature)


# The few-shot prompt


@pytest.mark.parametrize("form", ["triplet", "sparql"])
def test_the_model_is_told_the_relations_and_shown_queries_of_the_form(form: Literal["triplet", "sparql"]) -> None:
    model = Recording(["<a; country; ?>"])
    FewShotGenerator(model, RELATIONS, form=form, demonstrations=2).generate(["In which country\nis Ada Foah?"])
    (prompt,) = model.asked
    assert isinstance(prompt, Prompt)
    assert prompt.input == f"Relations: country; river\nQuestion: {QUESTION}\nQuery:"
    assert [query for _, query in prompt.demonstrations] == [
        one.query for one in QueryDemonstration.load_with("form", form)[-2:]
    ]
    assert model.calls[0]["grammar"] == [query_grammar(QUESTION, ["country", "river"], form=form)]
    assert model.calls[0]["stop"] == ("\n",)


def test_a_prompt_that_is_sure_to_fit_is_not_counted_since_a_server_would_have_to_be_asked() -> None:
    counted: list[str] = []

    class Counting(ScriptedModel):
        def count_tokens(self, text: str) -> int:
            counted.append(text)
            return super().count_tokens(text)

    FewShotGenerator(Counting(["<a; country; ?>"]), RELATIONS).generate([QUESTION])
    # The double itself counts the prompt with its demonstrations.
    assert [text for text in counted if text.count("Question:") == 1] == []


def test_any_name_may_be_allowed_and_a_server_without_grammars_may_write_freely() -> None:
    model = Recording(["<a; country; ?>"])
    FewShotGenerator(model, RELATIONS, grammar="relations").generate([QUESTION])
    FewShotGenerator(model, RELATIONS, grammar="none").generate([QUESTION])
    assert model.calls[0]["grammar"] == [query_grammar(QUESTION, ["country", "river"], form="triplet", spans=False)]
    assert model.calls[1]["grammar"] is None
    assert "\n" not in model.calls[1]["stop"]  # type: ignore[operator]


def test_of_many_relations_those_nearest_to_each_question_are_told_and_allowed() -> None:
    relations = [Relation(f"urn:{name}", name) for name in ("area", "mayor of town", "river mouth", "founded")]
    for encoder in (None, HashEncoder()):
        model = Recording(["<a; area; ?>"])
        generator = FewShotGenerator(model, relations, encoder=encoder, shown_relations=1)
        generator.generate(["who is mayor of town ada?", "where is the river mouth?"])
        assert ["mayor of town" in prompt.input for prompt in model.asked] == [True, False]  # type: ignore[union-attr]
        assert ["river mouth" in prompt.input for prompt in model.asked] == [False, True]  # type: ignore[union-attr]
        grammars = model.calls[0]["grammar"]
        assert ['relation ::= "mayor of town"\n' in grammar for grammar in grammars] == [True, False]  # type: ignore[attr-defined]


def test_few_relations_are_told_in_the_store_s_order_and_without_repeats() -> None:
    relations = [*RELATIONS, Relation("urn:x:river", " river"), Relation("urn:x", "a;b"), Relation("urn:y", "")]
    assert NearestRelations(relations, form="triplet", most=5).find(["river?"]) == [("country", "river")]


def test_relations_are_left_out_of_the_prompt_where_they_do_not_fit_but_stay_allowed() -> None:
    relations = [Relation(f"urn:{number}", f"relation number {number}") for number in range(40)]
    whole, tight = Recording(["<a; b; ?>"]), Recording(["<a; b; ?>"], context_tokens=64 + 64 + 90)
    for model in (whole, tight):
        FewShotGenerator(model, relations).generate([QUESTION])
    told = [len(re.findall("relation number", model.asked[0].input)) for model in (whole, tight)]  # type: ignore[union-attr]
    assert told == [40, 10]
    assert tight.calls[0]["grammar"] == whole.calls[0]["grammar"]


def test_a_question_that_does_not_fit_is_a_fault_and_the_others_are_written() -> None:
    for place in (0, 1):
        model = Recording(["<a; country; ?>"], context_tokens=300)
        found = generators(model)[place].generate(["word " * 400, QUESTION, "word " * 400], candidates=2)
        assert [row[0].query is None for row in found] == [True, False, True]
        assert "shorten it" in found[0][0].fault
        assert re.search(r"2,000 characters|40\d tokens", found[0][0].fault)


def test_a_store_without_usable_relations_and_bad_demonstrations_are_refused() -> None:
    model = ScriptedModel(["x"])
    with pytest.raises(InputError, match="none of the store's 0 relations"):
        FewShotGenerator(model, [])
    with pytest.raises(InputError, match="at most 0 relations"):
        FewShotGenerator(model, RELATIONS, shown_relations=0)
    with pytest.raises(InputError, match="is no triplet"):
        FewShotGenerator(model, RELATIONS, labelled=[QueryDemonstration("triplet", "Who?", ("r",), "<a; b>")])
    with pytest.raises(InputError, match="demonstrations are -1 and max_tokens None"):
        FewShotGenerator(model, RELATIONS, demonstrations=-1)
    with pytest.raises(InputError, match="none of the store's 0 relations"):
        TrainedGenerator(model, grammar="words")


def test_names_of_generators_tell_them_apart() -> None:
    model = ScriptedModel(["x"])
    kinds = [
        FewShotGenerator(model, RELATIONS, form=form, grammar=how)
        for form in ("triplet", "sparql")
        for how in ("words", "relations", "none")
    ]  # type: ignore[arg-type]
    assert len({one.name for one in kinds}) == 6


# The trained generator


def test_the_trained_generator_is_given_the_text_that_it_was_trained_on() -> None:
    model = Recording([" <Ada Foah; country; ?>\nIncorrect query 1: <?; country; Ada Foah>"])
    ((found,),) = TrainedGenerator(model, name="own").generate(["In which\ncountry is Ada Foah?"])
    assert model.asked == [f"Question: {QUESTION}\nCorrect query:"] == [question_prompt(QUESTION)]
    assert found.query == TripletQuery("Ada Foah", "country", "?")
    assert model.calls[0]["grammar"] is None
    assert model.calls[0]["stop"] == ("\n",)
    assert TrainedGenerator(model, name="own").name == "own"
    assert TrainedGenerator(model).name == model.name


def test_a_constrained_trained_generator_is_held_to_the_store_s_relations() -> None:
    model = Recording(["<a; country; ?>"])
    TrainedGenerator(model, relations=RELATIONS, grammar="words", form="triplet").generate([QUESTION])
    assert model.calls[0]["grammar"] == [query_grammar(QUESTION, ["country", "river"], form="triplet")]


def test_wrong_queries_are_counted_from_one() -> None:
    assert [wrong_label(number) for number in (1, 4)] == ["Incorrect query 1:", "Incorrect query 4:"]
    with pytest.raises(InputError, match="the wrong query's number is 0; count from 1"):
        wrong_label(0)


def generator_file(folder: Path, recipe: object, *, context: int = 512) -> Path:
    text = recipe if isinstance(recipe, str) else json.dumps(recipe)
    return write_random_gguf(folder / "own.gguf", context=context, texts={METADATA_KEY: text})


def test_a_generator_is_loaded_from_its_file_which_tells_its_form(tmp_path: Path) -> None:
    path = generator_file(tmp_path, {"form": "sparql", "template": 1, "data": "x", "seed": 3})
    generator = TrainedGenerator.load(path, relations=RELATIONS, grammar="words", temperature=2.0, threads=1)
    assert (generator.form, generator.name) == ("sparql", "own")
    (found,) = generator.generate([QUESTION], candidates=3)
    assert len(found) == 3
    # Random weights write nonsense, but the grammar lets only queries through.
    for one in found:
        assert isinstance(one.query, SparqlQuery), one.fault
        assert -math.inf < one.log_probability < 0
    assert [one.log_probability for one in found] == sorted((one.log_probability for one in found), reverse=True)
    assert generator.generate([QUESTION], candidates=3) == [found]


def test_a_loaded_generator_is_held_to_what_did_best_after_its_training(tmp_path: Path) -> None:
    path = generator_file(tmp_path, {"form": "sparql", "template": 1, "grammar": "words"})
    for options, held in (
        ({"relations": RELATIONS}, True),
        ({}, False),
        ({"relations": RELATIONS, "grammar": "none"}, False),
    ):
        generator = TrainedGenerator.load(path, threads=1, **options)  # type: ignore[arg-type]
        [[found]] = generator.generate([QUESTION])
        assert (found.query is not None) == held
        generator.close()


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({"form": "sparql", "template": 2}, "trained on version 2 of the prompt, and this is version 1"),
        ({"form": "prose", "template": 1}, "cannot be read .*Invalid enum value 'prose'"),
        ({"template": 1}, "missing required field `form`"),
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
    ],
)
def test_a_file_that_tells_nothing_usable_of_its_training_is_refused(
    tmp_path: Path, recipe: object, reason: str
) -> None:
    path = generator_file(tmp_path, recipe)
    with pytest.raises(ModelFileError, match=reason) as caught:
        TrainedGenerator.load(path, threads=1)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_model_that_is_no_query_generator_and_a_file_that_is_no_model_are_refused(
    tmp_path: Path, random_gguf: Path
) -> None:
    with pytest.raises(ModelFileError, match="this model is no query generator; give a GGUF that"):
        TrainedGenerator.load(random_gguf, threads=1)
    for path in (tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(ModelFileError, match="cannot be read"):
            TrainedGenerator.load(path)
    whole = generator_file(tmp_path, {"form": "sparql", "template": 1}).read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="is no model that can be loaded"):
        TrainedGenerator.load(cut)


def test_a_question_that_leaves_a_small_model_no_room_is_a_fault(tmp_path: Path) -> None:
    path = generator_file(tmp_path, {"form": "sparql", "template": 1}, context=128)
    generator = TrainedGenerator.load(path, threads=1)
    long, short = generator.generate(["a b c " * 100, "Is it?"])
    assert "leaves no room for a query in the 128 of own; shorten it" in long[0].fault
    assert "leaves no room" not in short[0].fault


# What a model's file says


def test_a_model_tells_what_its_file_says_under_a_key(tmp_path: Path) -> None:
    said = {"a.text": "é" * 5_000, "a.b": "x"}
    with LlamaCppModel(write_random_gguf(tmp_path / "a.gguf", texts=said), threads=1) as model:
        assert model.metadata("general.name") == "random"
        assert {key: model.metadata(key) for key in said} == said
        for key in ("a", "", "a.text\0", "\ud800"):
            assert model.metadata(key) is None
    with pytest.raises(ModelError, match="closed"):
        model.metadata("general.name")


# Demonstrations


def test_our_demonstrations_are_queries_that_name_what_their_questions_name() -> None:
    for form in ("triplet", "sparql"):
        rows = QueryDemonstration.load_with("form", form)
        assert len({row.question for row in rows}) == len(rows) >= 5
        for row in rows:
            query = parse_query(row.query)
            assert isinstance(query, TripletQuery if form == "triplet" else SparqlQuery)
            # What the grammar would refuse teaches a model to want it.
            pattern = re.compile(as_pattern(row))
            assert pattern.fullmatch(row.query)
    triplets = [parse_query(row.query) for row in QueryDemonstration.load_with("form", "triplet")]
    asked = {(one.head, one.relation, one.tail).index("?") for one in triplets if isinstance(one, TripletQuery)}
    assert asked == {0, 1, 2}


def as_pattern(row: QueryDemonstration) -> str:
    from tests.gbnf import as_regex

    return as_regex(query_grammar(row.question, row.relations, form=row.form))


def test_a_file_needs_a_demonstration_of_the_form_and_the_form_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = {"form": "triplet", "question": "Where does Ada live?", "relations": ["home"], "query": "<Ada; home; ?>"}
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(DataError, match='has no demonstration of form "sparql" among its 1'):
        QueryDemonstration.load_with("form", "sparql", path=path)
    with pytest.raises(InputError, match='must be "triplet" or "sparql", not \'prose\''):
        QueryDemonstration.load_with("form", "prose")


# With a real model


@pytest.mark.models
@pytest.mark.parametrize("form", ["triplet", "sparql"])
def test_the_tiny_model_writes_queries_with_the_store_s_relations_and_the_question_s_names(
    form: Literal["triplet", "sparql"], tiny_models: dict[registry.Role, Path]
) -> None:
    questions = [QUESTION, "Which river flows through Tartu?"]
    with LlamaCppModel(tiny_models["language-model"], style="plain", context=2048, threads=1) as model:
        found = FewShotGenerator(model, RELATIONS, form=form).generate(questions)
    for question, (one,) in zip(questions, found, strict=True):
        assert one.query is not None, one.fault
        assert re.fullmatch(as_pattern(QueryDemonstration(form, question, ("country", "river"), "")), one.written)
