"""What is learned, as tokens: the tokenizer, the tokens that the loss counts, and batches."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer

from pytrace.errors import InputError
from pytrace.training import encoding, network
from pytrace.training.encoding import Piece, TrainingText
from tests.small_trainings import NAMES, TEXTS

torch = network.train_package("torch")


@pytest.fixture(scope="module")
def words() -> encoding.ByteTokenizer:
    return encoding.train_tokenizer((one.text for one in TEXTS), size=400)


@pytest.fixture(scope="module")
def encoded(words: encoding.ByteTokenizer) -> encoding.EncodedTexts:
    return encoding.encode_texts(TEXTS, words, context=128)


def contains(tokens: list[int], part: list[int]) -> bool:
    return any(tokens[at : at + len(part)] == part for at in range(len(tokens)))


@pytest.mark.parametrize("name", [*NAMES, "zsófia the 3rd", "o'brian", "1908", "y-ray"])
def test_a_name_has_the_same_tokens_in_a_question_and_in_a_query(words: encoding.ByteTokenizer, name: str) -> None:
    alone = words.encode(name)
    assert contains(words.encode(f"who is {name}, then?"), alone)
    assert contains(words.encode(f"where {{ entity:/{name}/ relation"), alone)


def test_words_of_the_query_language_are_single_tokens(words: encoding.ByteTokenizer) -> None:
    for word in (" select", " where", " entity", ":/", " relation"):
        assert len(words.encode(word)) == 1


def test_digits_never_join(words: encoding.ByteTokenizer) -> None:
    many = encoding.train_tokenizer([f"Incorrect query 1: {number} 1908" for number in range(99)], size=500)
    assert len(many.encode(" 1908")) == 5
    assert words.decode(words.encode("1908 x")) == "1908 x"


def test_a_text_that_spells_the_control_token_does_not_hold_it(words: encoding.ByteTokenizer) -> None:
    tokens = words.encode(f"who is {encoding.END}?")
    assert words.end not in tokens
    assert words.decode(tokens) == f"who is {encoding.END}?"


def test_the_same_texts_give_the_same_tokenizer(words: encoding.ByteTokenizer, tmp_path: Path) -> None:
    again = encoding.train_tokenizer((one.text for one in TEXTS), size=400)
    assert (again.tokens, again.merges) == (words.tokens, words.merges)
    words.save(tmp_path / "tokenizer.json")
    read = encoding.ByteTokenizer(Tokenizer.from_file(str(tmp_path / "tokenizer.json")), end=words.end)
    assert (read.tokens, read.merges) == (words.tokens, words.merges)
    assert read.encode("who is ada?") == words.encode("who is ada?")
    assert not list(tmp_path.glob("*.new"))


def test_a_tokenizer_never_has_more_tokens_than_asked_for() -> None:
    for size in (258, 270, 300, 1000):
        assert encoding.train_tokenizer((one.text for one in TEXTS), size=size).size <= size


def test_hostile_texts_round_trip(words: encoding.ByteTokenizer) -> None:
    assert words.decode(words.encode("a\ud800b")) == "a?b"
    assert words.encode("") == []
    assert words.decode(words.encode("\x00\u200b\U0001f600 \t\r\n")) == "\x00\u200b\U0001f600 \t\r\n"
    assert len(words.encode("ab " * 20_000)) <= 60_000


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_a_tokenizer_needs_texts(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no text"):
        encoding.train_tokenizer(texts, size=300)


def test_only_tokens_of_queries_and_the_end_are_learned(words: encoding.ByteTokenizer) -> None:
    pieces = (
        Piece("Question: a?\nCorrect query:", learned=False), Piece(" <a; b; ?>\n", learned=True),
        Piece("Incorrect query 1:", learned=False), Piece(" <?; b; a>\n", learned=True),
    )  # fmt: skip
    [one] = encoding.encode_texts([TrainingText(pieces)], words, context=128).texts
    learned = [int(token) for token, is_so in zip(one.tokens, one.learned, strict=True) if is_so]
    assert words.decode(learned[:-1]) == " <a; b; ?>\n <?; b; a>\n"
    assert learned[-1] == words.end
    prompt = words.encode(pieces[0].text)
    assert one.tokens[: len(prompt)].tolist() == prompt


def test_texts_that_do_not_fit_are_counted(words: encoding.ByteTokenizer) -> None:
    long = TrainingText((Piece("x" * 500, learned=True),))
    found = encoding.encode_texts([long, TEXTS[0]], words, context=128)
    assert (len(found.texts), found.too_long) == (1, 1)
    assert found.tokens == len(found.texts[0].tokens)
    with pytest.raises(InputError, match="all 1 training texts are longer than the context of 128 tokens"):
        encoding.encode_texts([long], words, context=128)
    with pytest.raises(InputError, match="no training text"):
        encoding.encode_texts([], words, context=128)


def test_the_fingerprint_tells_texts_apart(words: encoding.ByteTokenizer) -> None:
    def of(*texts: TrainingText) -> str:
        return encoding.encode_texts(texts, words, context=128).fingerprint

    unlearned = TrainingText(tuple(msgspec.structs.replace(piece, learned=False) for piece in TEXTS[0].pieces))
    variants = [of(*TEXTS[:2]), of(TEXTS[1], TEXTS[0]), of(TEXTS[0]), of(unlearned), of(*TEXTS[:3])]
    assert len(set(variants)) == len(variants)
    assert of(*TEXTS) == of(*TEXTS)


def test_every_text_is_in_one_batch_and_no_batch_is_too_large() -> None:
    chance = random.Random(0)
    lengths = [chance.randint(2, 60) for _ in range(300)]
    texts = [encoding.EncodedText(np.zeros(n, np.int32), np.ones(n, np.bool_)) for n in lengths]
    first, second, other = (
        encoding.batches(texts, tokens=200, seed=seed, epoch=epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))
    )
    for dealt in (first, second, other):
        assert sorted(itertools.chain.from_iterable(batch.tolist() for batch in dealt)) == list(range(300))
        assert max(len(batch) * max(lengths[index] for index in batch) for batch in dealt) <= 200
    assert [batch.tolist() for batch in first] != [batch.tolist() for batch in second]
    assert [batch.tolist() for batch in first] != [batch.tolist() for batch in other]
    padding = sum(len(batch) * max(lengths[index] for index in batch) for batch in first) / sum(lengths)
    assert padding < 1.4


def test_a_text_longer_than_a_batch_is_one_by_itself() -> None:
    texts = [encoding.EncodedText(np.zeros(n, np.int32), np.ones(n, np.bool_)) for n in (3, 500, 3)]
    assert sorted(len(batch) for batch in encoding.batches(texts, tokens=10, seed=0, epoch=0)) == [1, 2]


def test_batches_go_on_where_they_were() -> None:
    texts = [encoding.EncodedText(np.zeros(n, np.int32), np.ones(n, np.bool_)) for n in range(2, 22)]

    def dealt(skipped: int, count: int) -> list[list[int]]:
        found = encoding.endless(texts, tokens=40, seed=0, skipped=skipped)
        return [batch.tolist() for batch in itertools.islice(found, count)]

    whole = dealt(0, 40)
    assert all(dealt(skipped, 40 - skipped) == whole[skipped:] for skipped in (1, 7, 15, 39))
