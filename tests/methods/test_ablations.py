"""Each ablation of TRACE's paper is a setting, and does to what the models are asked what the paper says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace import cli
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.errors import InputError
from pytrace.methods.abilities import CAPABLE, UNABLE
from pytrace.methods.catalog import METHODS, default_settings, make_method, method_settings, parse_method
from pytrace.methods.trace.ranker import READ_ANEW, Ranker, TripleIndex
from pytrace.methods.trace.selector import ChunkedSelector, Demonstrations, LetterSelector, Step
from pytrace.models.language_model import OPTION_LABELS, OptionScores, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts import ChainDemonstration, TripleDemonstration
from pytrace.records import Answer, Candidate, Document, Triple
from pytrace.retrieval import rank_each
from pytrace.triples.graph import TripleStore
from tests.methods.test_trace import DOCUMENTS, FERRY, FOUNDER, OBSERVATORY, QUESTION, script

PAGE = Path(__file__).parents[2] / "docs" / "ablations.md"


class Asked(ScriptedModel):
    """Remembers the prompts of the selector's steps, with the labels that were offered."""

    def __init__(self) -> None:
        super().__init__(script)
        self.steps: list[tuple[Prompt, list[str]]] = []

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        for prompt, labels in zip(prompts, options, strict=True):
            assert isinstance(prompt, Prompt)
            self.steps.append((prompt, list(labels)))
        return super().score_options(prompts, options)


class Counting(HashEncoder):
    """Remembers what it encodes, by kind."""

    def __init__(self) -> None:
        super().__init__(dimension=4096)
        self.texts: dict[str, list[str]] = {"query": [], "passage": []}

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> NDArray[np.float32]:
        self.texts[kind] += texts
        return super().encode(texts, kind=kind)


def ask(method: str, documents: Sequence[Document] = DOCUMENTS) -> tuple[Answer, Asked, Counting]:
    """Ask one question as `pytrace eval METHOD` does, with the paper's defaults."""
    model, encoder = Asked(), Counting()
    (answer,) = make_method(method, model, lambda: encoder, CAPABLE).answer([QUESTION], [documents])
    return answer, model, encoder


def options(prompt: Prompt) -> list[str]:
    return re.findall(r"^[A-Za-z]\. (.*)$", prompt.input, re.MULTILINE)


def lengths(answer: Answer) -> list[int]:
    return [len(chain.units) for chain in answer.evidence.chains]


# The generator of triples


def test_the_paper_s_own_method_offers_triples_and_ends_chains_itself() -> None:
    answer, model, _ = ask("trace")
    offered = options(model.steps[0][0])
    assert offered[0] == "no need for additional knowledge triples"
    assert len(offered) == 7
    assert all(re.fullmatch("<[^;]+; [^;]+; [^;]+>", one) for one in offered[1:])
    assert any(chain.finished for chain in answer.evidence.chains)


@pytest.mark.parametrize("method", ["trace", "trace-doc"])
def test_sentences_or_documents_take_the_place_of_triples(method: str) -> None:
    for unit, expected in (
        ("sentence", {f"[{one.title}] {sentence}" for one in DOCUMENTS for sentence in one.sentences}),
        ("document", {f"[{one.title}] {one.text}" for one in DOCUMENTS}),
    ):
        answer, model, _ = ask(f"{method}:unit={unit}")
        assert set(options(model.steps[0][0])[1:]) == expected
        assert set(model.steps[0][1]) == set(OPTION_LABELS[: len(expected) + 1])
        # Nothing is extracted: the selector's first prompt is the first of all.
        assert model.prompts[0].endswith("Next:")
        assert answer.usage["triples"].calls == 0


def test_a_unit_other_than_the_graph_s_is_refused(tmp_path: Path) -> None:
    maker = make_method("trace", Asked(), Counting, CAPABLE)
    with TripleStore.open(tmp_path / "triples", recipe=maker.extractor.recipe) as graph:  # type: ignore[attr-defined]
        for method in ("trace:unit=sentence", "trace-doc:unit=document", "top-triples:unit=sentence"):
            with pytest.raises(InputError, match=f"{method} was told unit=.*the units are the graph's"):
                make_method(method, Asked(), Counting, CAPABLE, graph=graph)
        with pytest.raises(InputError, match="was told unit=document"):
            make_method("trace", Asked(), Counting, CAPABLE, ["unit=document"], graph=graph)
        # What nobody said may differ: the tiny profile's unit is the sentence, and the graph's own are taken.
        make_method("trace", Asked(), Counting, UNABLE, graph=graph)
        make_method("trace:unit=triple", Asked(), Counting, UNABLE, graph=graph)


# The ranker


def town(count: int) -> Document:
    return Document("town", "Town", tuple(f"House {number} was built by Ada." for number in range(count)))


def test_without_the_ranker_every_triple_is_a_candidate_in_the_documents_order() -> None:
    answer, model, encoder = ask("trace:ranker=none,candidates=2")
    triples = [
        "<Pellisk Ferry; leaves at; noon>",
        "<Pellisk Ferry; carries; mail>",
        "<Orrin Head; founded by; Isaura Venn>",
        "<Orrin Head; built in; 1871>",
        "<Isaura Venn; born in; Quillhaven>",
        "<Isaura Venn; kept; bees>",
    ]
    assert options(model.steps[0][0])[1:] == triples
    for prompt, _ in model.steps:
        chosen = prompt.input.splitlines()[0]
        assert options(prompt)[1:] == [one for one in triples if one not in chosen]
    # No triple and no chain is encoded; questions are, for the demonstrations.
    assert not set(triples) & set(encoder.texts["passage"])
    assert not any("<" in text for text in encoder.texts["query"])
    assert answer.evidence.chains
    _, model, encoder = ask("trace:candidates=2")
    assert [len(options(prompt)) for prompt, _ in model.steps[:1]] == [3]
    assert set(triples) <= set(encoder.texts["passage"])


@pytest.mark.parametrize("scoring", ["letters", "likelihood", "pmi"])
@pytest.mark.parametrize("count", [51, 52, 130])
def test_without_the_ranker_more_triples_than_letters_are_all_candidates(scoring: str, count: int) -> None:
    answer, model, _ = ask(f"trace:ranker=none,unit=sentence,length=1,scoring={scoring}", [town(count)])
    assert len(answer.evidence.chains) == 5
    if scoring == "letters":
        parts = [options(prompt) for prompt, _ in model.steps]
        assert [len(part) for part in parts] == {51: [52], 52: [27, 27], 130: [45, 44, 44]}[count]
        offered = [one for part in parts for one in part[1:]]
        assert offered == [f"[Town] House {number} was built by Ada." for number in range(count)]
        assert {part[0] for part in parts} == {"no need for additional knowledge triples"}
        # Each part has letters of its own, from A.
        assert all(labels == list(OPTION_LABELS[: len(labels)]) for _, labels in model.steps)


class Reading:
    """A cross-encoder that likes long passages, and says what it read."""

    name = "reading"
    fingerprint = "reading-1"

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.pairs += pairs
        return np.array([len(passage) for _, passage in pairs], dtype=np.float32)


def test_a_cross_encoder_reads_the_nearest_triples_anew_with_question_and_chain() -> None:
    model, reading = Asked(), Reading()
    method = make_method(
        "trace:ranker=cross-encoder,candidates=1,length=2", model, Counting, CAPABLE, cross_encoder=lambda: reading
    )
    method.select([QUESTION], [DOCUMENTS])
    # Four times as many as are offered are read, and the longest is.
    first = [passage for query, passage in reading.pairs if query == QUESTION]
    assert len(first) == READ_ANEW
    assert options(model.steps[0][0])[1:] == [max(first, key=len)]
    then = {query for query, _ in reading.pairs} - {QUESTION}
    assert then == {f"{QUESTION} {max(first, key=len)}"}
    with pytest.raises(InputError, match="none was named; give --cross-encoder"):
        make_method("trace:ranker=cross-encoder", model, Counting, CAPABLE)


def test_new_documents_is_heeded_without_the_ranker_too() -> None:
    _, model, _ = ask("trace:ranker=none,new_documents=true,length=2")
    for prompt, _ in model.steps[1:]:
        (chosen,) = re.findall(r"<([^;]*);", prompt.input.splitlines()[0])
        assert not any(one.startswith(f"<{chosen};") for one in options(prompt)[1:])


@pytest.mark.parametrize("wrong", ["scoring=ranker", "scoring=black-box", "scoring=letters,layout=shared"])
def test_what_cannot_choose_among_all_triples_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"ranker=none offers every triple, .*use scoring=letters with layout=paper"):
        ask(f"trace:ranker=none,{wrong}")


def test_a_ranker_without_an_encoder_offers_each_chain_what_it_lacks() -> None:
    triples = [
        [Triple("a", "r", str(number), f"d{number % 2}") for number in range(4)],
        [],
        [Triple("b", "r", "0", "d")],
    ]
    encoder = Counting()
    index = TripleIndex(triples, encoder)
    rows = Ranker(None, candidates=1).rank(index, ["p", "q", "r"], [0, 0, 1, 2], [(), (2, 0), (), (0,)])
    assert [[one.index for one in row] for row in rows] == [[0, 1, 2, 3], [1, 3], [], []]
    assert rows[1][0] == Candidate(triples[0][1], 1, 0.0)
    assert Ranker(None).rank(index, ["p", "q", "r"], [], []) == []
    assert encoder.texts == {"query": [], "passage": []}


class Placed(ScriptedModel):
    """Scores labels by what stands behind them in the prompt, and A by the last letter of the prompt's last option."""

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        results = []
        for prompt, labels in zip(prompts, options, strict=True):
            assert isinstance(prompt, Prompt)
            lines = dict(re.findall(r"^([A-Za-z])\. (.*)$", prompt.input, re.MULTILINE))
            numbers = [float(re.sub(r"\D", "", lines[label]) or 0) for label in labels[1:]]
            results.append(OptionScores(np.array([-sum(numbers), *numbers]) / 100 - 7, 0.0))
        return results


def test_letters_in_parts_are_log_odds_to_ending_in_their_own_part() -> None:
    step = Step("Who?", (), tuple(Candidate(Triple("x", "y", str(number)), number, 0.0) for number in range(7)))
    few, none = step.candidates[:2], step.candidates[:0]
    letters = LetterSelector(Placed(), Demonstrations(0))
    steps = [step, Step("Who?", (), few), Step("Who?", (), none)]
    whole, second, third = ChunkedSelector(letters, most=3).select(steps)
    # Parts of 3, 2 and 2: 0 1 2, 3 4, 5 6.
    ends = np.array([3, 3, 3, 7, 7, 11, 11])
    np.testing.assert_allclose(whole, [0, *((np.arange(7) + ends) / 100)], atol=1e-12)
    np.testing.assert_allclose(second, [0, 0.01, 0.02], atol=1e-12)
    assert third.tolist() == [0]
    # One part is the selector's own distribution.
    (own,) = letters.select([step])
    (one,) = ChunkedSelector(letters, most=7).select([step])
    np.testing.assert_allclose(one - np.logaddexp.reduce(one), own - np.logaddexp.reduce(own), atol=1e-12)
    assert ChunkedSelector(letters).select([]) == []
    with pytest.raises(ValueError, match="most must be at least 1, not 0"):
        ChunkedSelector(letters, most=0)


def test_an_ending_that_a_server_left_out_gives_no_infinite_odds() -> None:
    class Silent:
        def select(self, steps: Sequence[Step]) -> list[NDArray[np.float64]]:
            return [np.array([-np.inf, *(-1.0 for _ in step.candidates)]) for step in steps]

    step = Step("Who?", (), tuple(Candidate(Triple("x", "y", str(number)), number, 0.0) for number in range(3)))
    assert ChunkedSelector(Silent(), most=2).select([step])[0].tolist() == [0, 99, 99, 99]


# The selector


@pytest.mark.parametrize("method", ["trace", "trace-doc"])
def test_without_the_selector_the_ranker_s_best_b_make_chains_of_full_length(method: str) -> None:
    answer, model, encoder = ask(f"{method}:scoring=ranker,beams=2,length=3")
    assert model.steps == []
    assert not any(prompt.endswith("Next:") for prompt in model.prompts)
    assert answer.usage["select"].calls == 0
    assert lengths(answer) == [3] * 5
    assert not any(chain.finished for chain in answer.evidence.chains)
    # Two first triples, each of them one of the two nearest to the question.
    everything = [text for text in encoder.texts["passage"] if text.startswith("<")]
    similarities = encoder.encode(everything) @ encoder.encode([QUESTION])[0]
    nearest = {everything[place] for place in np.argsort(-similarities, kind="stable")[:2]}
    assert {chain.units[0].text for chain in answer.evidence.chains} == nearest


def test_one_triple_a_step_makes_one_chain() -> None:
    answer, model, _ = ask("trace:beams=1,chains=1")
    assert len(answer.evidence.chains) == 1
    # As many steps as the chain has, with the one that ended it.
    assert len(model.steps) == len(answer.evidence.chains[0].steps)
    black_box, _, _ = ask("trace:scoring=black-box")
    assert len(black_box.evidence.chains) == 1


# Demonstrations


@pytest.mark.parametrize("count", [0, 1, 3, 5, 10])
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_as_many_demonstrations_are_shown_as_were_asked_for(count: int, adaptive: str) -> None:
    setting = f"demonstrations={count},adaptive_demonstrations={adaptive}"
    _, model, _ = ask(f"trace:{setting},unit=sentence")
    assert model.steps
    for prompt, _ in model.steps:
        assert len(prompt.demonstrations) == count
    asked = [re.findall(r"Question: (.*)", given)[0] for given, _ in model.steps[0][0].demonstrations]
    first = [one.question for one in ChainDemonstration.load()[:count]]
    if adaptive == "false":
        assert asked == first
    elif count == 3:
        encoder = Counting()
        labelled = [one.question for one in ChainDemonstration.load()]
        nearest = np.argsort(-(encoder.encode(labelled) @ encoder.encode([QUESTION])[0]), kind="stable")
        assert asked == [labelled[place] for place in nearest[:3][::-1]]


@pytest.mark.parametrize("count", [0, 1, 3, 10])
def test_the_generator_of_triples_is_shown_as_many_documents_as_were_asked_for(count: int) -> None:
    _, model, _ = ask(f"trace:triple_demonstrations={count},adaptive_triple_demonstrations=false")
    written = [prompt for prompt in model.prompts if re.search(r"<[^<>;]*;$", prompt)]
    assert len(written) == 3
    titles = [one.title for one in TripleDemonstration.load()]
    for prompt in written:
        assert re.findall("^Title: (.*)$", prompt, re.MULTILINE)[:-1] == titles[:count]


def test_more_demonstrations_than_there_are_is_an_error() -> None:
    for name, there, methods in (
        ("demonstrations", len(ChainDemonstration.load()), ("trace", "trace-doc")),
        ("triple_demonstrations", len(TripleDemonstration.load()), ("trace", "top-triples")),
    ):
        assert there >= 10
        for method in methods:
            ask(f"{method}:{name}={there}")
            with pytest.raises(InputError, match=f"^{name} is {there + 1}, but there are only {there} labelled ones"):
                ask(f"{method}:{name}={there + 1}")
    ask("trace:unit=sentence,triple_demonstrations=99")  # where no triple is written, none is shown


# Length, chains, candidates


@pytest.mark.parametrize("length", [1, 2, 4])
def test_chains_of_fixed_length_never_end_before_it(length: int) -> None:
    fixed, model, _ = ask(f"trace:adaptive=false,length={length}")
    assert lengths(fixed) == [length] * 5
    assert not any(chain.finished for chain in fixed.evidence.chains)
    assert {chosen_in(prompt) for prompt, _ in model.steps} == set(range(length))
    adaptive, _, _ = ask(f"trace:length={length}")
    assert max(lengths(adaptive)) <= length


def chosen_in(prompt: Prompt) -> int:
    return prompt.input.splitlines()[0].count("<")


@pytest.mark.parametrize(("setting", "value"), [("chains", 1), ("chains", 3), ("chains", 20), ("candidates", 4)])
def test_chains_and_candidates_are_as_many_as_were_asked_for(setting: str, value: int) -> None:
    answer, model, _ = ask(f"trace:{setting}={value},unit=sentence,adaptive=false")
    if setting == "chains":
        assert len(answer.evidence.chains) == value
    else:
        assert {len(options(prompt)) - 1 for prompt, _ in model.steps} <= {value, value - 1}
        assert len(options(model.steps[0][0])) - 1 == value


def test_k_may_be_the_paper_s_forty() -> None:
    _, model, _ = ask("trace:candidates=40,unit=sentence,length=1", [town(60)])
    assert [len(options(prompt)) for prompt, _ in model.steps] == [41]


# Baselines


def test_without_documents_the_question_alone_is_asked() -> None:
    answer, model, _ = ask("standard")
    (prompt,) = model.prompts
    assert not any(one.title in prompt for one in (FERRY, FOUNDER))
    assert "context" not in prompt.lower()
    assert (answer.evidence.kind, answer.context_tokens) == ("none", 0)
    _, model, _ = ask("rag")
    assert [model.prompts[0].index(one.text) for one in DOCUMENTS] == sorted(
        model.prompts[0].index(one.text) for one in DOCUMENTS
    )


def test_a_bi_encoder_may_rank_whole_documents_in_place_of_sentences() -> None:
    long = Document("long", "Bees", ("Who keeps bees?", *("Rain is wet and falls on stones." for _ in range(9))))
    short = Document("short", "Keeper", ("Ada keeps bees.",))
    question = "Who keeps bees?"
    found = {}
    for whole in (False, True):
        encoder = Counting()
        made = make_method(
            f"dense:top=1,whole_documents={str(whole).lower()}", Asked(), lambda given=encoder: given, CAPABLE
        )
        (answer,) = made.answer([question], [[long, short]])
        found[whole] = answer.evidence.document_ids
        passages = [text for text in encoder.texts["passage"] if text.startswith("[")]
        assert passages == (
            [f"[Bees] {long.text}", f"[Keeper] {short.text}"]
            if whole
            else [*(f"[Bees] {sentence}" for sentence in long.sentences), f"[Keeper] {short.text}"]
        )
    assert found == {False: ("long",), True: ("short",)}


def test_whole_documents_are_ranked_by_their_inner_products_with_ties_and_empty_ones_last() -> None:
    encoder = HashEncoder(dimension=4096)
    documents = [
        OBSERVATORY,
        Document("none", "Nothing", ()),
        FERRY,
        FOUNDER,
        Document("twin", FERRY.title, FERRY.sentences),
    ]
    questions = [QUESTION, "When leaves the ferry?"]
    hits = rank_each("dense", questions, [documents, documents], encoder, 5, whole_documents=True)
    vectors = encoder.encode([f"[{one.title}] {one.text}" for one in documents])
    for question, own in zip(questions, hits, strict=True):
        scores = vectors @ encoder.encode([question])[0]
        scores[1] = -np.inf
        order = np.argsort(-scores, kind="stable")
        assert [hit.document for hit in own] == [documents[place] for place in order]
        np.testing.assert_allclose([hit.score for hit in own], scores[order], rtol=1e-5)
    both = rank_each("rrf", questions[1:], [documents], encoder, 1, whole_documents=True)
    assert both[0][0].document == FERRY


# The page


def sentences_of_page() -> str:
    """Return the page without its blocks of code, whose calls `tests/docs_site` has the program parse."""
    return re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def named_methods() -> list[str]:
    """Return every method that the page names, with its settings."""
    found = re.findall(r"`([^`]+)`", sentences_of_page())
    words = [word for one in found for word in one.removeprefix("pytrace eval ").split()]
    return [word for word in dict.fromkeys(words) if word.partition(":")[0] in METHODS]


def test_every_method_and_setting_of_the_page_is_one() -> None:
    named = named_methods()
    assert len(named) > 40
    for one in named:
        method_settings(parse_method(one), CAPABLE)
    known = set().union(*(default_settings(method, CAPABLE).__struct_fields__ for method in METHODS))
    for one in re.findall(r"`([a-z_]+)(?:=[a-z-]+)?`", sentences_of_page()):
        assert one in known | set(METHODS), one


def test_the_page_says_how_many_demonstrations_there_are() -> None:
    said = (
        f"{len(ChainDemonstration.load())} questions for the selector and {len(TripleDemonstration.load())} documents"
    )
    assert said in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_command_line_evaluates_every_ablation_of_the_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder(dimension=4096))
    monkeypatch.setattr(loading.Engine, "abilities", CAPABLE)
    row = {
        "_id": "q",
        "question": QUESTION,
        "answer": "Quillhaven",
        "context": [[one.title, list(one.sentences)] for one in DOCUMENTS],
        "supporting_facts": [["Orrin Head", 0], ["Isaura Venn", 0]],
    }
    data = tmp_path / "questions.json"
    data.write_text(json.dumps([row]), encoding="utf-8")
    methods = [one for one in named_methods() if not one.startswith(("cross-encoder", "cok"))]
    status = common.run(cli.program, ["eval", *methods, "--data", str(data), "--json"])
    told = json.loads(capfd.readouterr().out)
    assert status == 0
    assert [one["method"] for one in told["methods"]] == methods
