"""The bill of materials names all that comes with pytrace; `make sbom` checks it against CycloneDX's schema."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture
def sbom(monkeypatch):
    monkeypatch.syspath_prepend("tools")
    return importlib.import_module("sbom")


def test_it_has_the_base_the_extras_and_the_models_with_hashes_and_licences(sbom) -> None:
    bill = sbom.bill(["serve"])
    components = {component["name"]: component for component in bill["components"]}
    assert components["numpy"]["scope"] == "required"
    assert components["uvicorn"]["scope"] == "optional"
    assert components["uvicorn"]["properties"] == [{"name": "pytrace:extra", "value": "serve"}]
    assert "onnxruntime" not in components
    for component in bill["components"]:
        assert component["licenses"]
        if component["type"] == "library":
            assert component["externalReferences"][0]["hashes"]
    files = {file["name"]: file for file in components["minilm-l6-int8"]["components"]}
    assert files["model.onnx"]["hashes"][0]["content"].startswith("8199be6f")
    assert {part["name"]: bool(part["version"]) for part in bill["metadata"]["component"]["components"]} == {
        "pybind11": True,
        "cytoscape": True,
    }


def test_what_depends_on_what_is_told_of_every_package_and_the_same_each_time(sbom) -> None:
    bill = sbom.bill([])
    depends = {each["ref"].rpartition("@")[0]: each["dependsOn"] for each in bill["dependencies"]}
    assert len(depends) == 1 + sum(component["type"] == "library" for component in bill["components"])
    assert any("/markdown-it-py@" in each for each in depends["pkg:pypi/rich"])
    assert sbom.bill([]) == bill
