"""The assertions of `pytrace.integrations.checks` as fixtures, which pytest finds where pytrace is installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def assert_faithful() -> Callable[..., None]:
    """Return `pytrace.integrations.checks.assert_faithful`: fail unless contexts support each claim of an answer."""
    from pytrace.integrations import checks

    return checks.assert_faithful


@pytest.fixture(scope="session")
def assert_supported() -> Callable[..., None]:
    """Return `pytrace.integrations.checks.assert_supported`: fail unless documents support a claim."""
    from pytrace.integrations import checks

    return checks.assert_supported


@pytest.fixture(scope="session")
def assert_evidence() -> Callable[..., None]:
    """Return `pytrace.integrations.checks.assert_evidence`: fail unless a search finds what answers a question."""
    from pytrace.integrations import checks

    return checks.assert_evidence
