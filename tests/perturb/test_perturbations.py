"""How chains of evidence are broken, what is put beside them, and that no row claims what is not so."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from pytrace.chain_of_evidence.discriminator import Discriminator
from pytrace.chain_of_evidence.feature_extraction import Extraction
from pytrace.chain_of_evidence.features import Features, Inquiry
from pytrace.documents.mentions import holds, mentions, replace, surface
from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.perturb.breaking import Broken, Kind, break_chains
from pytrace.perturb.model_rewriting import Rewriting
from pytrace.perturb.noise import fill, irrelevant, misinformation, swapped, weave
from pytrace.perturb.perturbations import PerturbReport, Settings, check_row, perturb
from pytrace.perturb.perturbed_rows import make_row, row_line, row_object
from pytrace.perturb.pieces import Piece, Sample, characters, knowledge, make_sample
from pytrace.perturb.rewriting import blanked, broader, clauses_cut, joined, misstated
from pytrace.records import Document, Feature, Perturbation, Question
from pytrace.retrieval import OriginalOrderRetriever, make_retriever


class Literally:
    """Judges by words: a relation or an intent is there if its own words are; counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[float | None]]]:
        self.calls += 1
        return [
            [[float(holds(text, feature.text)) for feature in inquiry.features] for text in inquiry.texts]
            for inquiry in inquiries
        ]


class Always:
    """Finds everything in everything."""

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[float | None]]]:
        return [[[1.0 for _ in one.features] for _ in one.texts] for one in inquiries]


class Given:
    """Extracts what it is told."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def extract(self, questions: Sequence[str]) -> list[Extraction]:
        return [Extraction(self._features) for _ in questions]


HEAD = Document(
    "head",
    "Orrin Head",
    ("Orrin Head was founded by Isaura Venn in 1871.", "It stands on a cliff.", "Gulls nest there."),
)
VENN = Document("venn", "Isaura Venn", ("Isaura Venn was a keeper, and she was born in Quillhaven.", "She kept bees."))
OTHERS = [
    Document(
        f"other{number}",
        name,
        tuple(
            f"{name} has a market on day {day} of the month, where rope and tar are sold to sailors."
            for day in range(5)
        ),
    )
    for number, name in enumerate(("Pellisk", "Tarn Hollow", "Lunde", "Ostra", "Merrow"))
]
QUESTION = Question(
    "q1",
    "In which town was the keeper who founded Orrin Head born?",
    ("Quillhaven",),
    (OTHERS[0], HEAD, VENN, *OTHERS[1:]),
    ("head", "venn"),
    (("head", 0), ("head", 1), ("venn", 0)),
    kind="bridge",
)
FOUNDED = Feature("relation", "was founded by", ("Orrin Head", "Isaura Venn"))
FEATURES = Features("born", ("Orrin Head", "keeper"), (FOUNDED,))
SAMPLE = make_sample(QUESTION, FEATURES)


def retrieve(queries: Sequence[str], count: int) -> Sequence[Sequence[object]]:
    return make_retriever("dense", list(QUESTION.documents), HashEncoder()).retrieve(queries, count)


def rows_of(
    *,
    features: Features = FEATURES,
    question: Question = QUESTION,
    report: PerturbReport | None = None,
    **settings: object,
) -> list[Question]:
    return list(
        perturb(
            [question],
            extractor=Given(features),
            discriminator=Discriminator(Literally()),
            retrieve=retrieve,  # type: ignore[arg-type]
            settings=Settings(**settings),  # type: ignore[arg-type]
            report=report,
        )
    )


def broken(kind: Kind, *, judge: object = None, sample: Sample = SAMPLE, **options: object) -> Broken | str:
    discriminator = Discriminator(judge or Literally())  # type: ignore[arg-type]
    return break_chains(kind, [sample], discriminator, **options)[0]  # type: ignore[arg-type]


def test_a_phrase_is_held_as_whole_words_whatever_stands_between_them() -> None:
    assert holds("the GREATER-ACCRA region", "Greater Accra Region")
    assert not holds("Norway and Canada", "no")
    assert not holds("Canada", "Ada")
    assert not holds("x (y)", "!?")
    assert holds("costs 39,134 in all", "39,134")


def test_what_replaces_a_phrase_fits_its_sentence() -> None:
    assert replace("The fort fell. The fort!", "fort", "this place") == "This place fell. This place!"
    assert replace("It is a coastal town.", "town", "a settlement") == "It is a coastal settlement."
    assert replace("He saw Orrin Head's tower.", "Orrin Head", "a certain name") == "He saw a certain name's tower."
    assert replace("a fort", "fort", r"\1 \g<0>") == r"a \1 \g<0>"


def test_the_surface_of_a_node_is_its_longest_part_that_stands_there() -> None:
    assert surface("the film Blade Runner", ["A film.", "Blade Runner was shot."]) == "Blade Runner"
    assert surface("which of the", ["which of the two"]) == ""
    assert surface("hill of many forts", ["A fort."]) == ""
    assert not mentions("A sailor of Canada.", "Ada")
    assert mentions("two hotel companies", "hotel company", threshold=80)


def test_pieces_are_the_supporting_sentences_or_all_where_no_fact_is_told() -> None:
    assert [piece.origin for piece in SAMPLE.pieces] == ["chain:head#0", "chain:head#1", "chain:venn#0"]
    whole = msgspec.structs.replace(QUESTION, supporting_facts=(("head", 0),))
    origins = [piece.origin for piece in make_sample(whole, FEATURES).pieces]
    assert origins == ["chain:head#0", "chain:venn#0", "chain:venn#1"]
    assert knowledge(SAMPLE.pieces).startswith("[Orrin Head] Orrin Head was founded by Isaura Venn in 1871. It stands")
    assert (
        make_sample(msgspec.structs.replace(QUESTION, supporting_documents=(), supporting_facts=()), FEATURES).pieces
        == ()
    )


def test_a_node_that_is_the_answer_is_no_surface() -> None:
    nodes = Features("born", ("Orrin Head", "Quillhaven", "town of Quillhaven"))
    assert make_sample(QUESTION, nodes).surfaces == ("Orrin Head",)


def test_senp_removes_sentences_until_the_judge_finds_no_chain() -> None:
    found = broken("senp")
    assert isinstance(found, Broken)
    # The sentence with the answer is the last resort; the other one mentions a node and breaks the chain.
    assert found.removed == ("Orrin Head was founded by Isaura Venn in 1871.",)
    assert [piece.origin for piece in found.pieces] == ["chain:head#1", "chain:venn#0"]
    assert FOUNDED in found.missing
    for seed in range(1, 9):
        assert broken("senp", seed=seed) == found


def test_senp_keeps_one_sentence_and_asks_a_bounded_number_of_times() -> None:
    found = broken("senp", judge=Always())
    assert found == "still a chain of evidence after 2 of 3 sentences were removed"
    found = broken("senp", judge=Always(), tries=1)
    assert found == "still a chain of evidence after 1 of 3 sentences were removed"
    nowhere = make_sample(QUESTION, Features("born", ("lighthouse keeper of Ostra",)))
    assert broken("senp", sample=nowhere) == "none of 3 sentences mentions one of 1 evidence nodes"
    single = make_sample(
        msgspec.structs.replace(QUESTION, supporting_facts=(("venn", 0),), supporting_documents=()), FEATURES
    )
    assert broken("senp", sample=single) == "still a chain of evidence after 0 of 1 sentences were removed"


def test_senp_never_counts_a_sentence_as_removed_that_stands_there_twice() -> None:
    twin = Document("twin", "Twin", (HEAD.sentences[0],))
    twice = msgspec.structs.replace(
        QUESTION, documents=(*QUESTION.documents, twin), supporting_facts=(("head", 0), ("venn", 0), ("twin", 0))
    )
    found = broken("senp", sample=make_sample(twice, Features("", ("Orrin Head",))))
    assert isinstance(found, Broken)
    assert not any(HEAD.sentences[0] in piece.shown for piece in found.pieces)


def test_all_questions_share_the_rounds_of_the_judge() -> None:
    samples = [
        make_sample(msgspec.structs.replace(QUESTION, id=f"q{number}"), Features("born", ("Orrin Head", "Isaura Venn")))
        for number in range(6)
    ]
    judge, done = Literally(), []
    found = break_chains("senp", samples, Discriminator(judge), settled=lambda: done.append(1))
    assert all(isinstance(one, Broken) for one in found)
    assert judge.calls <= 3
    assert len(done) == 6


def test_wordp_replaces_a_node_everywhere_and_keeps_the_answer() -> None:
    found = broken("wordp")
    assert isinstance(found, Broken)
    for node in found.removed:
        assert not any(holds(piece.shown, node) for piece in found.pieces)
    assert len(found.pieces) == 3
    assert holds(found.pieces[2].text, "Quillhaven")
    assert {by for _, _, by in found.replaced} == {"rule"}
    titled = broken("wordp", sample=make_sample(QUESTION, Features("", ("Orrin Head",))))
    assert isinstance(titled, Broken)
    assert titled.pieces[0].shown == "[A certain name] A certain name was founded by Isaura Venn in 1871."


def test_wordp_takes_a_models_expression_only_if_the_node_is_gone_and_no_answer_comes_in() -> None:
    sample = make_sample(QUESTION, Features("", ("Orrin Head",)))
    model = ScriptedModel(["the famous Orrin Head", "Quillhaven Tower", "a seamark."])
    found = broken("wordp", sample=sample, model=model)
    assert isinstance(found, Broken)
    assert found.replaced == (("Orrin Head", "a seamark", "model"),)
    assert broader(["Orrin Head"], ScriptedModel([""]))[0][-1].by == "rule"
    assert broken("wordp", judge=Always()) == "still a chain of evidence after 2 of 2 nodes were replaced"
    assert "stands in the sentences literally" in str(broken("wordp", sample=make_sample(QUESTION, Features("born"))))


def test_erp_removes_the_relation_and_keeps_nodes_and_answer() -> None:
    found = broken("erp")
    assert isinstance(found, Broken)
    assert found.replaced == (
        ("Orrin Head was founded by Isaura Venn in 1871.", "Orrin Head and Isaura Venn in 1871.", "rule"),
    )
    assert found.removed == ("Orrin Head was founded by Isaura Venn",)
    assert found.kept == ("Orrin Head", "keeper")
    assert FOUNDED in found.missing


def test_erp_takes_a_models_sentence_only_if_both_nodes_are_left_and_the_judge_agrees() -> None:
    written = [
        "Orrin Head was founded in 1871.",  # has lost a node of the relation, but no surface of the question
        "Orrin Head, they say, was founded by Isaura Venn.",
        "Orrin Head and Isaura Venn are in old letters.",
    ]
    sample = make_sample(QUESTION, Features("born", ("Orrin Head", "Isaura Venn"), (FOUNDED,)))
    found = broken("erp", sample=sample, model=ScriptedModel(written))
    assert isinstance(found, Broken)
    assert found.replaced == ((HEAD.sentences[0], written[2], "model"),)
    assert "was still found after" in str(broken("erp", judge=Always()))
    assert "no relation" in str(broken("erp", sample=make_sample(QUESTION, Features("born", ("Orrin Head",)))))


def test_a_relation_that_other_sentences_hold_too_is_removed_from_one_after_the_other() -> None:
    tower = Document("tower", "Tower", ("The tower was founded by a keeper of bees, in a bad year.",))
    question = msgspec.structs.replace(
        QUESTION,
        documents=(*QUESTION.documents, tower),
        supporting_documents=("head", "venn", "tower"),
        supporting_facts=(*QUESTION.supporting_facts, ("tower", 0)),
    )
    found = broken("erp", sample=make_sample(question, FEATURES))
    assert isinstance(found, Broken)
    assert [before for before, _, _ in found.replaced] == [HEAD.sentences[0], tower.sentences[0]]
    assert not any(holds(piece.text, "was founded by") for piece in found.pieces)
    assert all(any(holds(piece.shown, node) for piece in found.pieces) for node in found.kept)
    # What was rewritten in vain is not given out as broken.
    assert "was still found after 2 rewritings" in str(broken("erp", sample=make_sample(question, FEATURES), tries=2))


def test_intentp_removes_the_intent_and_keeps_the_nodes() -> None:
    found = broken("intentp")
    assert isinstance(found, Broken)
    assert found.missing == (Feature("intent", "born"),)
    assert found.removed == ("born",)
    ((before, after, by),) = found.replaced
    assert (before, by) == (VENN.sentences[0], "rule")
    assert not holds(after, "born")
    assert holds(after, "keeper")
    assert "was still found after" in str(broken("intentp", judge=Always()))
    assert str(broken("intentp", judge=Always(), tries=2)).endswith("after 2 rewritings")


def test_rules_rewrite_sentences() -> None:
    assert joined("A ship of Ada and Lima.", "Ada", "Lima") == ""
    assert joined("Lima traded with Ada.", "Ada", "Lima") == "Lima and Ada."
    assert joined("Only Ada.", "Ada", "Lima") == ""
    assert blanked("He was Laura Kirk.", ["Laura Kirk"]) == "He was somebody."
    assert not clauses_cut(f"Ada{' ' * 1_000_000}Foah", [])  # in no quadratic time
    cuts = clauses_cut("Ada Foah is a town, which lies in Ghana, and it has a fort.", ["Ada Foah"])
    assert cuts == ["Ada Foah is a town, and it has a fort.", "Ada Foah is a town, which lies in Ghana."]
    assert clauses_cut("One.", []) == []


def test_irrelevant_text_comes_from_other_documents_and_holds_no_answer() -> None:
    spoiling = Document(
        "spoil",
        "Harbours",
        (
            "Quillhaven has a harbour.",
            HEAD.sentences[0],
            "Orrin Head was founded by Ida Thorne in 1875.",
            "Nothing else is known of it.",
        ),
    )
    namesake = Document("namesake", "orrin head", ("Another text about it.",))
    asked: list[str] = []

    class Hit:
        def __init__(self, document: Document) -> None:
            self.document = document

    def search(queries: Sequence[str], count: int) -> list[list[Hit]]:
        del count
        asked.extend(queries)
        return [[Hit(one) for one in (HEAD, VENN, namesake, spoiling, OTHERS[0])] for _ in queries]

    (found,) = irrelevant([SAMPLE], search, needed=[400])
    assert asked == ["background of Orrin Head", "background of keeper"]
    assert found[0] == Piece("Harbours", "Nothing else is known of it.", "retrieved:spoil#3")
    assert {piece.origin.partition("#")[0] for piece in found} == {"retrieved:spoil", "retrieved:other0"}


def test_more_is_retrieved_while_there_is_too_little_but_not_for_ever() -> None:
    counts: list[int] = []

    def search(queries: Sequence[str], count: int) -> list[list[object]]:
        counts.append(count)
        return [[] for _ in queries]

    assert irrelevant([SAMPLE], search, needed=[10_000]) == [[]]  # type: ignore[arg-type]
    assert len(counts) == 3
    assert counts == sorted(counts)
    assert irrelevant([SAMPLE], search, needed=[0]) == [[]]  # type: ignore[arg-type]
    assert len(counts) == 3


def test_a_swap_reaches_titles_aliases_and_other_formats() -> None:
    pieces = [Piece("The Rhine", "On May 2, 1901 (1901-05-02) the Rhine, or Rhein, rose.", "chain:r#0")]
    (one,) = swapped(pieces, ["Rhine", "Rhein"], "Tiber")
    assert one.shown == "[The Tiber] On May 2, 1901 (1901-05-02) the Tiber, or Tiber, rose."
    (one,) = swapped(pieces, ["2 May 1901"], "7 July 1911")
    assert one.text.startswith("On July 7, 1911 (1911-07-07)")


def test_misinformation_holds_the_wrong_answer_and_never_the_right_one() -> None:
    written = misstated(
        [(QUESTION.question, "Lima", ("Quillhaven",))],
        ScriptedModel(["The keeper was born in Lima.", "Born in Quillhaven, not Lima.", "Lima", "She was born there."]),
    )
    assert written == [["The keeper was born in Lima."]]
    found = misinformation(SAMPLE.pieces, SAMPLE, "Lima", written[0], random.Random(0))
    assert found[0] == Piece("Isaura Venn", "Isaura Venn was a keeper, and she was born in Lima.", "swapped:venn#0")
    assert found[1].origin == "model"
    assert {piece.origin for piece in found[2:]} == {"template"}
    assert all(holds(piece.text, "Lima") and not holds(piece.shown, "Quillhaven") for piece in found)
    texts = [piece.text.casefold() for piece in found]
    assert len(set(texts)) == len(texts) > 80


def test_a_question_that_names_the_answer_is_in_no_template() -> None:
    question = msgspec.structs.replace(QUESTION, question="Is it Lima or Quillhaven?")
    sample = make_sample(question, FEATURES)
    found = misinformation(sample.pieces, sample, "Lima", [], random.Random(0))
    assert len(found) > 30
    assert not any(holds(piece.shown, "Quillhaven") for piece in found)


@pytest.mark.parametrize("own", [60, 200, 777, 5_000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
def test_the_injected_share_is_the_wanted_one_within_two_points(own: int, share: float) -> None:
    source = random.Random(own)
    pieces = [
        Piece("Rain", " ".join("x" * source.randint(1, 9) for _ in range(source.randint(8, 30))), "")
        for _ in range(900)
    ]
    found = fill(own, pieces, share)
    if own == 60 and share < 0.25:
        assert found is None or share == 0  # no piece is so short
        return
    assert found is not None
    size = characters(found)
    assert abs(size / (own + size) - share) <= 0.02
    assert list(found[:-1]) == [piece for piece in pieces if piece in found[:-1]]
    if found:
        assert any(one.text.startswith(found[-1].text) for one in pieces)
        assert not found[-1].text.endswith(" ")


def test_too_little_text_gives_no_row_and_a_cut_keeps_what_it_must_hold() -> None:
    assert fill(1_000, [Piece("Rain", "It rains.", "")], 0.5) is None
    assert fill(1_000, [], 0.5) is None
    late = Piece("Rain", "After a long and careful inquiry the answer that was found is Lima itself.", "")
    early = Piece("Rain", "Lima it is, say all of those who were asked about it on that very day.", "")
    found = fill(50, [late, early], 0.5, holding="Lima")
    assert found is not None
    assert all(holds(piece.text, "Lima") for piece in found)


def test_pieces_of_the_chain_keep_their_order_among_the_injected_ones() -> None:
    chain = [Piece("c", str(number), "") for number in range(4)]
    noise = [Piece("n", str(number), "") for number in range(6)]
    orders = set()
    for seed in range(30):
        woven = weave(chain, noise, random.Random(seed))
        assert [piece for piece, injected in woven if not injected] == chain
        assert [piece for piece, injected in woven if injected] == noise
        orders.add(tuple(injected for _, injected in woven))
    assert len(orders) > 10


def test_a_row_is_made_for_every_kind_noise_and_ratio_and_all_are_sound() -> None:
    report = PerturbReport()
    rows = rows_of(report=report)
    wanted = itertools.product(
        ("coe", "senp", "wordp", "erp", "intentp"), ("irrelevant", "misinformation", "swapped"), range(4)
    )
    assert len(rows) == len(list(wanted)) == report.rows
    assert (report.questions, report.chains, report.unsound, report.refusals) == (1, 1, 0, [])
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        done = row.perturbation
        assert done is not None
        assert check_row(row) == []
        assert (done.source, done.hops, row.kind, row.answers) == ("q1", 2, "bridge", ("Quillhaven",))
        assert done.features == FEATURES.all
        assert (done.kind == "coe") == (not done.missing)
        text = " ".join(document.text for document in row.documents)
        if done.noise == "swapped":
            assert not holds(text, "Quillhaven")
            assert holds(text, done.wrong_answer) or done.kind == "intentp"
        elif done.kind != "intentp":
            assert holds(text, "Quillhaven")


def test_the_same_seed_gives_the_same_rows_and_another_one_others() -> None:
    settings = {"kinds": ("coe",), "ratios": (0.5,)}
    assert rows_of(**settings) == rows_of(**settings)
    first, other = rows_of(**settings), rows_of(seed=1, **settings)
    assert [row.documents for row in first] != [row.documents for row in other]


def test_a_question_without_a_chain_of_evidence_is_refused_with_the_reason() -> None:
    report = PerturbReport()
    assert rows_of(features=Features("born", ("Orrin Head", "harbour")), report=report) == []
    assert report.refusals[0].reason == "its 3 sentences are no chain of evidence: 1 features lack (harbour)"
    assert rows_of(features=Features(), report=report) == []
    assert report.refusals[1].reason == "no feature was found in it"
    bare = msgspec.structs.replace(QUESTION, supporting_documents=(), supporting_facts=())
    assert rows_of(question=bare, report=report) == []
    assert report.refusals[2].reason == "none of 7 documents supports it"
    assert rows_of(question=msgspec.structs.replace(QUESTION, answers=()), report=report) == []
    assert report.refusals[3].reason == "it has no answer"
    assert report.chains == 0


def test_what_cannot_be_swapped_is_refused_and_everything_else_is_made() -> None:
    report = PerturbReport()
    yes = msgspec.structs.replace(QUESTION, answers=("yes",))
    rows = rows_of(question=yes, kinds=("coe",), ratios=(0.0, 0.5), report=report)
    assert {row.perturbation.noise for row in rows if row.perturbation} == {"irrelevant", "misinformation"}
    assert {row.perturbation.wrong_answer for row in rows if row.perturbation} == {"", "no"}
    assert "stands in none of 3 sentences, so it cannot be swapped" in report.refusals[0].reason
    report = PerturbReport()
    open_question = msgspec.structs.replace(QUESTION, answers=("some unheard of thing",))
    rows_of(question=open_question, kinds=("coe",), ratios=(0.0,), report=report)
    reasons = {refusal.noise: refusal.reason for refusal in report.refusals}
    assert set(reasons) == {"misinformation", "swapped"}
    assert "'some unheard of thing' was found" in reasons["swapped"]


def test_text_beside_a_swapped_chain_does_not_give_the_wrong_answer() -> None:
    spoiling = Document(
        "spoil", "Lanterns", tuple(f"Thornlea sells lantern number {number} of many." for number in range(9))
    )
    question = msgspec.structs.replace(QUESTION, documents=(*QUESTION.documents, spoiling))
    rows = perturb(
        [question], extractor=Given(FEATURES), discriminator=Discriminator(Literally()), pool=["Thornlea"],
        retrieve=OriginalOrderRetriever([spoiling, *OTHERS]).retrieve,
        settings=Settings(kinds=("coe",), noises=("irrelevant", "swapped"), ratios=(0.5,)),
    )  # fmt: skip
    irrelevant_row, swapped_row = rows
    assert swapped_row.perturbation is not None
    assert swapped_row.perturbation.wrong_answer == "Thornlea"
    told = [document.text for document in swapped_row.documents if document.id in swapped_row.perturbation.injected]
    assert told
    assert not any(holds(text, "Thornlea") for text in told)
    assert any(holds(document.text, "Thornlea") for document in irrelevant_row.documents)


def test_too_little_irrelevant_text_is_refused_with_numbers() -> None:
    report = PerturbReport()
    alone = msgspec.structs.replace(QUESTION, documents=(HEAD, VENN))
    rows = perturb(
        [alone], extractor=Given(FEATURES), discriminator=Discriminator(Literally()),
        retrieve=lambda queries, count: [[] for _ in range(len(queries) if count else 0)],
        settings=Settings(kinds=("coe",), noises=("irrelevant",), ratios=(0.0, 0.5)), report=report,
    )  # fmt: skip
    assert len(list(rows)) == 1
    assert "0 texts to inject, with 0 characters, give no share of 50 % (within 2 points)" in report.refusals[0].reason


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ratios": (1.0,)}, "ratio is 1.0"),
        ({"ratios": (-0.1,)}, "ratio is -0.1"),
        ({"ratios": (math.nan,)}, "ratio is nan"),
        ({"tries": 0}, "tries is 0"),
        ({"kinds": ()}, "0 kinds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        rows_of(**settings)


def test_two_questions_of_one_id_are_refused_and_none_gives_nothing() -> None:
    options = {"extractor": Given(FEATURES), "discriminator": Discriminator(Literally()), "retrieve": retrieve}
    with pytest.raises(InputError, match="'q1' occurs 2 times"):
        perturb([QUESTION, QUESTION], **options)  # type: ignore[arg-type]
    assert list(perturb([], **options)) == []  # type: ignore[arg-type]


def test_broken_unicode_and_odd_texts_break_nothing() -> None:
    odd = Document("odd", "\ud800", ("Orrin Head \udfff was founded by Isaura Venn.", "   ", "!?"))
    question = Question("\ud800", "\ud800?", ("\udfff",), (odd, *OTHERS), ("odd",))
    rows = rows_of(question=question, features=Features("", ("Orrin Head",)))
    for row in rows:
        assert check_row(row) == []
        assert row_line(row).endswith(b"\n")


def sound(kind: str, noise: str = "irrelevant", ratio: float = 0.5) -> Question:
    (row,) = rows_of(kinds=(kind,), noises=(noise,), ratios=(ratio,))
    assert check_row(row) == []
    return row


def with_text(row: Question, place: int, change: Callable[[str], str]) -> Question:
    documents = list(row.documents)
    documents[place] = msgspec.structs.replace(documents[place], sentences=(change(documents[place].text),))
    return msgspec.structs.replace(row, documents=tuple(documents))


def claiming(row: Question, **claims: object) -> Question:
    return msgspec.structs.replace(row, perturbation=msgspec.structs.replace(row.perturbation, **claims))


def chain_place(row: Question) -> int:
    assert row.perturbation is not None
    return next(place for place, one in enumerate(row.documents) if one.id in row.perturbation.pieces)


def noise_place(row: Question) -> int:
    assert row.perturbation is not None
    return next(place for place, one in enumerate(row.documents) if one.id in row.perturbation.injected)


def faults(row: Question) -> str:
    return "\n".join(check_row(row))


def test_a_removed_sentence_that_is_still_there_is_found_even_in_the_noise() -> None:
    row = sound("senp")
    again = with_text(row, noise_place(row), lambda text: f"{text} {HEAD.sentences[0].upper()}")
    assert "the removed sentence" in faults(again)
    assert "nothing is said to be removed" in faults(claiming(row, removed=()))


def test_a_replaced_node_that_is_still_there_is_found_in_the_chain() -> None:
    row = sound("wordp")
    assert row.perturbation is not None
    node = row.perturbation.removed[0]
    assert "the replaced node" in faults(with_text(row, chain_place(row), lambda text: f"{text} {node.upper()}"))
    assert "the replaced node" not in faults(with_text(row, noise_place(row), lambda text: f"{text} {node}"))
    assert "not the removed ones" in faults(claiming(row, replaced=()))


@pytest.mark.parametrize("kind", ["erp", "intentp"])
def test_a_rewritten_sentence_must_be_there_and_the_old_one_not(kind: str) -> None:
    row = sound(kind)
    assert row.perturbation is not None
    ((before, after, _),) = row.perturbation.replaced
    place = next(place for place, one in enumerate(row.documents) if one.text == after)
    assert "still stands as it was" in faults(with_text(row, place, lambda _: before))
    assert "does not stand in the chain" in faults(with_text(row, place, lambda text: text[:-1] + "!"))
    assert "no sentence is said to be rewritten" in faults(claiming(row, replaced=()))
    assert "is no longer there" in faults(claiming(row, kept=("Ostra Head",)))


def test_a_wrong_share_of_injected_characters_is_found() -> None:
    row = sound("coe")
    longer = with_text(row, noise_place(row), lambda text: text + " and more" * 9)
    assert "% as claimed" in faults(longer)
    assert "% as measured" in faults(claiming(row, measured=0.6))
    assert "% as measured" in faults(claiming(row, measured=math.nan))
    assert "% as claimed" in faults(claiming(row, ratio=0.47))


def test_a_wrong_answer_must_be_of_the_type_and_form_of_the_right_one() -> None:
    row = sound("coe", "swapped")
    assert "not of the type and form" in faults(claiming(row, wrong_answer="1784"))
    assert "not of the type and form" in faults(claiming(row, wrong_answer=""))
    assert "is a right one" in faults(claiming(row, wrong_answer="quillhaven."))
    assert "still holds the right answer" in faults(
        with_text(row, chain_place(row), lambda text: text[:-1] + " QUILLHAVEN")
    )


def test_injected_text_must_not_give_the_right_answer_and_misinformation_must_give_the_wrong_one() -> None:
    row = sound("coe", "misinformation")
    place = noise_place(row)
    assert "holds a right answer" in faults(with_text(row, place, lambda text: f"{text} Quillhaven"))
    assert "does not hold the wrong answer" in faults(with_text(row, place, lambda text: "x" * len(text)))
    assert "holds a right answer" in faults(
        with_text(sound("coe"), noise_place(sound("coe")), lambda text: f"{text} Quillhaven")
    )


def test_every_document_must_say_where_it_came_from() -> None:
    row = sound("coe")
    done = row.perturbation
    assert done is not None
    first = next(iter(done.injected))
    assert "origins are told" in faults(claiming(row, injected={}))
    assert "not the pieces of the chain" in faults(msgspec.structs.replace(row, supporting_documents=()))
    assert "none of irrelevant noise" in faults(claiming(row, injected={**done.injected, first: "model"}))
    assert "does not come from" in faults(claiming(row, pieces=dict.fromkeys(done.pieces, "model")))
    assert "is not named" in faults(claiming(row, source=""))
    assert "said to be whole" in faults(claiming(row, removed=("x",)))
    assert "claims nothing" in faults(msgspec.structs.replace(row, perturbation=None))


def test_an_unsound_row_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    report = PerturbReport()
    monkeypatch.setattr("pytrace.perturb.perturbations.check_row", lambda row: ["wrong"] if "0.5" in row.id else [])
    rows = rows_of(kinds=("coe",), noises=("irrelevant",), report=report)
    assert (len(rows), report.rows, report.unsound) == (3, 3, 1)
    assert report.faults == ["q1/coe/irrelevant/0.5/0: wrong"]


def test_rows_are_read_back_as_they_were(tmp_path: Path) -> None:
    rows = rows_of()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(map(row_line, rows)))
    read = list(read_questions(path))
    for before, after in zip(rows, read, strict=True):
        assert after.perturbation == before.perturbation
        assert check_row(after) == []
        assert (after.id, after.question, after.answers, after.kind) == (
            before.id, before.question, before.answers, before.kind,
        )  # fmt: skip
        assert [(one.id, one.title, one.sentences) for one in after.documents] == [
            (one.id, one.title, one.sentences) for one in before.documents
        ]
        assert set(after.supporting_documents) == set(before.supporting_documents)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "other"),
        ("ratio", "much"),
        ("ratio", 1.5),
        ("measured", -1),
        ("source", 3),
        ("pieces", []),
        ("replaced", [["a"]]),
    ],
)
def test_a_perturbation_that_was_tampered_with_is_a_clear_error(tmp_path: Path, field: str, value: object) -> None:
    row = row_object(sound("coe"))
    row["perturbation"][field] = value
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(DataError, match=r"rows.jsonl:1: `perturbation`"):
        list(read_questions(path))


def test_a_row_without_perturbation_has_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row_object(sound("coe")), "perturbation": None}), encoding="utf-8")
    assert [row.perturbation for row in read_questions(path)] == [None]


def test_ratios_that_look_alike_give_rows_of_their_own() -> None:
    done = Perturbation("q", "coe", "irrelevant", 0.1, 0.1, 0)
    near = msgspec.structs.replace(done, ratio=0.1 + 1e-9)
    assert make_row(QUESTION, SAMPLE.pieces, (), done).id != make_row(QUESTION, SAMPLE.pieces, (), near).id


def test_demonstrations_of_ones_own_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    row = {"job": "unrelated", "input": "A met B.", "keep": ["A", "B"], "without": "A met B", "output": "A is."}
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(DataError, match=r"own.jsonl:1: the output lacks 'B'"):
        Rewriting.load_with("job", "unrelated", path=path)
    path.write_text(json.dumps({**row, "output": "A and B."}), encoding="utf-8")
    assert Rewriting.load_with("job", "unrelated", path=path)[0].output == "A and B."
    with pytest.raises(DataError, match=r'own\.jsonl: has no demonstration of job "broader" among its 1'):
        Rewriting.load_with("job", "broader", path=path)
    for job in ("another", "broader", "unrelated", "unintended", "misstated"):
        assert len(Rewriting.load_with("job", job)) >= 3


@pytest.mark.models
def test_the_tiny_models_make_sound_rows(tiny_models: dict[str, Path]) -> None:
    from pytrace.chain_of_evidence.judges import TextJudge
    from pytrace.models.encoders.encoder import OnnxEncoder
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    tiny = LlamaCppModel(tiny_models["language-model"], name="tiny", context=1024)
    encoder = OnnxEncoder(tiny_models["encoder"])
    rows = list(
        perturb(
            [QUESTION], extractor=Given(Features("", ("Orrin Head", "keeper"))), discriminator=Discriminator(TextJudge(encoder)),
            retrieve=make_retriever("dense", list(QUESTION.documents), encoder).retrieve, model=tiny,
            settings=Settings(kinds=("coe", "senp", "wordp"), ratios=(0.5,)),
        )
    )  # fmt: skip
    assert {row.perturbation.kind for row in rows if row.perturbation} >= {"coe", "wordp"}
    assert all(check_row(row) == [] for row in rows)
