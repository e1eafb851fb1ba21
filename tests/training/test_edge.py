"""The small model: how its inputs are packed, what it learns from, its training from a tiny BERT, and what it reads."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from pytrace.cli import program
from pytrace.errors import DataError, InputError, LockedError, ModelError, ModelFileError
from pytrace.models.edge.edge_model import CHECK_GRAPH, GRAPH, OUTPUTS, SHARED, EdgeModel
from pytrace.models.edge.packing import MAX_QUESTION_TOKENS, MAX_TOKENS, PackedInput, Packer
from pytrace.models.edge.reading import KINDS, PAIR_WIDTH, Logits, read
from pytrace.storage.locks import take_writer_lock
from pytrace.storage.question_hashes import load_question_hashes, question_hash
from pytrace.training.edge import edge_run
from pytrace.training.edge import made_statements as made_statements_module
from pytrace.training.edge.composed_questions import composed_questions, described
from pytrace.training.edge.edge_examples import (
    CheckingExample,
    Distractors,
    LinkingExample,
    ReadingExample,
    Span,
    checking_examples,
    evidence_text,
    find_distractors,
    key_of,
    reading_examples,
)
from pytrace.training.edge.edge_export import export_edge
from pytrace.training.edge.edge_network import edge_network, mix_weights, save_float
from pytrace.training.edge.edge_run import is_kept_back
from pytrace.training.edge.edge_settings import EdgeSettings
from pytrace.training.edge.edge_task import EdgeTask, draw, pack_training, padded
from pytrace.training.edge.made_contrasts import contrasts
from pytrace.training.edge.made_links import made_triple_links, passage_links
from pytrace.training.edge.made_questions import facts_of, made_questions
from pytrace.training.edge.made_statements import claim_twins, made_answers, made_statements, near_date, negated, turned
from pytrace.training.edge.rewording import reworded
from pytrace.training.network import train_package
from pytrace.training.trainer import checkpoints, learn
from pytrace.training.training_settings import Length
from tests.small_rankers import PEOPLE, RIVERS, TOWNS, Tiny, tiny_encoder
from tests.small_trainings import Killed, equal, killer, weights

torch = train_package("torch")

SETTINGS = EdgeSettings(batch=512, learning_rate=5e-3, made_questions=4, made_claims=4, judge_steps=10)
PAGES = [
    f"[{person}] {person} was born in {town}." + extra
    for person, town, extra in zip(PEOPLE, TOWNS, ["", " He was a baker by the river."] * 6, strict=True)
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Return a tiny encoder, whose tokenizer the tiny base has, too."""
    return tiny_encoder(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture(scope="module")
def base(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the float32 weights of a tiny BERT of 512 positions."""
    place = tmp_path_factory.mktemp("float")
    transformers = train_package("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(2)
        config = transformers.BertConfig(**{**tiny.network.config.to_dict(), "max_position_embeddings": 512})
        network = transformers.BertModel(config, add_pooling_layer=True)
    network.config.to_json_file(place / "config.json")
    state = {name: weight.detach().contiguous() for name, weight in network.state_dict().items()}
    train_package("safetensors.torch").save_file(state, place / "model.safetensors")
    (place / "tokenizer.json").write_bytes((tiny.path / "tokenizer.json").read_bytes())
    return place


@pytest.fixture
def packer(base: Path) -> Packer:
    return Packer(base / "tokenizer.json")


def questions() -> list[ReadingExample]:
    return [
        ReadingExample(f"Where was {person} born?", (page,), (Span(0, (at := page.index(town)), at + len(town)),), "span", (), "squad2")
        for person, town, page in zip(PEOPLE, TOWNS, PAGES, strict=True)
    ]  # fmt: skip


class TestPacking:
    def test_every_token_of_a_passage_knows_its_characters(self, packer: Packer) -> None:
        passages = ["[Ada] Ada was born in Quill.", "Brack lies on the river Bove."]
        (packed,) = packer.windows("Where was Ada born?", passages)
        words = [
            passages[passage][start:end]
            for passage, (start, end) in zip(packed.passages, packed.offsets, strict=True)
            if passage >= 0
        ]
        assert "".join(words) == "".join(passages).replace(" ", "")
        assert packed.types.tolist() == [0] * (packed.types == 0).sum() + [1] * (packed.types == 1).sum()
        assert (packed.passages[packed.types == 0] == -1).all()

    def test_long_evidence_is_read_in_windows_that_hold_all_of_it(self, packer: Packer) -> None:
        passages = [f"[Ada] {'Ada was born in Quill. ' * count}" for count in (3, 300, 20, 40)]
        windows = packer.windows("Where was Ada born?", passages)
        assert len(windows) > 3
        assert max(len(window.ids) for window in windows) <= MAX_TOKENS
        seen = {
            (int(passage), int(start))
            for window in windows
            for passage, (start, _) in zip(window.passages, window.offsets, strict=True)
            if passage >= 0
        }
        wanted = {
            (number, int(start)) for number, text in enumerate(passages) for start, _ in packer.tokens(text).offsets
        }
        assert seen == wanted
        # A part of a long passage has the passage's title in front.
        assert all(window.ids[int(np.argmax(window.passages >= 0))] == packer.tokens("[").ids[0] for window in windows)

    def test_passages_that_fit_are_read_once(self, packer: Packer) -> None:
        passages = [f"[{name}] {'the river lies by the river. ' * 20}" for name in ("Ada", "Zell", "Brack", "Bove")]
        windows = packer.windows("Where was Ada born?", passages)
        assert len(windows) > 1
        assert sum((window.passages >= 0).sum() for window in windows) == sum(
            len(packer.tokens(text).ids) for text in passages
        )

    def test_a_long_question_leaves_room_for_passages(self, packer: Packer) -> None:
        (packed,) = packer.windows("Ada born " * 5_000, ["Ada was born in Quill."])
        assert (packed.types == 0).sum() == MAX_QUESTION_TOKENS + 2
        assert (packed.passages == 0).sum() == 6

    @pytest.mark.parametrize("text", ["", "\ud800", "\x00", "[", "[]", "[] ", "] ", "\u200b"])
    def test_odd_texts_are_packed(self, packer: Packer, text: str) -> None:
        for question, passages in ((text, []), (text, [text]), ("Where?", [text, text])):
            assert all(len(window.ids) <= MAX_TOKENS for window in packer.windows(question, passages))

    def test_a_tokenizer_without_marks_is_refused(self, tmp_path: Path) -> None:
        from tokenizers import Tokenizer, models

        Tokenizer(models.WordPiece({"a": 0}, unk_token="a")).save(str(tmp_path / "t.json"))
        with pytest.raises(ModelFileError, match=r"has no token \[PAD\]"):
            Packer(tmp_path / "t.json")

    def test_an_answer_far_down_a_long_passage_is_kept(self, packer: Packer) -> None:
        passage = f"[Ada] {'the river lies by the river. ' * 100}Ada was born in Quill. {'the river. ' * 200}"
        other = f"[Zell] {'Zell lies on the river. ' * 200}"
        begin = passage.index("Quill")
        packed, spans = pack_training(packer, "Where was Ada born?", [other, passage], [Span(1, begin, begin + 5)])
        assert len(packed.ids) <= MAX_TOKENS
        ((first, last),) = spans
        assert passage[packed.offsets[first, 0] : packed.offsets[last, 1]] == "Quill"


class TestExamples:
    def test_bad_rows_are_refused_with_their_line(self, tmp_path: Path) -> None:
        right = {
            "question": "Where?", "passages": ["[A] in Rome"], "spans": [[0, 7, 11]], "kind": "span", "other_passages": [], "source": "x",
        }  # fmt: skip
        path = tmp_path / "rows.jsonl"
        for wrong, said in (
            ({**right, "spans": [[1, 0, 2]]}, "spans must lie in their passages"),
            ({**right, "spans": [[0, 5, 99]]}, "spans must lie in their passages"),
            ({**right, "kind": "maybe"}, "not a valid question .*maybe"),
            ({**right, "kind": ["span"]}, r"not a valid question .*\$\.kind"),
            ({"question": "Where?"}, "not a valid question .*missing"),
            ({**right, "question": None}, r"not a valid question .*\$\.question"),
            ({**right, "passages": [1]}, r"not a valid question .*\$\.passages"),
            ({**right, "spans": [[0, 1]]}, r"not a valid question .*\$\.spans"),
            ({**right, "spans": [["0", 1, 2]]}, r"not a valid question .*\$\.spans"),
            ([], "not a valid question"),
        ):
            path.write_text(f"{json.dumps(right)}\n{json.dumps(wrong)}\n", "utf-8")
            with pytest.raises(DataError, match=rf"rows\.jsonl:2.*{said}"):
                reading_examples(path)
        path.write_text(json.dumps(right) + "\n{", "utf-8")
        with pytest.raises(DataError, match=r"rows\.jsonl:2.*not a valid question"):
            reading_examples(path)
        path.write_bytes(json.dumps(right).encode() + b'\n{"question": "\xff"}')
        with pytest.raises(DataError, match=r"rows\.jsonl:2"):
            reading_examples(path)
        path.write_text(json.dumps(right), "utf-8")
        (example,) = reading_examples(path)
        assert example.answers == ("Rome",)
        path.write_text(json.dumps({**right, "question": "Where \ud83d?", "score": math.nan}), "utf-8")
        assert reading_examples(path)[0].question == "Where \ud83d?"

    def test_a_file_that_is_cut_off_or_damaged_is_an_error(self, tmp_path: Path) -> None:
        row = json.dumps({"claim": "A lies.", "evidence": ["A lies."], "label": "supported", "source": "x"}) + "\n"
        path = tmp_path / "claims.jsonl.gz"
        whole = gzip.compress((row * 50).encode())
        for content in (whole[:-12], whole[:12] + b"\xff" * 8 + whole[20:], b"no gzip"):
            path.write_bytes(content)
            with pytest.raises(DataError, match=r"claims\.jsonl\.gz:\d+.*cut off or damaged"):
                checking_examples(path)

    def test_a_claim_has_its_evidence_as_one_text(self, tmp_path: Path) -> None:
        row = {
            "claim": "A lies.",
            "evidence": ["A\tA lies.", "A\tIt is.", "No."],
            "label": "supported",
            "source": "fm2",
        }
        path = tmp_path / "claims.jsonl"
        path.write_text(json.dumps(row), "utf-8")
        assert checking_examples(path) == [CheckingExample("A lies.", "[A] A lies. It is. No.", "supported", "fm2")]
        path.write_text(json.dumps({**row, "label": "true"}), "utf-8")
        with pytest.raises(DataError, match=r"claims\.jsonl:1.*not a valid claim .*true"):
            checking_examples(path)

    def test_a_title_stands_once_before_its_sentences(self) -> None:
        assert evidence_text(["A\tOne.", "A\tTwo.", "B\tThree.", "A\tFour."]) == "[A] One. Two. [B] Three. [A] Four."

    def test_distractors_are_near_and_do_not_hold_the_answer(self, tiny: Tiny, tmp_path: Path) -> None:
        from pytrace.models.encoders.encoder import OnnxEncoder

        asked = questions()[0]
        encoder = OnnxEncoder(tiny.path, threads=1)
        pool = [*PAGES, f"[Copy] {PAGES[0]}"]
        distractors = find_distractors(pool, [asked.question], encoder, tmp_path / "near.npz")
        drawn = distractors.draw(asked, 3, random.Random(0))
        assert len({*drawn}) == 3
        assert not any("Quill" in text for text in drawn)
        assert len(distractors.near[key_of(asked.question)]) == 12
        # The second call takes what the first one found, whatever the order of the texts.
        before = (tmp_path / "near.npz").stat().st_mtime_ns
        again = find_distractors(pool[::-1], [asked.question], encoder, tmp_path / "near.npz")
        assert (tmp_path / "near.npz").stat().st_mtime_ns == before
        assert again.draw(asked, 3, random.Random(0)) == drawn

    def test_an_answer_without_its_passage_is_none(self) -> None:
        asked = questions()[0]
        near = Distractors(PAGES, {key_of(asked.question): np.arange(1, 6, dtype=np.int32)})
        rng = random.Random(1)
        for _ in range(200):
            drawn = draw(asked, near, rng)
            there = any("Quill" in passage for passage in drawn.passages)
            assert drawn.kind == ("span" if there else "none")
            assert bool(drawn.spans) == there
            assert all(drawn.passages[span.passage][span.start : span.end] == "Quill" for span in drawn.spans)

    def test_passages_of_the_question_support_its_answer_and_distractors_do_not(self) -> None:
        asked = questions()[0]
        near = Distractors(PAGES, {key_of(asked.question): np.arange(1, 6, dtype=np.int32)})
        several = 0
        for seed in range(100):
            drawn = draw(asked, near, random.Random(seed))
            if not drawn.supports:  # nothing to tell apart
                assert drawn.passages == asked.passages
                continue
            several += 1
            assert drawn.supports == tuple((n, text in asked.passages) for n, text in enumerate(drawn.passages))
            unanswered = draw(asked._replace(kind="none", spans=()), near, random.Random(seed))
            assert not any(right for _, right in unanswered.supports)
        assert several > 30


FILMS = [
    f"[Film {letter}] Film {letter} is a {year} {land} drama film directed by {name}."
    for letter, year, land, name in zip("ABCD", (1931, 1950, 1950, 1964), ("French", "French", "Danish", "Danish"), ("Ann Hay", "Bo Lind", "Cy Poe", "Di Orr"), strict=True)
]  # fmt: skip
MAKERS = [
    f"[{name}] {name} (born {born}) is a {land} film director and writer. {name} was born in {town}."
    for name, born, land, town in zip(("Ann Hay", "Bo Lind", "Cy Poe", "Di Orr"), ("3 May 1901", "July 9, 1905", "1910", "2 May 1901"), ("French", "Danish", "Danish", "French"), ("Lyon, France", "Odense", "Aarhus", "Nice"), strict=True)
]  # fmt: skip


class TestMadeQuestions:
    def test_facts_are_read_where_they_stand(self) -> None:
        found = {fact.relation: fact.value for fact in facts_of(MAKERS[1])}
        assert found == {
            "birth": "July 9, 1905", "nationality": "Danish", "occupation": "film director", "birthplace": "Odense",
        }  # fmt: skip
        assert {fact.relation: fact.value for fact in facts_of(FILMS[0])}["director"] == "Ann Hay"
        lived = "[Jo Bay] Jo Bay (6 October 1817 – 6 March 1895) was a Swedish count, the son of Al Bay."
        assert {fact.relation: fact.value for fact in facts_of(lived)} == {
            "birth": "6 October 1817", "death": "6 March 1895", "nationality": "Swedish", "occupation": "count", "father": "Al Bay",
        }  # fmt: skip
        assert not list(facts_of("No title. Jo Bay (born 1817) was a count."))
        song = "[Song A] Song A is a song by the Fall. It was released by July. It was released through Hay Records."
        assert {fact.relation: fact.value for fact in facts_of(song)} == {"label": "Hay Records"}

    def test_answers_are_right(self) -> None:
        made = made_questions([*FILMS, *MAKERS], 300, seed=0)
        assert made == made_questions([*FILMS, *MAKERS], 300, seed=0)
        years = {"Ann Hay": 1901.4, "Bo Lind": 1905, "Cy Poe": 1910, "Di Orr": 1901.3}
        films = {"Film A": "Ann Hay", "Film B": "Bo Lind", "Film C": "Cy Poe", "Film D": "Di Orr"}
        kinds = set()
        for row in made:
            kinds.add(row.kind)
            assert {row.passages[span.passage][span.start : span.end] for span in row.spans} == {*row.answers} - {
                "yes",
                "no",
            }
            named = [name for name in years if name in row.question]
            if len(named) == 2 and row.kind == "span":
                first = any(word in row.question for word in ("first", "earlier", "older"))
                assert row.answers == ((min if first else max)(named, key=years.__getitem__),)
            if "whose director is younger" in row.question:
                two = [film for film in films if film in row.question]
                assert row.answers == (max(two, key=lambda film: years[films[film]]),)
            if "year" in row.question:
                assert row.answers[0].isdigit()
                assert len(row.answers[0]) == 4
            if "nationality" in row.question and row.kind != "span" and len(named) == 2:
                french = [name in ("Ann Hay", "Di Orr") for name in named]
                assert row.kind == ("yes" if french[0] == french[1] else "no")
        assert kinds == {"span", "yes", "no"}

    def test_three_facts_make_a_chain(self) -> None:
        towns = [
            f"[{town}] {town} is a town located in {land}."
            for town, land in (("Odense", "Funen"), ("Aarhus", "Jutland"))
        ]
        made = made_questions([*FILMS, *MAKERS, *towns], 400, seed=0)
        three = [row for row in made if len(row.passages) == 3]
        assert three
        for row in three:
            film = next(page for page in FILMS if page in row.passages)
            maker = next(page for page in MAKERS if page in row.passages)
            assert film[1 : film.index("]")] in row.question
            assert maker[1 : maker.index("]")] in film
            assert row.answers[0] in ("Funen", "Jutland")

    def test_no_passages_make_no_questions(self) -> None:
        assert made_questions([], 10, seed=0) == []
        assert made_questions(["[A] Nothing here."], 10, seed=0) == []


class TestComposedQuestions:
    def test_a_name_becomes_what_another_question_asks_for(self) -> None:
        press = "[Small Wings] Small Wings was published by Dunlin Press."
        founded = "[Dunlin Press] The press was founded in 1871 in Marl."
        rows = [
            ReadingExample("Who published Small Wings?", (press,), (Span(0, 43, 55),), "span", (), "qed"),
            ReadingExample("When was the Dunlin Press founded?", (founded,), (Span(0, 40, 44),), "span", (), "qed"),
            ReadingExample("What is a Dunlin Press-work?", (founded,), (Span(0, 40, 44),), "span", (), "qed"),
        ]
        assert press[43:55] == "Dunlin Press"
        (made,) = composed_questions(rows, 10, seed=0)
        assert made.question == "When was the one who published Small Wings founded?"
        assert {*made.passages} == {press, founded}
        assert made.answers == ("1871",)

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ("What is the capital of Marl?", "the capital of Marl"),
            ("Who was the first director of the Gannet Station?", "the first director of the Gannet Station"),
            ("Where was Ada Foah born?", "the place where Ada Foah was born"),
            ("Who did Ada marry?", None),
            ("Who was released on bail?", None),
            ("", None),
        ],
    )
    def test_only_questions_of_known_forms_are_turned(self, question: str, words: str | None) -> None:
        assert described(question) == words


class TestMadeStatements:
    def test_labels_are_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = made_statements([*FILMS, *MAKERS], 400, seed=0)
        monkeypatch.setattr(made_statements_module, "_REWORDED", 0)  # dates are known by their form here
        made = made_statements([*FILMS, *MAKERS], 400, seed=0)
        assert plain != made
        assert made == made_statements([*FILMS, *MAKERS], 400, seed=0)
        assert {row.label for row in made} == {"supported", "refuted", "not_enough_info"}
        births = {page[1 : page.index("]")]: page.split("(born ")[1].split(")")[0] for page in MAKERS}
        checked = 0
        for row in made:
            if not row.evidence.startswith("["):
                continue  # some texts have no title
            title = row.evidence[1 : row.evidence.index("]")]
            stated = re.fullmatch(r"(.+) (was|was not) born on (.+)\.", row.claim)
            if stated and stated[1] in births and title == stated[1]:
                right = (births[title] == stated[3]) == (stated[2] == "was")
                assert row.label == ("supported" if right else "refuted"), row
                checked += 1
            directed = re.fullmatch(r"(.+) directed (.+)\.", row.claim)
            if directed and title == directed[2] and "directed by" in row.evidence:
                assert row.label == ("supported" if f"by {directed[1]}." in row.evidence else "refuted"), row
                checked += 1
            if row.label == "not_enough_info":
                assert title not in row.claim or not any(fact.value in row.claim for fact in facts_of(row.evidence))
        assert checked > 10

    def test_most_claims_have_a_false_twin_about_the_same_text(self) -> None:
        by_text: dict[str, set[str]] = defaultdict(set)
        made = made_statements([*FILMS, *MAKERS], 200, seed=0)
        for row in made:
            by_text[row.evidence].add(row.label)
        paired = [row for row in made if by_text[row.evidence] >= {"supported", "refuted"}]
        assert len(paired) > len(made) / 2

    @pytest.mark.parametrize(
        ("sentence", "right", "wrong"),
        [
            ("Bo Lind painted Maren Ostrey.", "Maren Ostrey was painted by Bo Lind.", "Bo Lind was painted by Maren Ostrey."),
            ("Holm Abbey was restored by Ivo Brandt.", "Ivo Brandt restored Holm Abbey.", "Holm Abbey restored Ivo Brandt."),
            ("Ida Holm is the mother of Per Lind.", "Per Lind is a child of Ida Holm.", "Ida Holm is a child of Per Lind."),
            ("Bo Lind lived near Holm.", "Bo Lind lived near Holm.", "Holm lived near Bo Lind."),
        ],
    )  # fmt: skip
    def test_who_did_what_is_turned_round(self, sentence: str, right: str, wrong: str) -> None:
        assert (right, wrong) in [pair[1:] for pair in turned(sentence)]

    def test_nothing_is_turned_where_either_order_is_true(self) -> None:
        for sentence in ("Bo Lind and Ivo Brandt met.", "He lived in Holm.", "Bo Lind met Ida Lind."):
            assert list(turned(sentence)) == []

    @pytest.mark.parametrize("date", ["3 May 1901", "July 9, 1905", "May 1901", "1910"])
    def test_a_near_date_is_another_one(self, date: str) -> None:
        found = {near_date(date, random.Random(seed)) for seed in range(200)}
        assert date not in found
        assert len(found) > 5
        assert all(re.fullmatch(r"[A-Za-z0-9, ]+", one) for one in found)

    def test_claims_are_denied_in_their_own_tense(self) -> None:
        for claim, wanted in (
            ("Ann Hay wrote it.", "Ann Hay did not write it."), ("Film A stars Bo Lind.", "Film A does not star Bo Lind."),
            ("1910 is the year.", "1910 is not the year."), ("Nothing.", None),
        ):  # fmt: skip
            assert negated(claim) == wanted

    def test_answers_become_claims(self) -> None:
        near = Distractors(PAGES, {key_of(row.question): np.arange(12, dtype=np.int32) for row in questions()})
        rows = [
            row._replace(passages=(f"{row.passages[0]} Then came Maren Ostrey to the lake.",)) for row in questions()
        ]
        made = made_answers(rows, 10, near, seed=0)
        by_question = {row.question: row for row in rows}
        assert {row.label for row in made} == {"supported", "refuted", "not_enough_info"}
        for claim in made:
            row = next(row for question, row in by_question.items() if claim.claim.startswith(question))
            said = claim.claim.removeprefix(row.question).strip()
            assert (said in row.answers) == (claim.label != "refuted")
            assert (said in claim.evidence) == (claim.label != "not_enough_info")


class TestMadeLinks:
    def test_steps_of_triples_follow_the_chain(self) -> None:
        made = made_triple_links([*FILMS, *MAKERS], 60, seed=0)
        assert made == made_triple_links([*FILMS, *MAKERS], 60, seed=0)
        directors = {page[1:7]: page.rsplit("by ", 1)[1][:-1] for page in FILMS}
        for step in made:
            film = next(title for title in directors if title in step.question)
            if step.right and step.candidate and not step.so_far:
                assert step.candidate.startswith(f"<{film}; ")
                assert directors[film] in step.candidate
            elif step.right and step.candidate:
                assert step.candidate.startswith(f"<{directors[film]}; ")
            elif step.right:
                assert len(step.so_far) == 2
        assert {(step.candidate is None, step.right) for step in made} == {
            (a, b) for a in (True, False) for b in (True, False)
        }

    def test_passages_that_are_right_are_of_the_question(self) -> None:
        rows = [
            ReadingExample(
                f"Which river is at {person}'s birthplace?",
                (f"[{town}] {town} lies on {river}.", page),
                (),
                "none",
                (),
                "2wiki",
            )
            for person, town, river, page in zip(PEOPLE, TOWNS, RIVERS, PAGES, strict=True)
        ]
        near = Distractors(PAGES, {key_of(row.question): np.arange(12, dtype=np.int32) for row in rows})
        made = passage_links(rows, 100, near, seed=0)
        assert len(made) == 100
        own = {row.question: set(row.passages) for row in rows}
        for step in made:
            said = {*step.so_far, *([step.candidate] if step.candidate else [])}
            assert step.right == (said == own[step.question] if step.candidate is None else said <= own[step.question])


ALL_OUTPUTS = [name for names in OUTPUTS.values() for name in names]


def task(base: Path, settings: EdgeSettings = SETTINGS) -> tuple[Any, EdgeTask]:
    network = edge_network(base, seed=0)
    rows = questions()
    near = Distractors(PAGES, {key_of(row.question): np.arange(12, dtype=np.int32) for row in rows})
    claims = [CheckingExample(f"{person} was a baker.", page, "supported" if "baker" in page else "not_enough_info", "fm2") for person, page in zip(PEOPLE, PAGES, strict=True)]  # fmt: skip
    return network, EdgeTask(
        network,
        Packer(base / "tokenizer.json"),
        [(row, 2) for row in rows[2:]],
        claims[2:],
        [*rows[:2], *claims[:2]],
        near,
        settings,
    )


class TestContrasts:
    @pytest.mark.parametrize(
        ("sentence", "twins"),
        [
            ("She divorced a Greek.", {"She married a Greek."}),
            ("He is a rich man.", {"He is a poor man."}),
            ("It has an urban air.", {"It has a rural air."}),
            ("He wrote a play.", {"He would not write a play.", "He did not write a play.", "He didn't write a play.", "He refused to write a play.", "He was unable to write a play."}),
            ("What was written by him sank.", set()),
            ("It was never urban.", set()),
            ("It has urban and urban parts.", set()),
        ],
    )  # fmt: skip
    def test_a_twin_says_something_else(self, sentence: str, twins: set[str]) -> None:
        found = [pair for seed in range(20) for pair in contrasts(sentence, sentence, random.Random(seed))]
        made = {twin for kind, _, twin in found if kind == "denied" or "play" not in sentence}
        assert made <= twins
        assert bool(made) == bool(twins)
        assert all(right == sentence for _, right, _ in found)

    def test_no_word_comes_in_that_the_passage_has(self) -> None:
        assert list(contrasts("The rich man lies.", "The rich man lies. He has a poor son.", random.Random(0))) == []

    def test_who_was_not_alone_is_said_to_have_been(self) -> None:
        said = "Holm is a saga that was directed by Ann Hay and Ivo Brandt."
        made = [pair for seed in range(30) for pair in contrasts(said, said, random.Random(seed))]
        assert {kind for kind, *_ in made} == {"alone"}
        assert ("alone", "Holm was directed by Ann Hay, among others.", "Nobody but Ann Hay directed Holm.") in made

    @pytest.mark.parametrize(
        ("claim", "forms"),
        [
            ("On June 2, 1963.", {"On June 2, 1963.", "On 2 June 1963.", "On June 2nd, 1963.", "On 2nd June 1963.", "On the 2nd of June 1963."}),
            ("On 11 May 963.", {"On 11 May 963.", "On May 11, 963.", "On May 11th, 963.", "On 11th May 963.", "On the 11th of May 963."}),
            ("It has 71 rooms.", {"It has 71 rooms.", "It has seventy-one rooms."}),
            ("It has twelve rooms.", {"It has twelve rooms.", "It has 12 rooms."}),
            ("It has 9,400 rooms.", {"It has 9,400 rooms.", "It has 9400 rooms."}),
            ("It is 40 km long.", {"It is 40 km long.", "It is 40 kilometres long.", "It is 40 kilometers long."}),
            ("He bought it.", {"He bought it.", "He purchased it."}),
            ("In 1963 Film One won 2.5 points.", {"In 1963 Film One won 2.5 points."}),
        ],
    )  # fmt: skip
    def test_other_words_say_the_same(self, claim: str, forms: set[str]) -> None:
        found = {reworded(claim, random.Random(seed)) for seed in range(300)}
        framed = {frame.format(form) for form in forms for frame in ("According to the text, {}", "The page says that {}", "It is stated that {}")}  # fmt: skip
        lowered = {frame.format(form[:1].lower() + form[1:]) for form in forms for frame in ("According to the text, {}", "The page says that {}", "It is stated that {}")}  # fmt: skip
        assert forms <= found <= forms | framed | lowered

    def test_supported_claims_of_data_sets_get_false_twins(self) -> None:
        rows = [
            CheckingExample("The store opened in 1903.", "[Store] The store opened in 1903.", "supported", "fm2", ("It is.",)),
            CheckingExample("The store closed in 1903.", "[Store] The store opened in 1903.", "refuted", "fm2"),
        ]  # fmt: skip
        (twin,) = claim_twins(rows, seed=0)
        assert twin.label == "refuted"
        assert twin.claim not in {row.claim for row in rows[:1]}
        assert (twin.evidence, twin.others) == (rows[0].evidence, rows[0].others)

    def test_claims_are_read_among_other_sentences_of_their_page(self) -> None:
        row = CheckingExample("It lies.", "[A] It lies.", "supported", "fm2", ("It is.", "It was."))
        near = Distractors([], {})
        texts = {draw(row, near, random.Random(seed)).passages[0] for seed in range(60)}
        assert {"[A] It lies.", "It is. [A] It lies.", "It was. [A] It lies. It is."} <= texts
        assert all("[A] It lies." in text for text in texts)


class TestTraining:
    def test_it_says_which_questions_its_steps_have_read(self, base: Path) -> None:
        _, made = task(base)
        assert made.epoch_steps > 2
        read = [made.questions(steps) for steps in range(made.epoch_steps + 2)]
        assert read[0] == set()
        assert read[1] < read[made.epoch_steps]
        assert all(before <= after for before, after in itertools.pairwise(read))
        claims = {row.claim for row in made.others if isinstance(row, CheckingExample)}
        assert claims
        asked = {row.question for row in questions()[2:]}
        assert read[made.epoch_steps] == read[made.epoch_steps + 1] == asked | claims

    def test_questions_that_only_links_were_made_of_are_read_too(self, base: Path) -> None:
        network, _ = task(base)
        links = [
            LinkingExample(f"Who is {source}?", (), PAGES[0], True, source) for source in ("musique", "made links")
        ]
        made = EdgeTask(network, Packer(base / "tokenizer.json"), [], links, [], Distractors(PAGES, {}), SETTINGS)
        assert made.questions(made.epoch_steps) == {"Who is musique?"}

    def test_questions_that_only_claims_were_made_of_are_read_too(self, base: Path) -> None:
        network, _ = task(base)
        claims = [
            CheckingExample("Who is Ada? Ada", PAGES[0], "supported", "made answers", question="Who is Ada?"),
            CheckingExample("Ada is.", PAGES[0], "supported", "made statements"),
        ]
        made = EdgeTask(network, Packer(base / "tokenizer.json"), [], claims, [], Distractors(PAGES, {}), SETTINGS)
        assert made.questions(made.epoch_steps) == {"Who is Ada?"}

    def test_two_trainings_never_write_into_one_folder(self, base: Path, tmp_path: Path) -> None:
        network, work = task(base)
        (tmp_path / "lock").touch()
        with take_writer_lock(tmp_path / "lock", "it"), pytest.raises(LockedError, match="written by another process"):
            learn(network, work, SETTINGS, Length(steps=1), threads=1, directory=tmp_path)
        assert not checkpoints(tmp_path)
        learn(network, work, SETTINGS, Length(steps=1), threads=1, directory=tmp_path)

    def test_it_learns(self, base: Path) -> None:
        network, work = task(base)
        done = learn(network, work, SETTINGS, Length(steps=250), threads=1)
        # Few examples are soon known by heart, so that what is held out is read best before the end; the last weights stay.
        assert min(loss for _, loss in done.judged) < 2 / 3 * done.judged[0][1]
        run, packer = runner(network), Packer(base / "tokenizer.json")
        rows = questions()
        readings = read(run, packer, [row.question for row in rows], [row.passages for row in rows])
        right = sum(reading.spans[0].text == row.answers[0] for reading, row in zip(readings, rows, strict=True))
        assert right >= 10
        assert all(KINDS[int(np.argmax(reading.kinds))] == "span" for reading in readings)

    def test_which_passages_support_the_answer_is_learned_at_their_separators(
        self, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network, work = task(base)
        drawn = next(one for seed in range(50) if len((one := draw(questions()[0], work.distractors, random.Random(seed))).supports) > 1)  # fmt: skip
        window, spans = work._packed(drawn)

        def loss(sign: float) -> float:
            links = torch.zeros(1, len(window.ids), 2)
            for passage, right in drawn.supports:
                links[0, window.separators()[passage], 0] = sign if right else -sign
            zeros = torch.zeros(1, len(window.ids))
            read = (zeros, zeros, torch.zeros(1, len(window.ids), 2 * PAIR_WIDTH), torch.zeros(1, len(KINDS)), links)
            monkeypatch.setattr(network, "read", lambda **_: read)
            return float(work._loss([drawn], [(window, spans)]))

        assert loss(9.0) < loss(0.0) < loss(-9.0)

    def test_a_killed_training_continues_to_the_bit(self, base: Path, tmp_path: Path) -> None:
        settings = EdgeSettings(batch=512, checkpoint_steps=7, judge_steps=10)
        network, work = task(base, settings)
        learn(network, work, settings, Length(steps=24), threads=1)
        whole = weights(network)
        network, work = task(base, settings)
        with pytest.raises(Killed):
            learn(network, work, settings, Length(steps=24), threads=1, directory=tmp_path, tell=killer(17))
        assert checkpoints(tmp_path)[-1][0] == 14
        network, work = task(base, settings)
        learn(network, work, settings, Length(steps=24), threads=1, directory=tmp_path, resume=True)
        assert equal(whole, weights(network))

    def test_claims_and_questions_train_transformers_of_their_own(self, base: Path) -> None:
        for claims in (True, False):
            network, work = task(base)
            before = {name: weight.clone() for name, weight in network.state_dict().items()}
            if claims:
                work = task(base, msgspec.structs.replace(SETTINGS, questions=0.0))[1]
            else:
                work.others = []
            work = EdgeTask(network, work.packer, work.reading, work.others, [], work.distractors, work.settings)
            learn(network, work, work.settings, Length(steps=3), threads=1)
            after = network.state_dict()
            changed = {name.split(".")[0] for name, weight in before.items() if not torch.equal(weight, after[name])}
            heads = {name.split(".")[1] for name, weight in before.items() if name.startswith("heads") and not torch.equal(weight, after[name])}  # fmt: skip
            assert changed == {"checker" if claims else "trunk", "heads"}
            assert heads == ({"check"} if claims else {"read", "pair", "kind", "link"})

    def test_word_embeddings_and_frozen_layers_stay(self, base: Path) -> None:
        network = edge_network(base, seed=0, frozen_layers=1)
        open_ones = {name for name, weight in network.named_parameters() if weight.requires_grad}
        assert not any("word_embeddings" in name or "layer.0" in name for name in open_ones)
        assert {name for name in open_ones if name.startswith("heads")} == {
            f"heads.{head}.{part}" for head in ("read", "pair", "kind", "check", "link") for part in ("weight", "bias")
        }

    def test_a_folder_without_weights_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}", "utf-8")
        with pytest.raises(ModelFileError, match=r"does not hold the weights of a BERT"):
            edge_network(tmp_path, seed=0)


def runner(network: Any) -> Any:
    network.eval()

    def run(outputs: Sequence[str], packed: PackedInput) -> Logits:
        with torch.no_grad():
            found = network(**{name: torch.from_numpy(array) for name, array in packed.arrays.items()})
        return tuple(found[ALL_OUTPUTS.index(name)].numpy() for name in outputs)

    return run


class TestReading:
    def test_the_best_spans_are_found_across_windows(self, packer: Packer) -> None:
        long = f"[Ada] {'the river lies by the river. ' * 150}Ada was born in Quill."
        word = int(packer.tokens("quill").ids[0])

        def run(_: Sequence[str], packed: PackedInput) -> Logits:
            ids = packed.ids[None]
            score = np.where(ids == word, 9.0, 0.0).astype(np.float32)
            kinds = np.zeros((len(ids), 4), np.float32)
            kinds[:, 3] = np.where((ids == word).any(1), 0, 9)
            kinds[:, 0] = 9 - kinds[:, 3]
            return outputs(score, score, kinds)

        windows = packer.windows("Where?", [PAGES[1], long])
        assert len(windows) > 2
        assert all(one.ids[place] == one.ids[-1] for one in windows for place in one.separators().values())
        readings = read(run, packer, ["Where?", "Where?"], [[PAGES[1], long], []])
        best = readings[0].spans[0]
        assert (best.text, best.passage) == ("Quill", 1)
        assert 8.5 < best.score <= 9  # the end is nearly sure, given the start
        assert long[best.start : best.end] == "Quill"
        assert KINDS[int(np.argmax(readings[0].kinds))] == "span"
        assert readings[1].spans == ()

    def test_an_end_is_chosen_with_its_start_in_view(self, packer: Packer) -> None:
        page = "[Ada] Ada lies in Ghana. Brack lies in Quill."
        first, last = (int(packer.tokens(word).ids[0]) for word in ("ada", "brack"))
        ends = {int(packer.tokens(word).ids[0]): place for place, word in enumerate(("lies", "quill"))}

        def run(_: Sequence[str], packed: PackedInput) -> Logits:
            ids = packed.ids[None]
            start = np.where(np.isin(ids, (first, last)), 5.0, 0.0).astype(np.float32)
            pair = np.zeros((*ids.shape, 2 * PAIR_WIDTH), np.float32)
            for place, (begin, end) in enumerate(zip((first, last), ends, strict=True)):
                pair[ids == begin, place] = 100
                pair[ids == end, PAIR_WIDTH + place] = 1
            return outputs(start, np.zeros_like(start), np.zeros((len(ids), 4), np.float32), pair)

        (reading,) = read(run, packer, ["Where?"], [[page]], top=3)
        found = [span.text for span in reading.spans]
        assert "Brack lies in Quill" in found
        assert any(text.startswith("Ada") and text.endswith("lies") for text in found)

    def test_no_span_crosses_passages_or_is_too_long(self, packer: Packer) -> None:
        def run(_: Sequence[str], packed: PackedInput) -> Logits:
            rng = np.random.default_rng(0)
            start, end = rng.normal(size=(2, 1, len(packed.ids))).astype(np.float32)
            return outputs(start, end, np.zeros((len(start), 4), np.float32))

        (reading,) = read(run, packer, ["Where?"], [PAGES], top=50)
        assert len(reading.spans) > 20
        for span in reading.spans:
            assert PAGES[span.passage][span.start : span.end] == span.text
            assert len(packer.tokens(span.text).ids) <= 30
        assert [span.score for span in reading.spans] == sorted((span.score for span in reading.spans), reverse=True)


def outputs(
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    kinds: NDArray[np.float32],
    pair: NDArray[np.float32] | None = None,
) -> Logits:
    """Return what a network gives for reading, with zeros for pairs that are not given."""
    if pair is None:
        pair = np.zeros((*start.shape, 2 * PAIR_WIDTH), np.float32)
    return start, end, pair, kinds


class TestCommand:
    def test_it_trains_resumes_and_writes_a_model_that_reads_alike(
        self, base: Path, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(edge_run, "_NEIGHBOR_ENCODER", str(tiny.path))
        monkeypatch.setattr(edge_run, "_HELD_OUT", {"hops": 1, "one": 2, "claims": 2})
        data = tmp_path / "data"
        data.mkdir()
        rows = [{"question": one.question, "passages": one.passages, "spans": one.spans, "kind": one.kind, "other_passages": [], "source": one.source} for one in questions()]  # fmt: skip
        claims = [{"claim": f"{person} was a baker.", "evidence": [page], "label": "supported" if "baker" in page else "refuted", "source": "fm2"} for person, page in zip(PEOPLE, PAGES, strict=True)]  # fmt: skip
        pages = [
            {"title": town, "text": f"{town} lies on the river {river}."}
            for town, river in zip(TOWNS, RIVERS, strict=True)
        ]
        for name, given in (("reading", rows), ("claims", claims), ("passages", pages)):
            with gzip.open(data / f"{name}.jsonl.gz", "wt", encoding="utf-8") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in given)
        out = tmp_path / "out"
        command = ["train", "edge", "--data", str(data), "--out", str(out), "--base", str(base), "--threads", "1", "--set", "batch=512", "--set", "made_statements=20"]  # fmt: skip
        ended = CliRunner().invoke(program, [*command, "--steps", "12"])
        assert ended.exit_code == 0, ended.output
        report = json.loads((out / "report.json").read_text("utf-8"))
        assert report["steps"] == 12
        assert report["held_out"] == 4
        kept_back = [row["question"] for row in rows if is_kept_back("squad2", row["question"], 0.2)]
        assert kept_back
        assert report["data"]["squad2"] in {
            10 - len(kept_back) + held for held in range(3)
        }  # some of them may be held out
        refused = CliRunner().invoke(program, [*command, "--steps", "12"])
        assert refused.exit_code != 0
        assert isinstance(refused.exception, InputError)
        assert "holds a training; continue with --resume" in str(refused.exception)
        again = CliRunner().invoke(program, [*command, "--steps", "12", "--resume", "--json"])
        assert again.exit_code == 0, again.output
        hashes = load_question_hashes(out / "model" / "model.onnx", remedy="")
        assert hashes is not None
        read = [row for row in rows if question_hash(row["question"]) in hashes]
        assert read
        assert not {row["question"] for row in read} & {*kept_back}
        stated = {row["claim"] for row in claims if question_hash(row["claim"]) in hashes}
        # And no made ones: the questions were not read, and made claims are not listed.
        assert len(hashes) == len({row["question"] for row in read} | stated)
        (tmp_path / "other" / "model").mkdir(parents=True)
        (tmp_path / "other" / "model" / "weights.py").touch()
        other = [str(tmp_path / "other") if each == str(out) else each for each in command]
        refused = CliRunner().invoke(program, [*other, "--steps", "12"])
        assert "was not written by a training" in str(refused.exception)
        assert (tmp_path / "other" / "model" / "weights.py").exists()
        # Files of an earlier model are removed with it.
        (out / "model" / "reading.json").touch()
        (out / "model.new").mkdir()
        (out / "model.new" / "check.onnx").touch()
        again = CliRunner().invoke(program, [*command, "--steps", "12", "--resume"])
        assert again.exit_code == 0, again.output
        assert not (out / "model" / "reading.json").exists()
        assert not (out / "model.new").exists()
        assert report["sha256"]["model.onnx"] == hashlib.sha256((out / "model" / "model.onnx").read_bytes()).hexdigest()

    def test_the_mean_of_two_trainings_has_their_shares(self, base: Path) -> None:
        network, earlier = edge_network(base, seed=0), edge_network(base, seed=1).state_dict()
        own = {name: weight.clone() for name, weight in network.state_dict().items()}
        mix_weights(network, earlier, 0.25)
        for name, weight in network.state_dict().items():
            torch.testing.assert_close(weight, 0.75 * own[name] + 0.25 * earlier[name])
        mix_weights(network, own, 1.0)
        assert equal(network.state_dict(), own)

    def test_what_is_written_gives_nearly_what_the_network_gives(self, base: Path, tmp_path: Path) -> None:
        network = edge_network(base, seed=0)
        packer = Packer(base / "tokenizer.json")
        save_float(network, base, tmp_path / "float")
        again = edge_network(tmp_path / "float", seed=1)
        assert all(torch.equal(one, again.state_dict()[name]) for name, one in network.state_dict().items())
        windows = [*packer.windows("Where was Ada born?", PAGES[:3]), *packer.windows("Where?", PAGES[:1])]
        inputs = {name: torch.from_numpy(array) for name, array in padded(windows, packer.pad_id).items()}
        with torch.no_grad():
            together = [*network.eval().read(**inputs), network.check(**inputs)]
        for row, window in enumerate(windows):
            wanted = runner(network)(ALL_OUTPUTS, window)
            # In a batch, padding changes nothing.
            for one, other in zip(together, wanted, strict=True):
                mine = one[row].numpy()
                assert (
                    np.abs((mine if mine.ndim == 1 and len(mine) < 5 else mine[: len(window.ids)]) - other[0]).max()
                    < 1e-5
                )
            for quantize, allowed in ((False, 1e-5), (True, 0.2)):
                export_edge(network, base / "tokenizer.json", tmp_path / str(quantize), quantize=quantize)
                graphs = [
                    onnxruntime.InferenceSession(str(tmp_path / str(quantize) / name)) for name in (GRAPH, CHECK_GRAPH)
                ]
                found = [value for graph in graphs for value in graph.run(None, window.arrays)]
                for one, other in zip(found, wanted, strict=True):
                    assert one.shape == other.shape
                    assert np.abs(one - other).max() < allowed
        model = EdgeModel(tmp_path / "True")
        (reading,) = model.read(["Where was Ada born?"], [PAGES[:3]])
        assert all(PAGES[span.passage][span.start : span.end] == span.text for span in reading.spans)
        labels = model.check(["Ada was a baker.", "Ada."], [PAGES[0], f"{PAGES[1]} " * 200])
        assert labels.shape == (2, 3)
        assert np.allclose(labels.sum(1), 1)
        with pytest.raises(InputError, match="candidate 1 has no text"):
            model.link(["Where?"] * 2, [[], []], [None, ""])
        links = model.link(["Where?"] * 3, [[], PAGES[:1], PAGES[:2] * 50], [PAGES[1], None, PAGES[3] * 90])
        assert links.shape == (3,)
        assert ((links > 0) & (links < 1)).all()
        for name in (GRAPH, CHECK_GRAPH, SHARED):
            sizes = [(tmp_path / str(quantize) / name).stat().st_size for quantize in (False, True)]
            assert sizes[1] < sizes[0]

    def test_a_model_that_fails_or_gives_nan_is_an_error(self, base: Path, tmp_path: Path) -> None:
        network = edge_network(base, seed=0)
        with torch.no_grad():
            network.heads["read"].bias.fill_(math.nan)
        export_edge(network, base / "tokenizer.json", tmp_path)
        model = EdgeModel(tmp_path)
        with pytest.raises(ModelError, match=r"model\.onnx returned NaN or infinity"):
            model.read(["Where?"], [PAGES[:1]])
        with pytest.raises(ModelError, match=r"model\.onnx failed on an input of 2 tokens"):
            model._run(("start",), PackedInput(*np.full((3, 2), 1 << 30, np.int32), np.zeros((2, 2), np.int32)))

    def test_a_folder_without_the_model_is_refused(self, base: Path, tiny: Tiny, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match=r"has no model\.onnx; give a folder that 'pytrace train edge' wrote"):
            EdgeModel(tmp_path)
        (tmp_path / "model.onnx").write_bytes((tiny.path / "onnx" / "model.onnx").read_bytes())
        (tmp_path / "tokenizer.json").write_bytes((tiny.path / "tokenizer.json").read_bytes())
        with pytest.raises(ModelFileError, match=r"has no check\.onnx"):
            EdgeModel(tmp_path)
        for name in (CHECK_GRAPH, SHARED):
            (tmp_path / name).write_bytes((tiny.path / "onnx" / "model.onnx").read_bytes())
        model = EdgeModel(tmp_path)
        with pytest.raises(
            ModelFileError, match=r"expects inputs .* instead of input_ids, token_type_ids; use a model written by"
        ):
            model.read(["Where?"], [PAGES[:1]])
        with pytest.raises(ModelFileError, match=r"expects inputs .* instead of input_ids, token_type_ids"):
            model.check(["Where?"], PAGES[:1])
        export_edge(edge_network(base, seed=0), base / "tokenizer.json", tmp_path)
        whole = (tmp_path / SHARED).read_bytes()
        (tmp_path / SHARED).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ModelFileError, match="is no ONNX graph that can be loaded"):
            EdgeModel(tmp_path).check(["Where?"], PAGES[:1])
        (tmp_path / "model.onnx").write_bytes(b"no graph")
        with pytest.raises(ModelFileError, match="is no ONNX graph that can be loaded"):
            EdgeModel(tmp_path).read(["Where?"], [PAGES[:1]])

    def test_another_training_is_not_continued(self, base: Path, tmp_path: Path) -> None:
        network, work = task(base)
        learn(network, work, SETTINGS, Length(steps=2), threads=1, directory=tmp_path)
        network, work = task(base)
        with pytest.raises(InputError, match=r"learning_rate"):
            learn(network, work, EdgeSettings(batch=512, learning_rate=1e-3), Length(steps=2), threads=1, directory=tmp_path, resume=True)  # fmt: skip
