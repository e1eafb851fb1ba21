"""The trainer: learns the queries of training texts, keeps its state on disk, and goes on after a kill as if nothing had been.

Source: Chain of Knowledge, section 4.3 and equation 1: correct and wrong queries stand in one sequence, and the loss counts
the tokens of queries only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pytrace.errors import InputError, ModelError
from pytrace.training.checkpoints import checkpoints, load_checkpoint, save_checkpoint
from pytrace.training.encoding import EncodedText, EncodedTexts, batches, endless, first_query, padded
from pytrace.training.network import check_device, parameter_count, torch_module
from pytrace.training.training_settings import Length, TrainingSettings

# The least of the learning rate: at the end of the cosine, and at the very beginning.
_LAST_RATE = 0.1
_FIRST_RATE = 0.01
# What decides nothing about the trained weights.
_HARMLESS = frozenset({"checkpoint_steps", "checkpoint_minutes", "weights"})


class Training(msgspec.Struct, frozen=True):
    """What a training did.

    `losses` are the mean loss of each step, in nats a learned token; `tokens` counts those that went through the network, without
    padding, `seconds` the time of all its parts. `trained` of `parameters` numbers were changed.
    """

    steps: int
    epochs: float
    tokens: int
    seconds: float
    parameters: int
    trained: int
    losses: tuple[float, ...]

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
    """Train a network in place: AdamW, a rate that rises and falls as a cosine, clipped gradients."""
    # On one number of threads the same call gives the same weights to the last bit, and so does a call that was ended
    # and goes on with `resume`; but not with a length in minutes.
    torch = torch_module()
    check_device(device)
    if directory is not None and not resume and checkpoints(directory):
        raise InputError(f"{directory} holds the checkpoints of a training; go on with --resume, or name another --out")
    everything = {
        **(recipe or {}),
        **{name: value for name, value in msgspec.to_builtins(settings).items() if name not in _HARMLESS},
        **{f"length in {name}": value for name, value in msgspec.to_builtins(length).items() if value is not None},
        "texts": texts.fingerprint,
        "device": device,
    }
    with _threads(torch, threads):
        run = _Run(torch, network.to(device), texts, settings, length, device, everything)
        if resume:
            assert directory is not None
            run.restore(load_checkpoint(directory, everything))
        return run.until_done(directory, tell)


class _Run:
    """One training: the state that a checkpoint holds, and the steps that change it."""

    def __init__(
        self, torch: Any, network: Any, texts: EncodedTexts, settings: TrainingSettings, length: Length, device: str,
        recipe: dict[str, Any],
    ) -> None:  # fmt: skip
        self.torch = torch
        self.network = network
        # The network without what adapters wrap around it: they are inside its layers.
        self.llama = network.get_base_model() if hasattr(network, "get_base_model") else network
        self.texts = texts.texts
        self.short = tuple(first_query(text) for text in texts.texts)
        self.settings = settings
        self.length = length
        self.device = device
        self.recipe = recipe
        self.parameters = {name: one for name, one in network.named_parameters() if one.requires_grad}
        # Gains of norms are not pulled towards zero.
        groups = [
            {
                "params": [one for one in self.parameters.values() if one.dim() > 1],
                "weight_decay": settings.weight_decay,
            },
            {"params": [one for one in self.parameters.values() if one.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=settings.learning_rate, betas=(0.9, 0.98), fused=True
        )
        first = len(batches(self.texts, tokens=settings.batch, seed=settings.seed, epoch=0))
        self.epoch_steps = first
        self.steps = length.steps if length.epochs is None else max(math.ceil(length.epochs * first), 1)
        torch.manual_seed(settings.seed)
        self.step = 0
        self.short_steps = 0
        self.tokens = 0
        self.seconds = 0.0
        self.losses: list[float] = []

    def restore(self, state: dict[str, Any]) -> None:
        with self.torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.torch.random.set_rng_state(state["random"])
        self.step, self.short_steps = state["step"], state["short_steps"]
        self.tokens, self.seconds = state["tokens"], state["seconds"]
        self.losses = list(state["losses"])

    def state(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "weights": {name: one.detach() for name, one in self.parameters.items()},
            "optimizer": self.optimizer.state_dict(),
            "random": self.torch.random.get_rng_state(),
            "step": self.step,
            "short_steps": self.short_steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "losses": self.losses,
        }

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
            falling = min((share - rising) / (1 - rising), 1.0)
            factor = _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * falling)) / 2
        return self.settings.learning_rate * factor

    def until_done(self, directory: Path | None, tell: Callable[[Progress], None] | None) -> Training:
        settings = self.settings
        self.network.train()
        short, whole = (
            endless(texts, tokens=settings.batch, seed=settings.seed, skipped=skipped)
            for texts, skipped in ((self.short, self.short_steps), (self.texts, self.step - self.short_steps))
        )
        before, tokens_before = self.seconds, self.tokens
        started = time.monotonic()
        kept, kept_at = self.step, started
        while (share := self.share(self.seconds)) < 1:
            if share < settings.alone:
                self.learn([self.short[index] for index in next(short)], self.rate(share))
                self.short_steps += 1
            else:
                self.learn([self.texts[index] for index in next(whole)], self.rate(share))
            now = time.monotonic()
            self.seconds = before + now - started
            late = now - kept_at >= 60 * settings.checkpoint_minutes or self.step - kept >= settings.checkpoint_steps
            if directory is not None and late:
                save_checkpoint(directory, self.step, self.state())
                kept, kept_at = self.step, time.monotonic()
            if tell is not None:
                rate = (self.tokens - tokens_before) / max(now - started, 1e-9)
                tell(Progress(min(self.share(self.seconds), 1.0), self.step, self.losses[-1], rate))
        if directory is not None and kept != self.step:
            save_checkpoint(directory, self.step, self.state())
        self.network.eval()
        return Training(
            steps=self.step,
            epochs=self.step / self.epoch_steps,
            tokens=self.tokens,
            seconds=self.seconds,
            parameters=parameter_count(self.network),
            trained=sum(one.numel() for one in self.parameters.values()),
            losses=tuple(self.losses),
        )

    def learn(self, chosen: Sequence[EncodedText], rate: float) -> None:
        """Take one step."""
        torch = self.torch
        tokens, places, targets = (torch.from_numpy(part).to(self.device) for part in padded(chosen))
        hidden = self.llama.model(tokens, use_cache=False).last_hidden_state
        # Only learned tokens need logits, which cost more than a layer.
        wanted = hidden.reshape(-1, hidden.shape[-1]).index_select(0, places)
        loss = torch.nn.functional.cross_entropy(self.llama.lm_head(wanted).float(), targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.largest_gradient)
        value = loss.item()
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
        self.tokens += sum(len(text.tokens) for text in chosen)
        self.losses.append(value)


@contextmanager
def _threads(torch: Any, wanted: int | None) -> Iterator[None]:
    """Use so many threads, and leave PyTorch's own number and random numbers as they were."""
    threads, random = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(wanted or len(os.sched_getaffinity(0)))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(random)
