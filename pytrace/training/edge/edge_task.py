"""What the small model is trained on, step by step: batches of questions, claims or links, the same for the same seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.models.edge.packing import MAX_TOKENS, PackedInput, Packer, title_tokens
from pytrace.models.edge.reading import KINDS, LABELS, PAIR_WIDTH
from pytrace.training.edge.edge_examples import CheckingExample, Distractors, LinkingExample, ReadingExample, Span
from pytrace.training.edge.edge_settings import EdgeSettings
from pytrace.training.network import train_package

Example = ReadingExample | CheckingExample | LinkingExample

# Shares of questions that are read with 0, 1, 2, … wrong passages next to the right ones.
_FIRST_DISTRACTORS = (0.6, 0.25, 0.15)
_LATER_DISTRACTORS = (0.25, 0.3, 0.25, 0.2)
_SORTED_BATCHES = 16  # batches whose examples are sorted by length together
_CHARACTERS_PER_TOKEN = 4.2
_KIND_WEIGHT = 0.5
_SUPPORT_WEIGHT = 0.5
# Share of the claims that are read among other sentences of their page, and how many those are at most.
_WITH_OTHERS = 0.5
_MOST_OTHERS = 4
_NEVER = -1e9  # logit of what cannot be
_HELD_OUT_BATCH = 16


class Drawn(NamedTuple):
    """An example as one pass sees it: its passages in the order in which they are read."""

    example: Example
    passages: tuple[str, ...]
    spans: tuple[Span, ...]
    kind: str
    # Passages of which it is known whether the answer needs them.
    supports: tuple[tuple[int, bool], ...] = ()


class EdgeTask:
    """Questions and claims in batches of about the same number of tokens; other distractors are drawn for each pass."""

    def __init__(
        self, network: Any, packer: Packer, reading: Sequence[tuple[ReadingExample, int]], others: Sequence[Example],
        held_out: Sequence[Example], distractors: Distractors, settings: EdgeSettings,
    ) -> None:  # fmt: skip
        self.torch = train_package("torch")
        self.network = network
        self.packer = packer
        self.reading = reading
        self.others = others
        self.distractors = distractors
        self.settings = settings
        self.held_out = [
            draw(example, distractors, random.Random(f"held out {number}")) for number, example in enumerate(held_out)
        ]
        self.fingerprint = fingerprint([*(example for example, _ in reading), *others, *held_out])
        self._epoch, self._batches = 0, self._plan(0)
        self.epoch_steps = len(self._batches)
        self.judge_steps = settings.judge_steps if held_out else 0
        self.patience = None  # the last steps, at a low rate, gain most

    def loss(self, step: int, share: float) -> tuple[Any, int]:  # noqa: ARG002 - the same throughout
        """Return the loss of a step, and the tokens that went through the network."""
        epoch, number = divmod(step, self.epoch_steps)
        if epoch != self._epoch:
            # Passes differ by a few batches; each is as long as the first.
            self._epoch, self._batches = epoch, self._plan(epoch)
        batch = self._batches[number % len(self._batches)]
        packed = [self._packed(one) for one in batch]
        return self._loss(batch, packed), sum(len(one.ids) for one, _ in packed)

    def judge(self) -> float:
        """Return the mean loss of what is held out."""
        total = 0.0
        for kind in (ReadingExample, CheckingExample, LinkingExample):
            mine = sorted((one for one in self.held_out if isinstance(one.example, kind)), key=_length)
            for start in range(0, len(mine), _HELD_OUT_BATCH):
                batch = mine[start : start + _HELD_OUT_BATCH]
                total += self._loss(batch, [self._packed(one) for one in batch]).item() * len(batch)
        return total / len(self.held_out)

    def questions(self, steps: int) -> set[str]:
        """Return the questions that the first steps read, directly or as claims made from them, and the claims of data sets."""
        read: set[str] = set()
        for epoch in range(-(-steps // self.epoch_steps)):
            some = self._plan(epoch)[: steps - epoch * self.epoch_steps]
            read.update(known for batch in some for one in batch if (known := _known(one.example)))
        return read

    def state(self) -> dict[str, int]:
        """Return nothing: batches follow from seed and step."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""

    def _plan(self, epoch: int) -> list[list[Drawn]]:
        """Return the batches of a pass; the first pass begins with few distractors."""
        rng = random.Random(f"{self.settings.seed} {epoch}")
        asked = [example for example, times in self.reading for _ in range(times)]
        share = self.settings.questions
        examples = [*(asked if share == 1 else rng.sample(asked, round(share * len(asked)))), *self.others]
        rng.shuffle(examples)
        early = 0 if epoch else int(self.settings.easy * len(examples))
        batches: list[list[Drawn]] = []
        for part, counts in ((examples[:early], _FIRST_DISTRACTORS), (examples[early:], _LATER_DISTRACTORS)):
            drawn = [draw(example, self.distractors, rng, counts) for example in part]
            mine: list[list[Drawn]] = []
            for kind in (ReadingExample, CheckingExample, LinkingExample):
                mine += self._batched([one for one in drawn if isinstance(one.example, kind)], rng)
            rng.shuffle(mine)
            batches += mine
        return batches

    def _batched(self, drawn: list[Drawn], rng: random.Random) -> list[list[Drawn]]:
        rng.shuffle(drawn)
        batches: list[list[Drawn]] = []
        chunk = _SORTED_BATCHES * self.settings.batch
        begin = 0
        while begin < len(drawn):
            tokens, end = 0.0, begin
            while end < len(drawn) and tokens < chunk:
                tokens += _length(drawn[end])
                end += 1
            batch: list[Drawn] = []
            for one in sorted(drawn[begin:end], key=_length):
                if batch and (len(batch) + 1) * _length(one) > self.settings.batch:
                    batches.append(batch)
                    batch = []
                batch.append(one)
            batches.append(batch)
            begin = end
        return batches

    def _packed(self, one: Drawn) -> tuple[PackedInput, list[tuple[int, int]]]:
        return pack_training(self.packer, _asked(one.example), one.passages, one.spans)

    def _loss(self, batch: Sequence[Drawn], packed: Sequence[tuple[PackedInput, list[tuple[int, int]]]]) -> Any:
        torch = self.torch
        device = next(self.network.parameters()).device
        arrays = padded([one for one, _ in packed], self.packer.pad_id)
        inputs = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        if isinstance(batch[0].example, CheckingExample):
            target = torch.tensor([LABELS.index(one.example.label) for one in batch], device=device)  # type: ignore[union-attr]
            return torch.nn.functional.cross_entropy(self.network.check(**inputs), target)
        starts, ends, pairs, kinds, links = self.network.read(**inputs)
        if isinstance(batch[0].example, LinkingExample):
            steps = [one.example for one in batch if isinstance(one.example, LinkingExample)]
            right = torch.tensor([step.right for step in steps], dtype=torch.float32, device=device)
            places = [
                (0, 1) if step.candidate is None else (one.separators()[0], 0)
                for step, (one, _) in zip(steps, packed, strict=True)
            ]
            chosen = torch.stack([links[row, place, head] for row, (place, head) in enumerate(places)])
            return torch.nn.functional.binary_cross_entropy_with_logits(chosen, right)
        target = torch.tensor([KINDS.index(one.kind) for one in batch], device=device)
        kind_loss = torch.nn.functional.cross_entropy(kinds, target)
        loss = _span_loss(torch, packed, starts, ends, pairs) + _KIND_WEIGHT * kind_loss
        known = [
            (row, place, right)
            for row, (one, (window, _)) in enumerate(zip(batch, packed, strict=True))
            for separators in [window.separators()]
            for passage, right in one.supports
            if (place := separators.get(passage)) is not None
        ]
        if not known:
            return loss
        rows, places, labels = (torch.tensor(part, device=device) for part in zip(*known, strict=True))
        supports = torch.nn.functional.binary_cross_entropy_with_logits(links[rows, places, 0], labels.float())
        return loss + _SUPPORT_WEIGHT * supports


def _span_loss(
    torch: Any, packed: Sequence[tuple[PackedInput, list[tuple[int, int]]]], starts: Any, ends: Any, pairs: Any
) -> Any:
    """Return minus the logarithm of the probability of all right spans together, the mean over rows.

    A span's probability is that of its start, times that of its end given the start; a row without an answer starts at its first token.
    """
    owners = np.full(starts.shape, -1, np.int64)
    spans = []
    for row, (one, found) in enumerate(packed):
        owners[row, : len(one.ids)] = one.passages
        spans += [(row, first, last) for first, last in found or [(0, 0)]]
    rows, firsts, lasts = (torch.tensor(part, device=starts.device) for part in zip(*spans, strict=True))
    owner = torch.from_numpy(owners).to(starts.device)
    allowed = owner >= 0
    allowed[:, 0] = True
    start = starts.masked_fill(~allowed, _NEVER).log_softmax(1)[rows, firsts]
    heads, tails = pairs.split(PAIR_WIDTH, dim=2)
    logits = ends[rows] + (tails[rows] @ heads[rows, firsts].unsqueeze(2)).squeeze(2) / PAIR_WIDTH**0.5
    places = torch.arange(starts.shape[1], device=starts.device)
    after = (places >= firsts[:, None]) & (owner[rows] == owner[rows, firsts][:, None])
    # The first token is the only end of a row without an answer.
    after &= (firsts > 0)[:, None] | (places == 0)
    together = start + logits.masked_fill(~after, _NEVER).log_softmax(1).gather(1, lasts[:, None])[:, 0]
    per_row = [together[rows == row].logsumexp(0) for row in range(len(packed))]
    return -torch.stack(per_row).mean()


def padded(batch: Sequence[PackedInput], pad_id: int) -> dict[str, NDArray[np.int64]]:
    """Return the network's inputs, int64 [batch, longest]."""
    width = max(len(one.ids) for one in batch)
    arrays = {
        "input_ids": np.full((len(batch), width), pad_id, np.int64),
        "attention_mask": np.zeros((len(batch), width), np.int64),
        "token_type_ids": np.zeros((len(batch), width), np.int64),
    }
    for row, one in enumerate(batch):
        arrays["input_ids"][row, : len(one.ids)] = one.ids
        arrays["attention_mask"][row, : len(one.ids)] = 1
        arrays["token_type_ids"][row, : len(one.ids)] = one.types
    return arrays


def draw(
    example: Example, distractors: Distractors, rng: random.Random, counts: Sequence[float] = _LATER_DISTRACTORS
) -> Drawn:
    """Draw what is read with an example: distractors next to its passages, or now and then instead of the one with the answer."""
    if isinstance(example, CheckingExample):
        texts_of_claim = [example.evidence]
        if example.others and rng.random() < _WITH_OTHERS:
            texts_of_claim += rng.sample(example.others, rng.randint(1, min(_MOST_OTHERS, len(example.others))))
            rng.shuffle(texts_of_claim)
        return Drawn(example, (" ".join(texts_of_claim),), (), "none")
    if isinstance(example, LinkingExample):
        candidate = () if example.candidate is None else (example.candidate,)
        return Drawn(example, (*candidate, *reversed(example.so_far)), (), "none")
    count = rng.choices(range(len(counts)), counts)[0]
    others = distractors.draw(example, count, rng)
    kept = list(range(len(example.passages)))
    kind = example.kind
    if kind == "span" and others and rng.random() < 0.1:
        without = [index for index in kept if all(span.passage != index for span in example.spans)]
        # Another passage may hold the answer in words that no span marks.
        if not any(answer in example.passages[index] for answer in example.answers for index in without):
            kept, kind = without, "none"
    texts: list[tuple[str, int]] = [(example.passages[index], index) for index in kept] + [
        (text, -1) for text in others
    ]
    rng.shuffle(texts)
    new = {index: number for number, (_, index) in enumerate(texts) if index >= 0}
    spans = tuple(Span(new[span.passage], span.start, span.end) for span in example.spans) if kind == "span" else ()
    # Of a question that its own passages do not answer, none supports an answer.
    supports = [(number, index >= 0 and example.kind != "none") for number, (_, index) in enumerate(texts)]
    return Drawn(example, tuple(text for text, _ in texts), spans, kind, tuple(supports) if others else ())


def _asked(example: Example) -> str:
    return example.claim if isinstance(example, CheckingExample) else example.question


def _known(example: Example) -> str:
    """Return the data set's question or claim that an example is or was made from; "" if it was made from passages alone."""
    if isinstance(example, CheckingExample) and example.question:
        return example.question
    made = not isinstance(example, ReadingExample) and example.source.startswith("made")
    return "" if made else _asked(example)


def _length(one: Drawn) -> int:
    characters = len(_asked(one.example)) + sum(map(len, one.passages))
    return min(int(characters / _CHARACTERS_PER_TOKEN) + 3 + len(one.passages), MAX_TOKENS)


def pack_training(
    packer: Packer, question: str, passages: Sequence[str], spans: Sequence[Span]
) -> tuple[PackedInput, list[tuple[int, int]]]:
    """Pack a question with all its passages, long ones cut around their answers; return the answers' first and last tokens, too."""
    room = packer.room(question) - len(passages)
    tokenized = [packer.tokens(passage) for passage in passages]
    limits = _shares([len(text.ids) for text in tokenized], room)
    parts = []
    for index, (passage, text, limit) in enumerate(zip(passages, tokenized, limits, strict=True)):
        if len(text.ids) <= limit:
            parts.append((index, np.arange(len(text.ids))))
            continue
        title = title_tokens(passage, text.offsets)[: limit // 4]
        begin = len(title)
        mine = [span for span in spans if span.passage == index]
        if mine:
            first = int(np.searchsorted(text.offsets[:, 1], mine[0].start, side="right"))
            width = limit - len(title)
            if first >= begin + width:
                begin = min(first - width // 2, len(text.ids) - width)
        parts.append((index, np.concatenate([title, np.arange(begin, begin + limit - len(title))])))
    packed = packer.pack(question, parts, passages)
    return packed, [found for span in spans if (found := locate(packed, span)) is not None]


def locate(packed: PackedInput, span: Span) -> tuple[int, int] | None:
    """Return the first and the last token of a span, or None where it was cut off."""
    inside = np.flatnonzero(
        (packed.passages == span.passage) & (packed.offsets[:, 1] > span.start) & (packed.offsets[:, 0] < span.end)
    )
    if not len(inside):
        return None
    first, last = int(inside[0]), int(inside[-1])
    whole = packed.offsets[first, 0] <= span.start and packed.offsets[last, 1] >= span.end
    return (first, last) if whole else None


def _shares(lengths: Sequence[int], room: int) -> list[int]:
    """Share the room: short passages take what they need, long ones an equal part of the rest."""
    limits = [0] * len(lengths)
    left = room
    for rank, index in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        limits[index] = min(lengths[index], max(left, 0) // (len(lengths) - rank))
        left -= limits[index]
    return limits


def fingerprint(examples: Sequence[Example]) -> str:
    """Return SHA-256 of all examples, in hexadecimal."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(tuple(example)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
