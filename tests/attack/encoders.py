"""Encoders whose graph or tokenizer takes all time or memory, or is broken by chance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.attack.frame import Attack, command
from tests.attack.gguf import AT_ONCE, load_all
from tests.attack.readers import mutated
from tests.hostile_encoders import GRAPHS, TOKENIZERS, make_hostile
from tests.models.test_encoder import make

_USE = """
from pytrace.models.encoders.encoder import OnnxEncoder

def use(path):
    OnnxEncoder(path, threads=1).encode(["red house", ""])
"""


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    home = {"PYTRACE_HOME": str(workplace / "home")}  # where the verdicts on what chance made do no harm
    whole = make(workplace / "whole")
    for batch in range(1 if short else 10):
        places = [workplace / f"{batch}-{number}" for number in range(2 if short else AT_ONCE)]
        for place in places:
            name = random.choice(("model.onnx", "tokenizer.json"))
            (make(place) / name).write_bytes(mutated([(whole / name).read_bytes()], random))
        yield Attack(f"broken encoders, batch {batch}", lambda places=places: load_all(places, _USE, **home))
    (workplace / "it.txt").write_text("It is a tern.")
    chosen = [*TOKENIZERS][:1] if short else [*GRAPHS, *TOKENIZERS]
    for what in chosen:
        place = make_hostile(workplace / what.replace(" ", "-"), what)
        documents = ["--docs", workplace / "it.txt"]
        arguments = ["index", "build", f"{place}-index", *documents, "--encoder", place, "--threads", "1"]
        yield Attack(
            f"encoder: {what}",
            lambda arguments=arguments: command(
                arguments, seconds=150, codes=(2,), env=home, must_say="is no model that can be loaded"
            ),
        )
