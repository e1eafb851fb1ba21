"""Small networks and texts that the tests of training share."""

from __future__ import annotations

import random
from typing import Any

from pytrace.training import encoding, export, network, trainer
from pytrace.training.encoding import Piece, TrainingText
from pytrace.training.training_settings import TrainingSettings

torch = network.train_package("torch")

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


def fresh(words: encoding.ByteTokenizer, settings: TrainingSettings = SMALL) -> Any:
    return network.new_network(settings, size=words.size, end=words.end)


def weights(net: Any) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Killed(Exception):
    pass


def killer(step: int) -> Any:
    def tell(progress: trainer.Progress) -> None:
        if progress.step == step:
            raise Killed

    return tell


def odd_texts(count: int) -> list[str]:
    chance = random.Random(0)
    ranges = (
        (0x20, 0x7E), (0x20, 0x7E), (0x9, 0xD), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F),
        (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xACFF), (0xFE00, 0xFE0F), (0x10400, 0x1044F),
        (0x1D400, 0x1D4FF), (0x1F300, 0x1F64F),
    )  # fmt: skip
    words = ("'s", "'ll", "  ", " \n", "\n", "don't", " 12", "3/4", ":/", " ?x", encoding.END, "relation:/", "\ud800")
    return [
        "".join(
            chance.choice(words) if chance.random() < 0.2 else chr(chance.randint(*chance.choice(ranges)))
            for _ in range(chance.randint(0, 40))
        )
        for _ in range(count)
    ]
