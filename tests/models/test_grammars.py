"""Grammars accept what they say and nothing else: tried on the engine with a random model, which would write anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.errors import InputError
from pytrace.models.grammars import choices
from pytrace.models.llama.llama_cpp import LlamaCppModel

FEATURES = {
    "type": "object",
    "properties": {
        "intent": {"type": "string", "maxLength": 12},
        "nodes": {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 1, "maxItems": 3},
        "kind": {"enum": ["bridge", "comparison"]},
    },
    "required": ["intent", "nodes", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(random_gguf: Path) -> Iterator[LlamaCppModel]:
    with LlamaCppModel(random_gguf, threads=1, context=512) as model:
        yield model


def test_a_choice_is_one_of_the_texts(model: LlamaCppModel) -> None:
    texts = ["yes", "no", 'say "no"', "back\\slash", "two\nlines", "é"]
    written = model.generate(["a", "b"], max_tokens=60, temperature=3.0, n=20, grammar=choices(texts))
    found = {completion.text.removeprefix(" ") for row in written for completion in row}
    assert found <= set(texts)
    assert len(found) > 1


@pytest.mark.parametrize("texts", [[], [""], ["a", ""], "yes"])
def test_a_choice_of_nothing_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="a choice needs"):
        choices(texts)
