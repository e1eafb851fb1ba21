"""The trainer: tokens, batches, training that repeats and goes on, export that the engine reads, adapters and scores."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.errors import DeviceUnavailableError, InputError, ModelError, ModelFileError, StoreError
from pytrace.models import registry
from pytrace.models.llama_runtime import LlamaRuntime
from pytrace.queries import GeneratedQuery, SparqlQuery, TripletQuery
from pytrace.records import KnowledgeQuery
from pytrace.training import adapters, checkpoints, encoding, export, network, scoring, tokenizer, trainer
from pytrace.training.records import Piece, QueryExample, TrainingText
from pytrace.training.settings import Length, TrainingSettings

torch = network.torch_module()

SMALL = TrainingSettings(width=32, layers=2, heads=4, inner=48, context=128, batch=256, learning_rate=3e-3)
NAMES = ("tamar of guria", "ewa of lund", "mary-ann pfunn", "ødegård", "k7 of accra")
RECIPE = export.Recipe(
    form="sparql", template=1, wrong=False, data="", seed=0, base="", parameters=0, pytrace="0", settings={}
)


def text(name: str, relation: str = "parents") -> TrainingText:
    given = Piece(f"Question: who is {name}'s {relation}?\nCorrect query:", learned=False)
    return TrainingText(
        (given, Piece(f" select ?x where {{ entity:/{name}/ relation:/{relation}/ ?x }}\n", learned=True))
    )


# No name may stand in many texts: it would be taken for a word of the query language.
PEOPLE = [
    f"{first} {last}"
    for first in ("ada", "kwame", "zita", "jørn", "li")
    for last in ("foah", "bergen", "osei", "ek", "w")
]
TEXTS = [text(name, relation) for name in (*NAMES, *PEOPLE[::2]) for relation in ("parents", "gender", "capital city")]


@pytest.fixture(scope="module")
def words() -> tokenizer.ByteTokenizer:
    return tokenizer.train_tokenizer((one.text for one in TEXTS), size=400)


@pytest.fixture(scope="module")
def encoded(words: tokenizer.ByteTokenizer) -> encoding.EncodedTexts:
    return encoding.encode_texts(TEXTS, words, context=128)


def fresh(words: tokenizer.ByteTokenizer, settings: TrainingSettings = SMALL) -> Any:
    return network.new_network(settings, size=words.size, end=words.end)


def weights(net: Any) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------------------------------------------- tokenizer


def contains(tokens: list[int], part: list[int]) -> bool:
    return any(tokens[at : at + len(part)] == part for at in range(len(tokens)))


@pytest.mark.parametrize("name", [*NAMES, "zsófia the 3rd", "o'brian", "1908", "y-ray"])
def test_a_name_has_the_same_tokens_in_a_question_and_in_a_query(words: tokenizer.ByteTokenizer, name: str) -> None:
    alone = words.encode(name)
    assert contains(words.encode(f"who is {name}, then?"), alone)
    assert contains(words.encode(f"where {{ entity:/{name}/ relation"), alone)


def test_words_of_the_query_language_are_single_tokens(words: tokenizer.ByteTokenizer) -> None:
    for word in (" select", " where", " entity", ":/", " relation"):
        assert len(words.encode(word)) == 1


def test_digits_never_join(words: tokenizer.ByteTokenizer) -> None:
    many = tokenizer.train_tokenizer([f"Incorrect query 1: {number} 1908" for number in range(99)], size=500)
    assert len(many.encode(" 1908")) == 5
    assert words.decode(words.encode("1908 x")) == "1908 x"


def test_a_text_that_spells_the_control_token_does_not_hold_it(words: tokenizer.ByteTokenizer) -> None:
    tokens = words.encode(f"who is {tokenizer.END}?")
    assert words.end not in tokens
    assert words.decode(tokens) == f"who is {tokenizer.END}?"


def test_the_same_texts_give_the_same_tokenizer(words: tokenizer.ByteTokenizer, tmp_path: Path) -> None:
    again = tokenizer.train_tokenizer((one.text for one in TEXTS), size=400)
    assert (again.tokens, again.merges) == (words.tokens, words.merges)
    words.save(tmp_path / "tokenizer.json")
    read = tokenizer.ByteTokenizer.load(tmp_path / "tokenizer.json")
    assert (read.tokens, read.merges, read.end) == (words.tokens, words.merges, words.end)
    assert not list(tmp_path.glob("*.new"))


def test_a_tokenizer_never_has_more_tokens_than_asked_for() -> None:
    for size in (258, 270, 300, 1000):
        assert tokenizer.train_tokenizer((one.text for one in TEXTS), size=size).size <= size


def test_hostile_texts_round_trip(words: tokenizer.ByteTokenizer) -> None:
    assert words.decode(words.encode("a\ud800b")) == "a?b"
    assert words.encode("") == []
    assert words.decode(words.encode("\x00\u200b\U0001f600 \t\r\n")) == "\x00\u200b\U0001f600 \t\r\n"
    assert len(words.encode("ab " * 20_000)) <= 60_000


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_a_tokenizer_needs_texts(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no text"):
        tokenizer.train_tokenizer(texts, size=300)


def test_a_tokenizer_must_hold_all_bytes() -> None:
    with pytest.raises(InputError, match="at least 258"):
        tokenizer.train_tokenizer(["ada"], size=100)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": null}'])
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="no tokenizer"):
        tokenizer.ByteTokenizer.load(path)
    with pytest.raises(ModelFileError, match="cannot be read"):
        tokenizer.ByteTokenizer.load(tmp_path / "missing.json")


# ----------------------------------------------------------------------------------------------------- encoding


def test_only_tokens_of_queries_and_the_end_are_learned(words: tokenizer.ByteTokenizer) -> None:
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


def test_texts_that_do_not_fit_are_counted(words: tokenizer.ByteTokenizer) -> None:
    long = TrainingText((Piece("x" * 500, learned=True),))
    found = encoding.encode_texts([long, TEXTS[0]], words, context=128)
    assert (len(found.texts), found.too_long) == (1, 1)
    assert found.tokens == len(found.texts[0].tokens)
    with pytest.raises(InputError, match="all 1 training texts are longer than the context of 128 tokens"):
        encoding.encode_texts([long], words, context=128)
    with pytest.raises(InputError, match="no training text"):
        encoding.encode_texts([], words, context=128)


def test_the_fingerprint_tells_texts_apart(words: tokenizer.ByteTokenizer) -> None:
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


# ------------------------------------------------------------------------------------------------------ network


def test_a_network_is_the_same_for_the_same_seed(words: tokenizer.ByteTokenizer) -> None:
    state = torch.random.get_rng_state()
    one, same = fresh(words), fresh(words)
    assert torch.equal(state, torch.random.get_rng_state())
    other = fresh(words, msgspec.structs.replace(SMALL, seed=1))
    assert equal(weights(one), weights(same))
    assert not equal(weights(one), weights(other))
    assert {parameter.dtype for parameter in one.parameters()} == {torch.float32}


def test_the_count_of_parameters_is_known_before() -> None:
    with pytest.raises(InputError, match=r"have ([\d,]+) parameters, more than 15,000,000") as caught:
        network.new_network(TrainingSettings(width=512, layers=6, heads=8, inner=1408), size=1024, end=0)
    assert "make width" in str(caught.value)
    largest = TrainingSettings(width=384, layers=8, heads=8, inner=1024)
    assert network.parameter_count(network.new_network(largest, size=1024, end=0)) <= 15_000_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 100, "heads": 8}, "multiple of 16"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"batch": 0}, "batch is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_settings_that_build_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TrainingSettings(**options)


@pytest.mark.parametrize(
    "options", [{}, {"epochs": 1.0, "steps": 2}, {"steps": 0}, {"minutes": float("inf")}, {"epochs": -1.0}]
)
def test_a_length_is_one_positive_number(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="length of training"):
        Length(**options)


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceUnavailableError, match="no GPU"):
        network.check_device("cuda")
    with pytest.raises(InputError, match="no device"):
        network.check_device("tpu")


# ----------------------------------------------------------------------------------------------------- training


def test_training_learns_and_repeats(words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    def run(settings: TrainingSettings) -> tuple[trainer.Training, dict[str, Any]]:
        net = fresh(words, settings)
        return trainer.train(net, encoded, settings, Length(steps=60), threads=1), weights(net)

    (one, first), (same, second) = run(SMALL), run(SMALL)
    assert one.losses == same.losses
    assert equal(first, second)
    assert one.losses[-1] < 0.6 * one.losses[0]
    other, _ = run(msgspec.structs.replace(SMALL, seed=1))
    assert other.losses != one.losses


def test_the_loss_is_the_mean_over_learned_tokens_whatever_stands_beside(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts
) -> None:
    net = fresh(words)
    whole = trainer.train(
        net, encoded, msgspec.structs.replace(SMALL, batch=1 << 16), Length(steps=1), threads=1
    ).losses[0]
    net = fresh(words)
    total = count = 0.0
    for one in encoded.texts:
        with torch.no_grad():
            logits = net(torch.from_numpy(one.tokens.astype(np.int64))[None]).logits[0]
        gold = torch.log_softmax(logits[:-1], -1)[torch.arange(len(one.tokens) - 1), one.tokens[1:].astype(np.int64)]
        learned = torch.from_numpy(one.learned[1:])
        total -= float(gold[learned].sum())
        count += int(learned.sum())
    assert whole == pytest.approx(total / count, rel=1e-5)


class Killed(Exception):
    pass


def killer(step: int) -> Any:
    def tell(progress: trainer.Progress) -> None:
        if progress.step == step:
            raise Killed

    return tell


@pytest.mark.parametrize("step", [7, 10, 23])
def test_a_killed_training_goes_on_as_if_nothing_had_been(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path, step: int
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=5)
    whole = fresh(words)
    done = trainer.train(whole, encoded, settings, Length(steps=30), threads=1)
    with pytest.raises(Killed):
        trainer.train(
            fresh(words), encoded, settings, Length(steps=30), threads=1, directory=tmp_path, tell=killer(step)
        )
    net = fresh(words, msgspec.structs.replace(SMALL, seed=5))  # whose own weights must not matter
    resumed = trainer.train(net, encoded, settings, Length(steps=30), threads=1, directory=tmp_path, resume=True)
    assert resumed.losses == done.losses
    assert resumed.tokens == done.tokens
    assert equal(weights(net), weights(whole))
    again = trainer.train(fresh(words), encoded, settings, Length(steps=30), threads=1, directory=tmp_path, resume=True)
    assert again.losses == done.losses


def test_no_more_than_two_checkpoints_stay(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=2)
    trainer.train(fresh(words), encoded, settings, Length(steps=9), threads=1, directory=tmp_path)
    assert [step for step, _ in checkpoints.checkpoints(tmp_path)] == [8, 9]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_training_is_not_begun_over_another_ones_checkpoints(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    trainer.train(fresh(words), encoded, SMALL, Length(steps=1), threads=1, directory=tmp_path)
    with pytest.raises(InputError, match="--resume"):
        trainer.train(fresh(words), encoded, SMALL, Length(steps=1), threads=1, directory=tmp_path)
    with pytest.raises(InputError, match="holds no checkpoint"):
        trainer.train(
            fresh(words), encoded, SMALL, Length(steps=1), threads=1, directory=tmp_path / "other", resume=True
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": msgspec.structs.replace(SMALL, learning_rate=0.5)}, "learning_rate 0.003, not 0.5"),
        ({"settings": msgspec.structs.replace(SMALL, seed=3)}, "seed 0, not 3"),
        ({"length": Length(steps=9)}, "length in steps 2, not 9"),
        ({"length": Length(minutes=1.0)}, "length in minutes None, not 1.0"),
        ({"texts": TEXTS[:-1]}, "texts '"),
        ({"recipe": {"data": "b"}}, "data 'a', not 'b'"),
    ],
)
def test_a_training_goes_on_only_with_what_it_began_with(
    words: tokenizer.ByteTokenizer, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"settings": SMALL, "length": Length(steps=2), "texts": TEXTS, "recipe": {"data": "a"}}

    def run(options: dict[str, Any], *, resume: bool) -> None:
        texts = encoding.encode_texts(options["texts"], words, context=128)
        trainer.train(
            fresh(words), texts, options["settings"], options["length"], threads=1, directory=tmp_path,
            recipe=options["recipe"], resume=resume,
        )  # fmt: skip

    run(given, resume=False)
    with pytest.raises(InputError, match=said):
        run({**given, **change}, resume=True)
    run({**given, "settings": msgspec.structs.replace(SMALL, checkpoint_steps=7, weights="f16")}, resume=True)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=4)
    whole = fresh(words)
    trainer.train(whole, encoded, settings, Length(steps=12), threads=1)
    with pytest.raises(Killed):
        trainer.train(fresh(words), encoded, settings, Length(steps=12), threads=1, directory=tmp_path, tell=killer(9))
    (_, older), (_, newest) = checkpoints.checkpoints(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-1000])
    net = fresh(words)
    trainer.train(net, encoded, settings, Length(steps=12), threads=1, directory=tmp_path, resume=True)
    assert equal(weights(net), weights(whole))
    for _, path in checkpoints.checkpoints(tmp_path):
        path.write_bytes(b"")
    assert older.name == "step-00000004.pt"
    with pytest.raises(StoreError, match=r"no checkpoint in .* can be read"):
        trainer.train(net, encoded, settings, Length(steps=12), threads=1, directory=tmp_path, resume=True)


def test_a_full_disk_leaves_the_last_checkpoint(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=3)
    written = checkpoints.replace_file
    calls = itertools.count()

    def full(path: Path, content: bytes) -> None:
        if next(calls) == 1:
            path.with_name(f"{path.name}.new").write_bytes(content[:100])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written(path, content)

    monkeypatch.setattr(checkpoints, "replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.train(fresh(words), encoded, settings, Length(steps=9), threads=1, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003.pt"]
    net, whole = fresh(words), fresh(words)
    trainer.train(net, encoded, settings, Length(steps=9), threads=1, directory=tmp_path, resume=True)
    trainer.train(whole, encoded, settings, Length(steps=9), threads=1)
    assert equal(weights(net), weights(whole))


def test_a_loss_that_is_no_number_ends_the_training(
    words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    net = fresh(words)

    def spoil(progress: trainer.Progress) -> None:
        if progress.step == 4:
            with torch.no_grad():
                net.lm_head.weight[0, 0] = float("nan")

    settings = msgspec.structs.replace(SMALL, checkpoint_steps=2)
    with pytest.raises(ModelError, match=r"loss of step 5 is nan .* lower learning_rate, which is 0.003"):
        trainer.train(net, encoded, settings, Length(steps=9), threads=1, directory=tmp_path, tell=spoil)
    assert [step for step, _ in checkpoints.checkpoints(tmp_path)] == [2, 4]


def test_minutes_end_a_training(words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    told: list[trainer.Progress] = []
    done = trainer.train(fresh(words), encoded, SMALL, Length(minutes=0.5 / 60), threads=1, tell=told.append)
    assert done.steps >= 1
    assert 0.5 <= done.seconds < 20
    assert told[-1].share == 1
    assert [one.share for one in told] == sorted(one.share for one in told)


def test_epochs_count_passes(words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    first = len(encoding.batches(encoded.texts, tokens=SMALL.batch, seed=0, epoch=0))
    done = trainer.train(fresh(words), encoded, SMALL, Length(epochs=1.0), threads=1)
    assert (done.steps, done.epochs, done.tokens) == (first, 1.0, encoded.tokens)


def test_the_rate_rises_and_falls(words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    settings = msgspec.structs.replace(SMALL, warm_up=0.1)
    run = trainer._Run(torch, fresh(words), encoded, settings, Length(steps=10), "cpu", {})
    rates = [run.rate(share / 1000) / settings.learning_rate for share in range(1001)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[100] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)


# ------------------------------------------------------------------------------------------------------- export


def engine_logits(path: Path, tokens: list[int]) -> Any:
    runtime = LlamaRuntime(path, cells=256, sequences=1, batch=256, threads=1, float32_cache=True)
    count, sequence = len(tokens), np.zeros(1, np.int32)
    assert runtime.decode(
        np.array(tokens, np.int32), np.arange(count, dtype=np.int32), np.ones(count, np.int32),
        np.full(count, sequence.ctypes.data, np.uint64), np.ones(count, np.int8),
    )  # fmt: skip
    found = np.stack([runtime.logits(place).copy() for place in range(count)])
    runtime.close()
    return found


def torch_logits(net: Any, tokens: list[int]) -> Any:
    with torch.no_grad():
        return net(torch.tensor([tokens])).logits[0].numpy()


@pytest.fixture(scope="module")
def trained(words: tokenizer.ByteTokenizer, encoded: encoding.EncodedTexts) -> Any:
    net = fresh(words)
    trainer.train(net, encoded, SMALL, Length(steps=120), threads=1)
    return net


@pytest.mark.parametrize(("kind", "near"), [("f32", 1e-3), ("f16", 0.05), ("q8_0", 1.0)])
def test_the_engine_computes_what_torch_does(
    words: tokenizer.ByteTokenizer, trained: Any, tmp_path: Path, kind: Any, near: float
) -> None:
    path = tmp_path / "model.gguf"
    export.write_gguf(path, trained, export.tokenizer_keys(words), RECIPE, weights=kind)
    tokens = words.encode(TEXTS[4].text)
    expected, found = torch_logits(trained, tokens), engine_logits(path, tokens)
    assert expected.std() > 1
    assert np.abs(expected - found).max() < near
    assert export.read_recipe(path) == RECIPE
    assert [one.name for one in tmp_path.iterdir()] == ["model.gguf"]


def odd_texts(count: int) -> list[str]:
    chance = random.Random(0)
    ranges = (
        (0x20, 0x7E), (0x20, 0x7E), (0x9, 0xD), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F),
        (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xACFF), (0xFE00, 0xFE0F), (0x10400, 0x1044F),
        (0x1D400, 0x1D4FF), (0x1F300, 0x1F64F),
    )  # fmt: skip
    words = ("'s", "'ll", "  ", " \n", "\n", "don't", " 12", "3/4", ":/", " ?x", tokenizer.END, "relation:/", "\ud800")
    return [
        "".join(
            chance.choice(words) if chance.random() < 0.2 else chr(chance.randint(*chance.choice(ranges)))
            for _ in range(chance.randint(0, 40))
        )
        for _ in range(count)
    ]


def test_the_engine_splits_a_thousand_odd_texts_alike(
    words: tokenizer.ByteTokenizer, trained: Any, tmp_path: Path
) -> None:
    export.write_gguf(tmp_path / "model.gguf", trained, export.tokenizer_keys(words), RECIPE)
    runtime = LlamaRuntime(tmp_path / "model.gguf", cells=32, sequences=1, batch=32, threads=1)
    for one in odd_texts(1_000):
        assert runtime.tokenize(one) == words.encode(one), ascii(one)
    assert (runtime.eos, runtime.adds_bos, runtime.chat_template) == (words.end, False, None)


def test_shared_keys_and_odd_sizes_are_exported_too(tmp_path: Path, words: tokenizer.ByteTokenizer) -> None:
    transformers = network.transformers_module()
    torch.manual_seed(0)
    configuration = transformers.LlamaConfig(
        vocab_size=words.size, hidden_size=48, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 5_000.0},
    )  # fmt: skip
    net = transformers.LlamaForCausalLM(configuration).eval()
    tokens = words.encode("who is ada?")
    for kind in ("f32", "q8_0"):
        export.write_gguf(tmp_path / "m.gguf", net, export.tokenizer_keys(words), RECIPE, weights=kind)  # type: ignore[arg-type]
        assert np.abs(torch_logits(net, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < (
            1e-3 if kind == "f32" else 0.5
        )


def test_what_the_engine_would_compute_otherwise_is_not_exported(trained: Any, words: Any, tmp_path: Path) -> None:
    before = trained.config.rope_parameters
    trained.config.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    try:
        with pytest.raises(InputError, match="'linear'"):
            export.write_gguf(tmp_path / "m.gguf", trained, export.tokenizer_keys(words), RECIPE)
    finally:
        trained.config.rope_parameters = before
    assert not list(tmp_path.iterdir())


def test_a_failed_export_leaves_the_file_before(
    trained: Any, words: tokenizer.ByteTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    export.write_gguf(path, trained, export.tokenizer_keys(words), RECIPE)
    before = path.read_bytes()

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "flush", full)
    with pytest.raises(OSError, match="No space left"):
        export.write_gguf(path, trained, export.tokenizer_keys(words), msgspec.structs.replace(RECIPE, seed=9))
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.gguf"]


def test_a_file_without_a_recipe_is_no_query_generator(random_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "cut.gguf").write_bytes(random_gguf.read_bytes()[:5_000])
    for path in (random_gguf, tmp_path / "text.gguf", tmp_path / "cut.gguf", tmp_path / "missing.gguf"):
        with pytest.raises(InputError, match="query generator"):
            export.read_recipe(path)


# ----------------------------------------------------------------------------------------------------- adapters

ADAPTED = TrainingSettings(rank=4, batch=256, context=128, learning_rate=1e-2, checkpoint_steps=4)


def test_a_given_gguf_learns_by_adapters_and_is_exported_with_its_own_tokenizer(
    random_gguf: Path, tmp_path: Path
) -> None:
    base = adapters.open_base(str(random_gguf))
    encoded = encoding.encode_texts(TEXTS, base.tokenizer, context=128)
    before = weights(base.network)
    net = adapters.add_adapters(base.network, ADAPTED)
    done = trainer.train(net, encoded, ADAPTED, Length(steps=40), threads=1)
    assert done.loss < done.losses[0]
    assert done.trained < done.parameters / 2
    merged = adapters.merged(net)
    after = weights(merged)
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {name for name in after if "_proj" in name}
    export.write_gguf(tmp_path / "m.gguf", merged, base.keys, RECIPE)
    tokens = base.tokenizer.encode(TEXTS[0].text)
    assert np.abs(torch_logits(merged, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < 1e-3
    given, written = (
        LlamaRuntime(path, cells=32, sequences=1, batch=32, threads=1) for path in (random_gguf, tmp_path / "m.gguf")
    )
    assert written.chat_template is None
    assert [written.tokenize(one) for one in odd_texts(50)] == [given.tokenize(one) for one in odd_texts(50)]
    assert (written.eos, written.bos, written.adds_bos) == (given.eos, given.bos, given.adds_bos)


def test_adapters_go_on_after_a_kill(random_gguf: Path, tmp_path: Path) -> None:
    def run(*, resume: bool, **options: Any) -> dict[str, Any]:
        base = adapters.open_base(str(random_gguf))
        encoded = encoding.encode_texts(TEXTS, base.tokenizer, context=128)
        net = adapters.add_adapters(base.network, ADAPTED)
        trainer.train(net, encoded, ADAPTED, Length(steps=9), threads=1, resume=resume, **options)
        return weights(adapters.merged(net))

    whole = run(resume=False)
    with pytest.raises(Killed):
        run(resume=False, directory=tmp_path, tell=killer(6))
    [(_, path)] = checkpoints.checkpoints(tmp_path)
    assert path.stat().st_size < random_gguf.stat().st_size  # adapters only, not the base
    assert equal(run(resume=True, directory=tmp_path), whole)


def saved_base(words: tokenizer.ByteTokenizer, net: Any, directory: Path) -> Path:
    net.save_pretrained(directory)
    words.save(directory / "tokenizer.json")
    return directory


def test_a_hugging_face_directory_is_a_base_too(words: tokenizer.ByteTokenizer, trained: Any, tmp_path: Path) -> None:
    directory = saved_base(words, trained, tmp_path / "base")
    base = adapters.open_base(str(directory))
    assert equal(weights(base.network), weights(trained))
    assert (base.tokenizer.end, base.tokenizer.begin, base.tokenizer.size) == (words.end, None, words.size)
    export.write_gguf(tmp_path / "m.gguf", base.network, base.keys, RECIPE)
    runtime = LlamaRuntime(tmp_path / "m.gguf", cells=32, sequences=1, batch=32, threads=1)
    for one in odd_texts(100):
        assert runtime.tokenize(one) == base.tokenizer.encode(one) == words.encode(one), ascii(one)


def test_a_base_whose_texts_the_engine_would_split_otherwise_is_refused(
    words: tokenizer.ByteTokenizer, trained: Any, tmp_path: Path
) -> None:
    directory = saved_base(words, trained, tmp_path / "base")
    path = directory / "tokenizer.json"
    described = msgspec.json.decode(path.read_bytes())
    for change in (
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {**described["pre_tokenizer"], "add_prefix_space": True}},
    ):
        path.write_bytes(msgspec.json.encode({**described, **change}))
        with pytest.raises(InputError, match="convert the base to GGUF"):
            adapters.open_base(str(directory))
    path.write_bytes(b"{")
    with pytest.raises(ModelFileError, match="tokenizer cannot be read"):
        adapters.open_base(str(directory))
    (directory / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"cannot be read|architecture"):
        adapters.open_base(str(directory))


def test_a_base_that_is_no_model_is_refused(tmp_path: Path, random_gguf: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(random_gguf.read_bytes()[:5_000])
    (tmp_path / "text.gguf").write_text("no model")
    for name in ("cut.gguf", "text.gguf", "missing.gguf"):
        with pytest.raises(ModelFileError):
            adapters.open_base(str(tmp_path / name))


@pytest.mark.models
def test_the_real_tiny_model_learns_by_adapters(tiny_models: dict[registry.Role, Path], tmp_path: Path) -> None:
    base = adapters.open_base(str(tiny_models["language-model"]))
    encoded = encoding.encode_texts(TEXTS[:4], base.tokenizer, context=128)
    net = adapters.add_adapters(base.network, msgspec.structs.replace(ADAPTED, learning_rate=1e-3))
    done = trainer.train(net, encoded, msgspec.structs.replace(ADAPTED, learning_rate=1e-3), Length(steps=4))
    assert done.losses[-1] < done.losses[0]
    merged = adapters.merged(net)
    export.write_gguf(tmp_path / "m.gguf", merged, base.keys, RECIPE)
    tokens = base.tokenizer.encode(TEXTS[0].text)
    assert np.abs(torch_logits(merged, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < 1e-2


# ------------------------------------------------------------------------------------------------------ scoring

GOLD = SparqlQuery("select distinct ?x where { entity:/ada/ relation:/spouse/ ?y . ?y relation:/gender/ ?x }")


class Writer:
    """A generator that writes what it is told to."""

    name = "writer"
    model: Any = None

    def __init__(self, *written: str | None) -> None:
        self.written = list(written)

    def generate(self, questions: Any, *, candidates: int = 1) -> list[list[GeneratedQuery]]:
        assert candidates == 1
        return [
            [GeneratedQuery("?", None, 0.0, "no query") if one is None else GeneratedQuery(one, SparqlQuery(one), 0.0)]
            for one in (self.written.pop(0) for _ in questions)
        ]


class Store:
    """A runner that knows what each query brings."""

    def __init__(self, values: dict[str, tuple[str, ...]], outcome: Any = "answered") -> None:
        self.values = values
        self.outcome = outcome

    def run_candidates(self, questions: Any, candidates: Any) -> list[KnowledgeQuery]:
        return [
            KnowledgeQuery(-1, question, "store", values=self.values.get(given[0].written, ()), outcome=self.outcome)
            for question, given in zip(questions, candidates, strict=True)
        ]


def example(number: int, answers: tuple[str, ...], query: Any = GOLD) -> QueryExample:
    return QueryExample(str(number), "what gender is ada's wife?", query, "ada", answers)


def test_variables_and_white_space_do_not_matter_and_all_else_does() -> None:
    def same(text: str) -> bool:
        return scoring.normal_query(SparqlQuery(text)) == scoring.normal_query(GOLD)

    assert same("SELECT DISTINCT ?b  WHERE {entity:/ada/ relation:/spouse/ ?a.\n?a relation:/gender/ ?b}")
    assert not same(GOLD.text.replace("ada", "Ada"))
    assert not same(GOLD.text.replace("distinct ", ""))
    assert not same("select distinct ?x where { entity:/ada/ relation:/spouse/ ?y . ?x relation:/gender/ ?y }")
    assert not same(GOLD.text.replace("spouse", "parents"))
    assert scoring.normal_query(TripletQuery("a", "b", "?")) == "<a; b; ?>"


def test_each_share_counts_what_it_says() -> None:
    wrong_name = GOLD.text.replace("ada", "adda")
    wrong_relation = GOLD.text.replace("gender", "religion")
    other_words = GOLD.text.replace("?y", "?m")
    examples = [example(number, ("Female",)) for number in range(5)]
    brought = {GOLD.text: ("female",), other_words: ("female", "male"), wrong_relation: ("none",)}
    writer = Writer(GOLD.text, other_words, wrong_relation, wrong_name, None)
    report = scoring.score_generator(examples, writer, runner=Store(brought))
    counts = {name: getattr(report.overall, name).right for name in report.overall.__struct_fields__}
    assert counts == {"parses": 4, "exact": 2, "names": 3, "relations": 3, "executes": 1, "hits": 2}
    assert [row.executes for row in report.rows] == [True, False, False, False, False]
    assert report.overall.executes.of == 5
    assert report.overall.executes.low == pytest.approx(0.036, abs=1e-3)
    assert list(report.shapes) == ["2 hops"]


def test_without_a_store_nothing_is_said_of_execution() -> None:
    report = scoring.score_generator([example(0, ("female",))], Writer(GOLD.text))
    assert report.overall.executes == scoring.Share(0, 0, None, None, None)
    assert report.rows[0].executes is None


def test_values_that_were_cut_off_are_not_the_answer() -> None:
    store = Store({GOLD.text: ("female",)}, outcome="stopped")
    report = scoring.score_generator([example(0, ("female",))], Writer(GOLD.text), runner=store)
    assert (report.overall.executes.right, report.overall.hits.right) == (0, 1)


def test_unknown_answers_are_those_of_the_gold_query() -> None:
    other = GOLD.text.replace("?y", "?m")
    store = Store({GOLD.text: ("female",), other: ("female",)})
    report = scoring.score_generator([example(0, ()), example(1, ("male",))], Writer(other, other), runner=store)
    assert [row.executes for row in report.rows] == [True, False]
    unknown = scoring.score_generator([example(0, ())], Writer(other), runner=Store({}))
    assert unknown.rows[0].executes is None


def test_shapes_are_told_apart() -> None:
    queries = {
        "select ?x where { entity:/a/ relation:/b/ ?x }": "1 hop",
        "ask { entity:/a/ relation:/b/ entity:/c/ }": "1 hop, yes or no",
        "select (count(distinct ?x) as ?n) where { entity:/a/ relation:/b/ ?x . ?x relation:/c/ ?y }": "2 hops, count",
    }
    assert {text: scoring.query_shape(SparqlQuery(text)) for text in queries} == queries
    assert scoring.query_shape(TripletQuery("?", "b", "c")) == "1 hop"


def test_no_question_is_no_score() -> None:
    with pytest.raises(InputError, match="no question to score"):
        scoring.score_generator([], Writer())
