"""What a training run depends on, apart from its texts."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from pytrace.errors import InputError

WeightFormat = Literal["f32", "f16", "q8_0"]
"""How the weights of an exported model are stored: 32, 16 or some 8.5 bits each."""


class TrainingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a query generator is built and trained.

    `vocabulary`, `width`, `layers`, `heads` and `inner` shape a model from scratch: tokens, numbers a token, blocks,
    attention heads a block, and the width within a block's network. `context` is its longest sequence in tokens. `rank` and
    `rank_scale` shape the adapters of a given base instead.

    `variations` are copies of each example with other names, some of them in other writing. Over the share `alone` of the
    training, its beginning, each text ends with its correct query: the hard part is to copy names, and short texts teach that
    in a fraction of the time.

    `batch` counts the tokens of a step, padding included. The rate rises to `learning_rate` over the share `warm_up` of the
    training and falls as a cosine to a tenth of it. `checkpoint_steps` and `checkpoint_minutes` say how often the state is
    kept, whichever comes first.
    """

    vocabulary: int = 2_048
    width: int = 128
    layers: int = 4
    heads: int = 4
    inner: int = 352
    context: int = 1_024
    rank: int = 16
    rank_scale: float = 2.0
    variations: int = 16
    alone: float = 0.25
    batch: int = 1_024
    learning_rate: float = 2e-3
    warm_up: float = 0.05
    weight_decay: float = 0.1
    largest_gradient: float = 1.0
    checkpoint_steps: int = 500
    checkpoint_minutes: float = 5.0
    weights: WeightFormat = "f32"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no model can be built or trained with."""
        for name, least, most in (
            ("vocabulary", 258, 65_536), ("width", 8, 4_096), ("layers", 1, 64), ("heads", 1, 128), ("inner", 8, 16_384),
            ("context", 32, 8_192), ("rank", 1, 512), ("rank_scale", 1e-3, 1e3), ("variations", 0, 1_000), ("alone", 0.0, 1.0),
            ("batch", 32, 1 << 20), ("learning_rate", 1e-8, 1.0), ("warm_up", 0.0, 0.9), ("weight_decay", 0.0, 10.0),
            ("largest_gradient", 1e-6, 1e6), ("checkpoint_steps", 1, 1 << 30), ("checkpoint_minutes", 1e-3, 1e6),
            ("seed", 0, (1 << 32) - 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise InputError(f"{name} is {value}; choose it from {least} to {most}")
        if self.width % (2 * self.heads):
            raise InputError(
                f"width {self.width} cannot be shared by {self.heads} heads of an even width; choose a multiple of "
                f"{2 * self.heads}"
            )


class Length(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long to train: passes over the texts, steps, or minutes; exactly one of them is given."""

    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Refuse anything but one positive length."""
        given = [value for value in (self.epochs, self.steps, self.minutes) if value is not None]
        if len(given) != 1 or not (math.isfinite(given[0]) and 0 < given[0] <= 1e7):
            raise InputError(
                f"the length of training is {', '.join(map(str, given)) or 'not given'}; give epochs, steps or minutes, one of "
                "them, above 0"
            )
