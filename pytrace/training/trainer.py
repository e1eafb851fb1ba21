"""The trainer: takes the steps of a lesson, keeps its state on disk, and goes on after a kill as if nothing had been.

A lesson says what is learned: that of `query_lesson`, or one of `ranker_lessons`.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pytrace.errors import InputError, ModelError, StoreError
from pytrace.processes import useful_threads
from pytrace.storage.files import replace_file
from pytrace.storage.locks import take_writer_lock
from pytrace.training.encoding import EncodedTexts
from pytrace.training.network import check_device, parameter_count, train_package
from pytrace.training.query_lesson import QueryTexts
from pytrace.training.training_settings import Length, OptimizerSettings, TrainingSettings

# The least of the learning rate: at the end of the cosine, and at the very beginning.
_LAST_RATE = 0.1
_FIRST_RATE = 0.01
# What decides nothing about the trained weights, and may change when a training is resumed.
_HARMLESS = frozenset({"checkpoint_steps", "checkpoint_minutes", "weights"})
_LENGTH = "length in "
LOCK = "lock"
"""A file that whoever writes checkpoints into its folder has locked."""

_CHECKPOINT = re.compile(r"step-(\d+)\.pt")
# The one before stays until the next is on the disk, and then for one turn more, in case a disk loses what it promised.
_KEPT = 2
# What a checkpoint holds beside the weights, the optimizer, the random numbers and the recipe: how far a training is.
_COUNTS = ("step", "tokens", "seconds", "losses")


class Training(msgspec.Struct, frozen=True):
    """What a training did; `trained` of `parameters` numbers were changed."""

    steps: int
    epochs: float
    tokens: int  # that went through the network, without padding
    seconds: float  # of all its parts, if it was resumed
    parameters: int
    trained: int
    losses: tuple[float, ...]  # of each step: of texts the mean, in nats a learned token
    judged: tuple[tuple[int, float], ...] = ()  # steps, and the loss on what is held out

    @property
    def loss(self) -> float:
        """The mean of the last 50 steps."""
        return sum(self.losses[-50:]) / max(len(self.losses[-50:]), 1)


class Progress(msgspec.Struct, frozen=True):
    """How far a training is: the share that is done, from 0 to 1, steps, the last loss, and tokens a second."""

    share: float
    step: int
    loss: float
    rate: float


def train(
    network: Any,
    texts: EncodedTexts,
    settings: TrainingSettings,
    length: Length,
    *,
    device: str = "cpu",
    threads: int | None = None,
    directory: Path | None = None,
    resume: bool = False,
    recipe: Mapping[str, Any] | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Training:
    """Train a language model in place."""
    lesson = QueryTexts(network, texts, settings, device)
    return learn(
        network, lesson, settings, length, device=device, threads=threads, directory=directory, resume=resume,
        recipe=recipe, tell=tell,
    )  # fmt: skip


class Lesson(Protocol):
    """What a network learns, step by step: the same steps for the same seed."""

    fingerprint: str
    """Of all that is learned from."""

    epoch_steps: int
    """The steps of a pass over it."""

    judge_steps: int
    """After so many steps `judge` is asked; 0: never."""

    @property
    def patience(self) -> int | None:
        """So many times in a row `judge` may find nothing better; then the training ends, and the best weights stay.

        None: it takes all its steps, and the last weights stay.
        """

    def loss(self, step: int, share: float) -> tuple[Any, int]:
        """Return the loss of a step, where this share of the training is done, and the tokens that went through the network."""

    def judge(self) -> float:
        """Return the loss on what is held out."""

    def state(self) -> dict[str, int]:
        """Return what a checkpoint must hold of it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""


def learn(
    network: Any,
    lesson: Lesson,
    settings: OptimizerSettings,
    length: Length,
    *,
    device: str = "cpu",
    threads: int | None = None,
    directory: Path | None = None,
    resume: bool = False,
    recipe: Mapping[str, Any] | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Training:
    """Train a network in place: AdamW, a rate that rises and falls as a cosine, clipped gradients.

    Raises
    ------
    InputError
        The directory holds another training.
    LockedError
        Another process is training in the directory.
    """
    # On one number of threads the same call gives the same weights to the last bit, and so does a call that was ended
    # and goes on with `resume`; but not with a length in minutes.
    torch = train_package("torch")
    check_device(device)
    # All that decides the weights: a training is resumed with the same only.
    whole_recipe = {
        **(recipe or {}),
        **{name: value for name, value in msgspec.to_builtins(settings).items() if name not in _HARMLESS},
        **{f"{_LENGTH}{name}": value for name, value in msgspec.to_builtins(length).items() if value is not None},
        "texts": lesson.fingerprint,
        "device": device,
    }
    with contextlib.ExitStack() as held:
        if directory is not None and not resume:
            directory.mkdir(parents=True, exist_ok=True)
        if directory is not None and directory.is_dir():
            held.enter_context(take_writer_lock(directory / LOCK, str(directory)))
            if not resume and checkpoints(directory):
                raise InputError(
                    f"{directory} holds the checkpoints of a training; go on with --resume, or name another --out"
                )
        held.enter_context(use_threads(threads))
        run = _Run(torch, network.to(device), lesson, settings, length, whole_recipe)
        if resume:
            assert directory is not None
            run.restore(load_checkpoint(directory, whole_recipe))
        return run.until_done(directory, tell)


class _Run:
    """One training: its state, which a checkpoint holds, and the steps that change it."""

    def __init__(
        self, torch: Any, network: Any, lesson: Lesson, settings: OptimizerSettings, length: Length, recipe: dict[str, Any]
    ) -> None:  # fmt: skip
        self.torch = torch
        self.network = network
        self.lesson = lesson
        self.settings = settings
        self.length = length
        self.recipe = recipe
        self.parameters = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
        weights = self.parameters.values()
        matrices = [weight for weight in weights if weight.dim() > 1]
        gains = [weight for weight in weights if weight.dim() <= 1]
        # Gains of norms are not pulled towards zero.
        decays = ((matrices, settings.weight_decay), (gains, 0.0))
        groups = [{"params": group, "weight_decay": decay} for group, decay in decays if group]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
        self.steps = length.steps if length.epochs is None else max(math.ceil(length.epochs * lesson.epoch_steps), 1)
        torch.manual_seed(settings.seed)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.judged: list[tuple[int, float]] = []
        self.best: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "weights": {name: weight.detach() for name, weight in self.parameters.items()},
            "judged": self.judged,
            "best": self.best,
            "optimizer": self.optimizer.state_dict(),
            "random": self.torch.random.get_rng_state(),
            "cooling": self.share(self.seconds) > 1 - self.settings.cooldown,
            **{name: getattr(self, name) for name in _COUNTS},
            **self.lesson.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.put(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.torch.random.set_rng_state(state["random"])
        for name in _COUNTS:
            setattr(self, name, state[name])
        # Checkpoints of versions that judged nothing have neither.
        self.judged, self.best = [*map(tuple, state.get("judged", ()))], state.get("best", {})
        self.lesson.restore(state)

    def put(self, weights: Mapping[str, Any]) -> None:
        """Give the network other weights."""
        with self.torch.no_grad():
            for name, weight in weights.items():
                self.parameters[name].copy_(weight)

    def share(self, seconds: float) -> float:
        """Return how much of the training is done."""
        if self.steps is not None:
            return self.step / self.steps
        assert self.length.minutes is not None
        return seconds / (60 * self.length.minutes)

    def rate(self, share: float) -> float:
        """Return the learning rate where this share of the training is done."""
        rising = self.settings.warm_up
        if share < rising:
            factor = max(share / rising, _FIRST_RATE)
        else:
            begin = max(rising, 1 - self.settings.cooldown)
            falling = min(max(share - begin, 0.0) / (1 - begin), 1.0)
            factor = _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * falling)) / 2
        return self.settings.learning_rate * factor

    def until_done(self, directory: Path | None, tell: Callable[[Progress], None] | None) -> Training:
        settings = self.settings
        self.network.train()
        seconds_before, tokens_before = self.seconds, self.tokens
        started = time.monotonic()
        saved, saved_at = self.step, started
        while (share := self.share(self.seconds)) < 1:
            # The weights that the training began with may stay the best.
            if self.lesson.judge_steps and self.step % self.lesson.judge_steps == 0:
                self.judge()
                if self.stale:
                    break
            self.learn(share)
            now = time.monotonic()
            self.seconds = seconds_before + now - started
            due = now - saved_at >= 60 * settings.checkpoint_minutes or self.step - saved >= settings.checkpoint_steps
            if directory is not None and due:
                save_checkpoint(directory, self.step, self.state())
                saved, saved_at = self.step, time.monotonic()
            if tell is not None:
                rate = (self.tokens - tokens_before) / max(now - started, 1e-9)
                tell(Progress(min(self.share(self.seconds), 1.0), self.step, self.losses[-1], rate))
        if directory is not None and saved != self.step:
            save_checkpoint(directory, self.step, self.state())
        self.network.eval()
        if self.lesson.judge_steps:
            self.judge()
        if self.lesson.patience is not None:
            self.put(self.best)
        return Training(
            steps=self.step,
            epochs=self.step / self.lesson.epoch_steps,
            tokens=self.tokens,
            seconds=self.seconds,
            parameters=parameter_count(self.network),
            trained=sum(weight.numel() for weight in self.parameters.values()),
            losses=tuple(self.losses),
            judged=tuple(self.judged),
        )

    @property
    def stale(self) -> bool:
        """Whether what is held out has got no better for so long that it hardly will."""
        losses = [loss for _, loss in self.judged]
        patience = self.lesson.patience
        return patience is not None and bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= patience

    def judge(self) -> None:
        """Keep the weights if what is held out has never been better."""
        if self.judged and self.judged[-1][0] == self.step:
            return  # before the training was ended
        learning = self.network.training
        self.network.eval()
        with self.torch.no_grad():
            loss = self.lesson.judge()
        self.network.train(learning)
        if all(loss < before for _, before in self.judged):
            self.best = {name: weight.detach().clone() for name, weight in self.parameters.items()}
        self.judged.append((self.step, loss))

    def learn(self, share: float) -> None:
        """Take one step."""
        torch, rate = self.torch, self.rate(share)
        loss, tokens = self.lesson.loss(self.step, share)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.largest_gradient)
        value = loss.item()
        # Before the weights change, so that the last checkpoint is still of a network that works.
        if not (math.isfinite(value) and math.isfinite(norm.item())):
            raise ModelError(
                f"the loss of step {self.step + 1} is {value} and its gradient {norm.item()}; lower learning_rate, which is "
                f"{self.settings.learning_rate}, or make warm_up longer"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += tokens
        self.losses.append(value)


@contextlib.contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Use so many threads, and leave PyTorch's own number and random numbers as they were."""
    torch = train_package("torch")
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(useful_threads(count))
        try:
            yield
        finally:
            torch.set_num_threads(before)


def save_checkpoint(directory: Path, step: int, state: Mapping[str, Any]) -> None:
    """Keep the state of a training, and drop all but the last two."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:08d}.pt"
    # In memory first: PyTorch's archive writer hides the reason why a file cannot be written.
    archive = io.BytesIO()
    train_package("torch").save(dict(state), archive)
    try:
        replace_file(path, archive.getvalue())
    except BaseException:
        path.with_name(f"{path.name}.new").unlink(missing_ok=True)
        raise
    for _, old in checkpoints(directory)[:-_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()


def checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a directory by step, the last one last."""
    if not directory.is_dir():
        return []
    return sorted((int(match[1]), path) for path in directory.iterdir() if (match := _CHECKPOINT.fullmatch(path.name)))


def load_checkpoint(directory: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Read the last checkpoint that is whole."""
    saved = checkpoints(directory)
    if not saved:
        raise InputError(f"{directory} holds no checkpoint to go on from; leave --resume out to begin anew")
    reason = ""
    for _, path in reversed(saved):
        try:
            # Only tensors and plain values are read: a checkpoint runs no code.
            state = train_package("torch").load(path, map_location="cpu", weights_only=True)
            before = state["recipe"]
        except Exception as error:  # noqa: BLE001 - a damaged archive raises whatever its reader stumbles over
            reason = reason or f"{path}: {type(error).__name__}"
            continue
        differing = [
            name
            for name in sorted({*before, *recipe})
            # Until the rate falls, a training may be made longer or shorter.
            if before.get(name) != recipe.get(name) and (state.get("cooling", True) or not name.startswith(_LENGTH))
        ]
        if differing:
            # A setting says more than the hashes that changed with it.
            differing.sort(key=lambda name: len(repr(before.get(name))))
            name = differing[0]
            others = f" and {', '.join(differing[1:])} differ too" if differing[1:] else ""
            raise InputError(
                f"{path} is of a training with {name} {before.get(name)!r}, not {recipe.get(name)!r}{others}; go on with the same "
                "data and settings, or name another --out"
            )
        return dict(state)
    raise StoreError(f"no checkpoint in {directory} can be read ({reason}); remove the directory and begin anew")
