"""What a training run depends on, apart from its texts."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pytrace.errors import InputError

WeightFormat = Literal["f32", "f16", "q8_0"]
"""How the weights of an exported model are stored: 32, 16 or some 8.5 bits each."""


RankerKind = Literal["encoder", "cross-encoder"]
"""What ranks: vectors of queries and passages, or a reader of both together."""


class OptimizerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How weights are changed, step by step, and kept."""

    # The rate rises to this over the share `warm_up` of the training, and over its last share `cooldown` falls as a cosine to a
    # tenth of it: 1 falls from the end of the warm-up, and less lets a training that has not begun to fall be made longer.
    learning_rate: Annotated[float, Meta(ge=1e-8, le=1)] = 2e-3
    warm_up: Annotated[float, Meta(ge=0, le=0.9)] = 0.05
    cooldown: Annotated[float, Meta(ge=1e-3, le=1)] = 1.0
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.1
    largest_gradient: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    # How often the state is saved, whichever comes first.
    checkpoint_steps: Annotated[int, Meta(ge=1, le=1 << 30)] = 500
    checkpoint_minutes: Annotated[float, Meta(ge=1e-3, le=1e6)] = 5.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 32) - 1)] = 0


class TrainingSettings(OptimizerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a query generator is built and trained."""

    # A model from scratch: tokens (256 bytes, the end of a text and one merge at least), numbers a token, blocks, attention
    # heads a block, the width within a block's network, and the longest sequence in tokens.
    vocabulary: Annotated[int, Meta(ge=258, le=65_536)] = 2_048
    width: Annotated[int, Meta(ge=8, le=4_096)] = 128
    layers: Annotated[int, Meta(ge=1, le=64)] = 4
    heads: Annotated[int, Meta(ge=1, le=128)] = 4
    inner: Annotated[int, Meta(ge=8, le=16_384)] = 352
    context: Annotated[int, Meta(ge=32, le=8_192)] = 1_024
    # The adapters of a given base instead.
    rank: Annotated[int, Meta(ge=1, le=512)] = 16
    rank_scale: Annotated[float, Meta(ge=1e-3, le=1e3)] = 2.0
    # Copies of each example with other names, some of them in other writing.
    variations: Annotated[int, Meta(ge=0, le=1_000)] = 16
    # Over this share of the training, its beginning, each text ends with its correct query: the hard part is to copy names,
    # and short texts teach that in a fraction of the time.
    alone: Annotated[float, Meta(ge=0, le=1)] = 0.25
    # The tokens of a step, padding included.
    batch: Annotated[int, Meta(ge=32, le=1 << 20)] = 1_024
    weights: WeightFormat = "f32"

    def __post_init__(self) -> None:
        """Refuse heads that cannot share the width: rotary positions turn pairs of numbers, so each takes an even part."""
        if self.width % (2 * self.heads):
            raise InputError(
                f"width {self.width} cannot be shared by {self.heads} heads of an even width; choose a multiple of "
                f"{2 * self.heads}"
            )


class RankerSettings(OptimizerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a ranker is trained."""

    learning_rate: Annotated[float, Meta(ge=1e-8, le=1)] = 3e-5
    warm_up: Annotated[float, Meta(ge=0, le=0.9)] = 0.1
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.01
    # Hops of a step, and of each so many hard negatives, drawn anew for each pass from the best so many of the search.
    batch: Annotated[int, Meta(ge=1, le=4_096)] = 16
    negatives: Annotated[int, Meta(ge=1, le=100)] = 2
    mined: Annotated[int, Meta(ge=1, le=1_000)] = 20
    # Similarities are divided by it; scores of a cross-encoder are not.
    temperature: Annotated[float, Meta(ge=1e-3, le=10)] = 0.05
    # The longest text in tokens, or pair of texts.
    context: Annotated[int, Meta(ge=8, le=8_192)] = 256
    # After so many steps the loss of held-out hops is asked for; where it got no better for so many times, the training ends.
    judge_steps: Annotated[int, Meta(ge=1, le=1 << 30)] = 20
    patience: Annotated[int, Meta(ge=1, le=1_000)] = 3


class CheckerSettings(OptimizerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a checker of claims is trained."""

    learning_rate: Annotated[float, Meta(ge=1e-8, le=1)] = 1e-4
    warm_up: Annotated[float, Meta(ge=0, le=0.9)] = 0.1
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.01
    # Claims of a step.
    batch: Annotated[int, Meta(ge=1, le=4_096)] = 16
    # The longest claim with its evidence, in tokens; longer evidence is read in windows when the checker is used.
    context: Annotated[int, Meta(ge=8, le=8_192)] = 160
    # So many layers, from below, stay as they are.
    frozen: Annotated[int, Meta(ge=0, le=100)] = 3
    # After so many steps the loss of held-out claims is asked for; where it got no better for so many times, the training ends.
    judge_steps: Annotated[int, Meta(ge=1, le=1 << 30)] = 50
    patience: Annotated[int, Meta(ge=1, le=1_000)] = 4
    # Claims that are made of documents, if there are some.
    made: Annotated[int, Meta(ge=1, le=1_000_000)] = 3_000


class Length(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long to train: passes over the texts, steps, or minutes; exactly one of them is given."""

    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Refuse anything but one positive length."""
        lengths = [value for value in (self.epochs, self.steps, self.minutes) if value is not None]
        if len(lengths) != 1 or not (math.isfinite(lengths[0]) and 0 < lengths[0] <= 1e7):
            raise InputError(
                f"the length of training is {', '.join(map(str, lengths)) or 'not given'}; give epochs, steps or minutes, one of "
                "them, above 0"
            )
