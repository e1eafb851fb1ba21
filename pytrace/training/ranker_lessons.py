"""What rankers learn: of some passages, which is the next hop's.

An encoder learns it among all passages of a batch (van den Oord et al., "Representation Learning with Contrastive Predictive
Coding" (2018), equation 4; with hard negatives beside those of the batch: Karpukhin et al., "Dense Passage Retrieval" (2020),
section 3.2), a cross-encoder among the right passage and the hard negatives of its own hop (Gao et al., "Rethink Training of BERT
Rerankers in Multi-Stage Retrieval Pipeline" (2021), section 3.2).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pytrace.models.encoders.cross_encoder import CrossEncoderFiles
from pytrace.models.encoders.encoder_files import EncoderFiles
from pytrace.training.bert import Tokens, by_length, mean_vectors, padded_inputs
from pytrace.training.network import train_package
from pytrace.training.ranker_data import Hop, Searched, batches_of, hops_hash
from pytrace.training.training_settings import RankerSettings


class _RankerLesson(ABC):
    """What both have in common: hops in batches, and of each some of its hard negatives."""

    def __init__(
        self, network: Any, sets: Sequence[Searched], hops: Sequence[Hop], held_out: Sequence[Hop],
        settings: RankerSettings,
    ) -> None:  # fmt: skip
        self.torch = train_package("torch")
        self.network = network
        self.sets = sets
        self.hops = hops
        self.held_out = held_out
        self.settings = settings
        self.fingerprint = hops_hash(sets, [*hops, *held_out])
        self.epoch_steps = -(-len(hops) // settings.batch)
        self.judge_steps = settings.judge_steps if held_out else 0
        self.patience = settings.patience
        self._batches: Any = None

    def loss(self, step: int, share: float) -> tuple[Any, int]:  # noqa: ARG002 - what is learned is the same throughout
        if self._batches is None:
            self._batches = batches_of(len(self.hops), self.settings.batch, seed=self.settings.seed, skipped=step)
        epoch, numbers = next(self._batches)
        hops = [self.hops[number] for number in numbers]
        return self._loss(hops, [self._drawn(self.hops[number], number, epoch) for number in numbers])

    def judge(self) -> float:
        # The first negatives are the hardest; they are the same each time, and so are the batches.
        size, most = self.settings.batch, self.settings.negatives
        total = 0.0
        for start in range(0, len(self.held_out), size):
            hops = self.held_out[start : start + size]
            total += self._loss(hops, [hop.negatives[:most] for hop in hops])[0].item() * len(hops)
        return total / len(self.held_out)

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - batches follow from seed and step
        """Go on from a checkpoint."""

    def _drawn(self, hop: Hop, number: int, epoch: int) -> Sequence[int]:
        """Draw hard negatives, others for each pass."""
        most = min(self.settings.negatives, len(hop.negatives))
        return random.Random(f"{self.settings.seed} {epoch} {number}").sample(hop.negatives, most)

    @abstractmethod
    def _loss(self, hops: Sequence[Hop], negatives: Sequence[Sequence[int]]) -> tuple[Any, int]:
        """Return the loss of hops beside these negatives, and the tokens that went through the network."""


class EncoderLesson(_RankerLesson):
    """The right passage is nearer to the query than all others of the batch, those that support the same answer left out."""

    def __init__(self, *arguments: Any, files: EncoderFiles) -> None:
        super().__init__(*arguments)
        self.files = files

    def _loss(self, hops: Sequence[Hop], negatives: Sequence[Sequence[int]]) -> tuple[Any, int]:
        torch = self.torch
        places = [(hop.set, hop.positive) for hop in hops]
        places += [(hop.set, row) for hop, rows in zip(hops, negatives, strict=True) for row in rows]
        queries, count = self._vectors([hop.query for hop in hops], "query")
        passages, more = self._vectors([self.sets[number].texts[row] for number, row in places], "passage")
        scores = queries @ passages.T / self.settings.temperature
        supporting = torch.tensor(
            [
                [
                    place[0] == hop.set and place[1] in hop.supporting and column != row
                    for column, place in enumerate(places)
                ]
                for row, hop in enumerate(hops)
            ],
            device=scores.device,
        )
        scores = scores.masked_fill(supporting, float("-inf"))
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(hops), device=scores.device)), count + more

    def _vectors(self, texts: Sequence[str], kind: Any) -> tuple[Any, int]:
        rules = self.files.rules(kind, {})
        limit = min(rules.length, self.settings.context)
        tokens = [(ids, [0] * len(ids)) for ids in self.files.token_ids([rules.prompt + text for text in texts], limit)]
        vectors = by_length(lambda some: mean_vectors(self.network, some, self.files.pad_id), tokens)
        return vectors, sum(len(ids) for ids, _ in tokens)


class PairFiles(CrossEncoderFiles):
    """The files of an encoder, whose tokenizer is to read pairs."""

    def _check_settings(self, settings: dict[str, Any]) -> None:
        """Take what says that it is an encoder."""


class CrossEncoderLesson(_RankerLesson):
    """The right passage has the highest score of those that are read with its query."""

    def __init__(self, *arguments: Any, files: PairFiles) -> None:
        super().__init__(*arguments)
        self.files = files

    def _loss(self, hops: Sequence[Hop], negatives: Sequence[Sequence[int]]) -> tuple[Any, int]:
        torch = self.torch
        pairs: list[tuple[str, str]] = []
        for hop, rows in zip(hops, negatives, strict=True):
            pairs += [(hop.query, self.sets[hop.set].texts[row]) for row in (hop.positive, *rows)]
        tokens = self.files.pairs(pairs, min(self.settings.context, self.files.max_tokens))
        scores = by_length(lambda some: self.network(**self._inputs(some)).logits[:, 0], tokens)
        sizes = [1 + len(rows) for rows in negatives]
        losses = [-torch.log_softmax(part, 0)[0] for part in scores.split(sizes)]
        return torch.stack(losses).mean(), sum(len(ids) for ids, _ in tokens)

    def _inputs(self, tokens: Sequence[Tokens]) -> dict[str, Any]:
        return padded_inputs(tokens, self.files.pad_id, self.network.device)
