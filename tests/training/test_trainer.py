"""The trainer: a network that is the same for the same seed, and training that repeats, goes on and ends."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.errors import DeviceUnavailableError, InputError, ModelError, StoreError
from pytrace.methods.base import changed
from pytrace.training import encoding, network, query_lesson, trainer
from pytrace.training.encoding import Piece, TrainingText
from pytrace.training.training_settings import Length, TrainingSettings
from tests.small_trainings import SMALL, TEXTS, Killed, equal, fresh, killer, weights

torch = network.train_package("torch")


@pytest.fixture(scope="module")
def words() -> encoding.ByteTokenizer:
    return encoding.train_tokenizer((one.text for one in TEXTS), size=400)


@pytest.fixture(scope="module")
def encoded(words: encoding.ByteTokenizer) -> encoding.EncodedTexts:
    return encoding.encode_texts(TEXTS, words, context=128)


def test_a_network_is_the_same_for_the_same_seed(words: encoding.ByteTokenizer) -> None:
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
        (["width=100", "heads=8"], "multiple of 16"),
        (["heads=0"], r">= 1 .*heads"),
        (["learning_rate=nan"], r">= 1e-08 .*learning_rate"),
        (["batch=0"], r">= 32 .*batch"),
        (["seed=-1"], r">= 0 .*seed"),
    ],
)
def test_settings_that_build_nothing_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed(TrainingSettings(), options, what="train")


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


def test_training_learns_and_repeats(words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
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
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts
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


@pytest.mark.parametrize("step", [7, 10, 23])
def test_a_killed_training_goes_on_as_if_nothing_had_been(
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path, step: int
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
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=2)
    trainer.train(fresh(words), encoded, settings, Length(steps=9), threads=1, directory=tmp_path)
    assert [step for step, _ in trainer.checkpoints(tmp_path)] == [8, 9]
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "step-00000008.pt", "step-00000009.pt"}


def test_a_training_is_not_begun_over_another_ones_checkpoints(
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
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
        ({"length": Length(minutes=1.0)}, "length in steps 2, not None"),
        ({"texts": TEXTS[:-1]}, "texts '"),
        ({"recipe": {"data": "b"}}, "data 'a', not 'b'"),
    ],
)
def test_a_training_goes_on_only_with_what_it_began_with(
    words: encoding.ByteTokenizer, tmp_path: Path, change: dict[str, Any], said: str
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
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=4)
    whole = fresh(words)
    trainer.train(whole, encoded, settings, Length(steps=12), threads=1)
    with pytest.raises(Killed):
        trainer.train(fresh(words), encoded, settings, Length(steps=12), threads=1, directory=tmp_path, tell=killer(9))
    (_, older), (_, newest) = trainer.checkpoints(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-1000])
    net = fresh(words)
    trainer.train(net, encoded, settings, Length(steps=12), threads=1, directory=tmp_path, resume=True)
    assert equal(weights(net), weights(whole))
    for _, path in trainer.checkpoints(tmp_path):
        path.write_bytes(b"")
    assert older.name == "step-00000004.pt"
    with pytest.raises(StoreError, match=r"no checkpoint in .* can be read"):
        trainer.train(net, encoded, settings, Length(steps=12), threads=1, directory=tmp_path, resume=True)


def test_a_full_disk_leaves_the_last_checkpoint(
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(SMALL, checkpoint_steps=3)
    written = trainer.replace_file
    calls = itertools.count()

    def full(path: Path, content: bytes) -> None:
        if next(calls) == 1:
            path.with_name(f"{path.name}.new").write_bytes(content[:100])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written(path, content)

    monkeypatch.setattr(trainer, "replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.train(fresh(words), encoded, settings, Length(steps=9), threads=1, directory=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "step-00000003.pt"}
    net, whole = fresh(words), fresh(words)
    trainer.train(net, encoded, settings, Length(steps=9), threads=1, directory=tmp_path, resume=True)
    trainer.train(whole, encoded, settings, Length(steps=9), threads=1)
    assert equal(weights(net), weights(whole))


def test_a_loss_that_is_no_number_ends_the_training(
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    net = fresh(words)

    def spoil(progress: trainer.Progress) -> None:
        if progress.step == 4:
            with torch.no_grad():
                net.lm_head.weight[0, 0] = float("nan")

    settings = msgspec.structs.replace(SMALL, checkpoint_steps=2)
    with pytest.raises(ModelError, match=r"loss of step 5 is nan .* lower learning_rate, which is 0.003"):
        trainer.train(net, encoded, settings, Length(steps=9), threads=1, directory=tmp_path, tell=spoil)
    assert [step for step, _ in trainer.checkpoints(tmp_path)] == [2, 4]


def test_minutes_end_a_training(words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    told: list[trainer.Progress] = []
    done = trainer.train(fresh(words), encoded, SMALL, Length(minutes=0.5 / 60), threads=1, tell=told.append)
    assert done.steps >= 1
    assert 0.5 <= done.seconds < 20
    assert told[-1].share == 1
    assert [one.share for one in told] == sorted(one.share for one in told)


def test_epochs_count_passes(words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    settings = msgspec.structs.replace(SMALL, alone=0.0)
    first = len(encoding.batches(encoded.texts, tokens=SMALL.batch, seed=0, epoch=0))
    done = trainer.train(fresh(words), encoded, settings, Length(epochs=1.0), threads=1)
    assert (done.steps, done.epochs, done.tokens) == (first, 1.0, encoded.tokens)


def test_texts_end_with_their_correct_query_in_the_beginning(words: encoding.ByteTokenizer) -> None:
    wrong = (Piece("Incorrect query 1:", learned=False), Piece(" select ?x where { zzz }\n", learned=True))
    texts = encoding.encode_texts([TrainingText((*TEXTS[0].pieces, *wrong))] * 4, words, context=128)
    alone = encoding.encode_texts(TEXTS[:1] * 4, words, context=128)

    def run(texts: encoding.EncodedTexts, share: float) -> trainer.Training:
        settings = msgspec.structs.replace(SMALL, alone=share, batch=32)  # a text a step
        return trainer.train(fresh(words), texts, settings, Length(steps=4), threads=1)

    assert run(texts, 1.0).losses == run(alone, 0.0).losses
    half = run(texts, 0.5)
    assert half.losses[:2] == run(alone, 1.0).losses[:2]
    assert half.tokens == (alone.tokens + texts.tokens) / 2


def test_the_rate_rises_and_falls(words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts) -> None:
    settings = msgspec.structs.replace(SMALL, warm_up=0.1)
    network = fresh(words)
    lesson = query_lesson.QueryTexts(network, encoded, settings, "cpu")
    run = trainer._Run(torch, network, lesson, settings, Length(steps=10), {})
    rates = [run.rate(share / 1000) / settings.learning_rate for share in range(1001)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[100] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    run.settings = msgspec.structs.replace(settings, cooldown=0.2)
    rates = [run.rate(share / 1000) / settings.learning_rate for share in range(1001)]
    assert rates[100:801] == pytest.approx([1.0] * 701)
    assert rates[801] < 1.0
    assert rates[-1] == pytest.approx(0.1)


def test_a_training_whose_rate_has_not_begun_to_fall_may_be_made_longer(
    words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SMALL, cooldown=0.5, warm_up=0, alone=0, checkpoint_steps=1)

    def run(steps: int, directory: Path | None = None, *, resume: bool = False, kill: int = 0) -> trainer.Training:
        return trainer.train(
            fresh(words), encoded, settings, Length(steps=steps), threads=1, directory=directory, resume=resume,
            tell=killer(kill) if kill else None,
        )  # fmt: skip

    with pytest.raises(Killed):
        run(8, tmp_path, kill=3)
    longer = run(12, tmp_path, resume=True)
    assert longer.losses == run(12).losses
    with pytest.raises(InputError, match="length in steps 12, not 16"):
        run(16, tmp_path, resume=True)
