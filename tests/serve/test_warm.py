"""A service is ready once the models of its own method are loaded, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.models.language_model import deferred
from pytrace.models.scripted import ScriptedModel
from pytrace.results import Request
from pytrace.serve.service import Service
from pytrace.serve.settings import ServeSettings
from tests.serve import hashed


@pytest.mark.parametrize(
    ("method", "abilities", "loads"), [("hops", UNABLE, 0), ("hops", CAPABLE, 1), ("standard", UNABLE, 1)]
)
def test_the_language_model_is_loaded_at_the_start_only_for_a_method_that_asks_it(
    tmp_path: Path, method: str, abilities: Abilities, loads: int
) -> None:
    loaded: list[ScriptedModel] = []

    def load() -> ScriptedModel:
        loaded.append(ScriptedModel(["Tobias Rook"]))
        return loaded[-1]

    engine = hashed.engine()
    vars(engine).update(model=deferred(load), known_abilities=abilities)
    directory = hashed.build(tmp_path / "index", map(hashed.document, ("ada", "keta")))
    with Service(engine, directory, ServeSettings(), method=method) as service:
        service.warm()
        assert service.ready
        assert len(loaded) == loads
        service.run(Request(question="Where is Keta?")).result(60)
        assert len(loaded) == loads
