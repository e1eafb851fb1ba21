"""What a query generator learns: the queries of its training texts.

Source: Chain of Knowledge, section 4.3 and equation 1: correct and wrong queries stand in one sequence, and the loss counts
the tokens of queries only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytrace.training.encoding import EncodedText, EncodedTexts, batches, endless, first_query, padded
from pytrace.training.network import train_package
from pytrace.training.training_settings import TrainingSettings


class QueryTexts:
    """Learn the queries of training texts; in the beginning each text ends with its first one."""

    judge_steps = 0
    patience = 0

    def __init__(self, network: Any, texts: EncodedTexts, settings: TrainingSettings, device: str) -> None:
        self.torch = train_package("torch")
        # The network without what adapters wrap around it: they are inside its layers.
        self.llama = network.get_base_model() if hasattr(network, "get_base_model") else network
        self.fingerprint = texts.fingerprint
        self.texts = texts.texts
        self.short = tuple(first_query(text) for text in texts.texts)
        self.settings = settings
        self.device = device
        self.epoch_steps = len(batches(self.texts, tokens=settings.batch, seed=settings.seed, epoch=0))
        self.short_steps = 0
        # Short texts and whole ones have batches of their own, each skipped as far as the run restored has gone.
        self.short_batches: Iterator[Any] | None = None
        self.batches: Iterator[Any] | None = None

    def loss(self, step: int, share: float) -> tuple[Any, int]:
        """Return the loss of the step's batch."""
        if share < self.settings.alone:
            if self.short_batches is None:
                self.short_batches = self._endless(self.short, self.short_steps)
            self.short_steps += 1
            return self._loss([self.short[index] for index in next(self.short_batches)])
        if self.batches is None:
            self.batches = self._endless(self.texts, step - self.short_steps)
        return self._loss([self.texts[index] for index in next(self.batches)])

    def judge(self) -> float:
        """Return nothing to go by: what is held out is asked in the end alone, by its answers."""
        return math.nan

    def state(self) -> dict[str, int]:
        """Return how many steps had short texts."""
        return {"short_steps": self.short_steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Skip the batches of so many steps."""
        self.short_steps = state["short_steps"]

    def _endless(self, texts: Sequence[EncodedText], skipped: int) -> Iterator[Any]:
        return endless(texts, tokens=self.settings.batch, seed=self.settings.seed, skipped=skipped)

    def _loss(self, texts: Sequence[EncodedText]) -> tuple[Any, int]:
        torch = self.torch
        tokens, offsets, targets = (torch.from_numpy(part).to(self.device) for part in padded(texts))
        hidden = self.llama.model(tokens, use_cache=False).last_hidden_state
        # Only learned tokens need logits, which cost more than a layer.
        wanted = hidden.reshape(-1, hidden.shape[-1]).index_select(0, offsets)
        loss = torch.nn.functional.cross_entropy(self.llama.lm_head(wanted).float(), targets)
        return loss, sum(len(text.tokens) for text in texts)
