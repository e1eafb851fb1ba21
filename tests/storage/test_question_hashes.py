"""Lists of the questions that weights were learned from: the same for any spelling, bound to their weights, and true of what ships."""

from __future__ import annotations

import gzip
import json
import unicodedata
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.claims import weights as claim_weights
from pytrace.certify.claims.evaluation import read_labelled
from pytrace.errors import DataError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.models.edge.edge_model import shipped_edge
from pytrace.reader.spans import weights as span_weights
from pytrace.retrieval.hops import weights as hop_weights
from pytrace.storage.question_hashes import (
    HASH_DIGITS,
    QuestionHashes,
    hashes_path,
    load_question_hashes,
    question_hash,
    save_question_hashes,
)

# A dotless i is the only letter that differs from its capital when case is folded.
TEXTS = st.text(st.characters(exclude_characters="ı"))
SPACES = st.text(" \t\n\u00a0\u2003", min_size=1)
SHIPPED = {
    "hops": Path(hop_weights.__file__).with_name("weights.json"),
    "spans": Path(span_weights.__file__).with_name("weights.json"),
    "claims": Path(claim_weights.__file__).with_name("weights.json"),
}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.json"
    path.write_text('{"a": 1}')
    return path


@given(st.lists(TEXTS, max_size=6), SPACES, SPACES)
def test_case_white_space_and_form_do_not_change_a_hash(words: list[str], one: str, other: str) -> None:
    expected = question_hash(" ".join(words))
    assert len(expected) == HASH_DIGITS
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert question_hash(unicodedata.normalize(form, one + other.join(words))) == expected
    text = one.join(words) + other
    assert {question_hash(change(text)) for change in (str.upper, str.lower, str.title)} == {expected}


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=2, max_size=6, unique=True))
def test_other_words_or_another_order_of_them_are_another_question(words: list[str]) -> None:
    assert question_hash(" ".join(words)) != question_hash(" ".join(reversed(words)))
    assert question_hash(" ".join(words)) != question_hash(" ".join(words[1:]))


@given(st.lists(TEXTS, max_size=8), st.randoms())
def test_a_list_is_the_same_for_any_order_and_repetition(
    tmp_path_factory: pytest.TempPathFactory, questions: list[str], random: Random
) -> None:
    path = tmp_path_factory.mktemp("list") / "weights.json"
    path.write_text("{}")
    written = save_question_hashes(path, questions, made_by="us").read_bytes()
    shuffled = [*questions, *questions]
    random.shuffle(shuffled)
    assert save_question_hashes(path, shuffled, made_by="us").read_bytes() == written
    assert load_question_hashes(path) == {*map(question_hash, questions)}


def test_a_lone_surrogate_is_hashed(weights: Path) -> None:
    save_question_hashes(weights, ["Where is \ud800?"], made_by="us")
    assert load_question_hashes(weights) == {question_hash("where is \ud800?")}


def test_a_list_has_those_of_the_weights_before_and_no_question(weights: Path) -> None:
    path = save_question_hashes(weights, ["Who is Ada?"], made_by="us", earlier=["00" * 8])
    assert load_question_hashes(weights) == {"00" * 8, question_hash("Who is Ada?")}
    assert "Ada" not in path.read_text()
    assert path == hashes_path(weights) == weights.with_name("weights.questions.json")


def test_without_a_list_nothing_is_known(weights: Path) -> None:
    assert load_question_hashes(weights) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "truncated"),
        ("[1]", "Expected `object`"),
        ('{"sha256": "", "made_by": ""}', "missing required field `hashes`"),
        ('{"sha256": "", "made_by": "", "hashes": ["12"]}', "matching regex"),
        ('{"sha256": "", "made_by": "", "hashes": [1]}', "Expected `str`"),
        ('{"sha256": "", "made_by": "", "hashes": [], "more": 1}', "unknown field `more`"),
        ("\ufeff\ud800", "not UTF-8"),
    ],
)
def test_a_malformed_list_is_one_sentence_with_its_path_and_a_remedy(weights: Path, content: str, reason: str) -> None:
    path = hashes_path(weights)
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(DataError, match="is not a list of question hashes") as told:
        load_question_hashes(weights, remedy="install pytrace again")
    assert str(told.value).startswith(f"{path}: ")
    assert reason in str(told.value)
    assert str(told.value).endswith("; install pytrace again")


def test_a_list_of_other_weights_or_a_changed_one_is_told(weights: Path) -> None:
    path = save_question_hashes(weights, ["Who?"], made_by="us")
    listed = json.loads(path.read_text())
    path.write_text(json.dumps({**listed, "hashes": [*listed["hashes"], "ff" * 8]}))
    with pytest.raises(DataError, match=r"is damaged or the list of other weights than weights\.json"):
        load_question_hashes(weights)
    path.write_text(json.dumps(listed))
    assert load_question_hashes(weights) == {question_hash("Who?")}
    weights.write_text('{"a": 2}')
    with pytest.raises(DataError, match=f"{path}: is damaged or the list of other weights .*learn the weights again"):
        load_question_hashes(weights)


class TestShippedLists:
    """After weights are learned again by their bench with --write, both files are replaced."""

    @pytest.mark.parametrize("name", SHIPPED)
    def test_each_shipped_file_of_weights_has_its_list_with_the_command(self, name: str) -> None:
        listed = msgspec.json.decode(hashes_path(SHIPPED[name]).read_bytes(), type=QuestionHashes)
        assert load_question_hashes(SHIPPED[name]) == {*listed.hashes}
        assert list(listed.hashes) == sorted({*listed.hashes})
        assert listed.made_by.startswith("python -m benches.")
        made_by = json.loads(SHIPPED[name].read_bytes()).get("made_by", listed.made_by)
        assert listed.made_by == made_by

    def test_every_file_of_weights_in_the_package_is_among_them(self) -> None:
        package = Path(hop_weights.__file__).parents[2]
        assert {*package.rglob("weights.json")} == {*SHIPPED.values()}

    @pytest.mark.data
    def test_they_have_the_questions_of_their_sets_and_no_others(self, shared_data: Path) -> None:
        def of(path: str) -> set[str]:
            return {question_hash(each.question) for each in read_questions(shared_data / path)}

        def claims(name: str) -> set[str]:
            return {question_hash(row.text) for row in read_labelled(shared_data / "claims" / f"{name}-dev.jsonl")}

        folders = [of(f"open/{name}/questions.jsonl") for name in ("hotpotqa-train", "musique-train", "2wiki")]
        adversarial = of("multihop/advhotpot10-dev.jsonl")
        several = set().union(*folders)
        one_hop = of("open/cranfield/questions.jsonl") | claims("wice")
        samples = of("multihop/ircot-hotpotqa.jsonl") | of("multihop/2wiki-sample.jsonl")
        with gzip.open(shared_data / "train" / "reading.jsonl.gz", "rt", encoding="utf-8") as stream:
            training = {question_hash(json.loads(line)["question"]) for line in stream}
        # The search, the answer extractor and the small model learned from training questions, and from made ones.
        edge = shipped_edge()
        assert edge is not None
        beside = load_question_hashes(edge / span_weights.BESIDE_EDGE, remedy="")
        for learned in (hop_weights.learned_questions(), beside, span_weights.learned_questions()):
            assert learned
            assert learned <= training or learned == span_weights.learned_questions()
            assert not learned & (several | adversarial | one_hop | samples)
        assert claim_weights.learned_claims() == claims("wice") | claims("fever-symmetric")
