"""Licences that do not go with Apache-2.0 are refused."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture
def licences(monkeypatch):
    monkeypatch.syspath_prepend("tools")
    return importlib.import_module("licences")


def test_all_that_the_lock_names_is_allowed_and_listed(licences) -> None:
    assert licences.main([]) == 0


@pytest.mark.parametrize(
    ("licence", "right"),
    [
        ("MIT", True),
        ("Apache-2.0 WITH LLVM-exception AND BSD-3-Clause", True),
        ("MPL-1.1 OR GPL-2.0-only OR LGPL-2.1-or-later", True),
        ("MPL-2.0 AND (Apache-2.0 OR GPL-2.0-only)", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND AGPL-3.0-only", False),
        ("SSPL-1.0", False),
        ("none stated", False),
    ],
)
def test_one_licence_of_a_choice_is_enough_and_all_that_are_joined_count(licences, licence: str, right: bool) -> None:
    assert licences.allowed(licence) is right


def test_a_package_without_a_licence_or_with_a_wrong_one_is_named(licences) -> None:
    packages = [{"name": name, "version": "1"} for name in ("new", "bad", "good", "codespell", "other")]
    known = {"bad": {"1": "GPL-3.0-only"}, "good": {"1": "MIT"}, "new": {"0": "MIT"}} | {
        name: {"1": "GPL-2.0-only"} for name in ("codespell", "other")
    }
    assert [line.split(":")[0] for line in licences.refused(packages, known)] == ["new 1", "bad 1", "other 1"]


def test_metadata_in_other_words_than_spdx_is_understood(licences) -> None:
    classified = {"classifier": ["License :: OSI Approved :: MIT License"]}
    assert licences.expression("some", {"license_expression": "ISC", **classified}) == "ISC"
    assert licences.expression("some", {"license": "see the file", **classified}) == "MIT"
    assert licences.expression("some", {"license": "Apache License\n\nVersion 2.0, January 2004"}) == "Apache-2.0"
    assert licences.expression("some", {"license": "GPL3"}) == "GPL3"
    assert licences.expression("some", {}) == "none stated"


def test_what_an_extra_brings_follows_the_markers_of_the_lock(licences) -> None:
    locked = licences.locked
    packages = locked.read()
    base = {package["name"] for package in locked.needed(packages)}
    assert {"numpy", "rich", "markdown-it-py", "pygments"} <= base
    assert not base & {"onnxruntime", "pytest", "torch"}
    served = {package["name"] for package in locked.needed(packages, extras=["serve"], base=False)}
    assert {"uvicorn", "h11", "pydantic-core"} <= served
    for extra, version in (("bench", "6"), ("serve-ray", "7")):
        (protobuf,) = (p for p in locked.needed(packages, extras=[extra]) if p["name"] == "protobuf")
        assert protobuf["version"].split(".")[0] == version
