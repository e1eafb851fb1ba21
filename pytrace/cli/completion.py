"""What a shell completes beside options and files: ``eval "$(_PYTRACE_COMPLETE=bash_source pytrace)"``."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from pytrace.errors import PytraceError


def complete_model(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models and profiles whose names begin so; a shell completes files, too."""
    from pytrace.models import registry

    try:
        names = registry.catalog().names
    except PytraceError:  # an own catalog that cannot be read, as the command itself will say
        names = ()
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]
