"""Texts for the fuzzy kernel's bench: real sentences and titles where there are any, random words otherwise."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import NamedTuple

from pytrace.errors import DataError, InputError


class Texts(NamedTuple):
    """Sentences, names of entities, and a word about where they are from."""

    sentences: list[str]
    entities: list[str]
    origin: str


def read(folder: Path | None, chance: random.Random) -> Texts:
    """Return the texts of a folder, of the usual places, or random ones."""
    usual = Path(os.environ.get("PYTRACE_DATA") or Path(__file__).parents[3] / "shared" / "data")
    data = usual if folder is None else folder
    paths = sorted((data / "multihop").glob("*.jsonl")) or sorted(data.glob("*.jsonl"))
    if folder is not None and not paths:
        raise InputError(
            f"{folder} has no *.jsonl file with questions, nor has its folder multihop; correct --data or leave it out"
        )
    # Each text once, in the order of the files, so that a seed draws the same ones again.
    sentences: dict[str, None] = {}
    titles: dict[str, None] = {}
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    for title, body in json.loads(line)["context"]:
                        titles[title] = None
                        sentences.update(dict.fromkeys(body))
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        "is no question with a context of [title, sentences] pairs; correct it or name another folder "
                        "as --data",
                        path=path,
                        line=number,
                    ) from error
    if len(sentences) > 1 and len(titles) > 1:
        return Texts(list(sentences), list(titles), f"{len(sentences):,} real sentences, {len(titles):,} real titles")
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(2000)]
    return Texts(
        [" ".join(chance.choices(words, k=18)) for _ in range(1000)],
        [" ".join(chance.choices(words, k=2)) for _ in range(600)],
        "random words, for want of evaluation data (see --data)",
    )
