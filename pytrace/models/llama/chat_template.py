"""A model's chat template: code out of a file that somebody else made.

Jinja's sandbox keeps it from this process's objects, but not from its time and memory (`'a' * 10**9`, loops in loops). So a
template that nobody vouches for runs in a process of its own, under limits. It never sees a prompt's words, only who speaks when:
what it makes of a conversation is remembered, and most conversations are alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from pytrace.errors import ModelError
from pytrace.models import child, registry
from pytrace.models.language_model import without_system

Messages = list[dict[str, str]]

# Templates take milliseconds; the process has to start, on a machine that may be busy.
_SECONDS, _PROCESSOR_SECONDS, _MEGABYTES = 30.0, 5, 1024
_MOST_CHARACTERS = 1_000_000


def compile_template(template: str, special: Mapping[str, str], *, trusted: bool) -> Callable[[Messages], str]:
    """Return what turns messages into a prompt; raises `ModelError` for a template that cannot be used."""
    try:
        if len(template) > _MOST_CHARACTERS:
            raise ValueError(f"it has {len(template):,} characters")
        _environment().parse(template)  # compiling would compute what is constant, however long that takes
    except Exception as error:  # whatever odd code may raise
        raise _unusable(error) from error
    if trusted:
        return lambda messages: _usable(*_render(template, dict(special), messages))

    def apart(messages: Messages) -> str:
        call = msgspec.json.encode([template, special, messages])

        def render() -> str:
            try:
                outcome = child.run(
                    _render, template, dict(special), messages, returns=tuple[bool, str], timeout=_SECONDS,
                    processor_seconds=_PROCESSOR_SECONDS, memory=_MEGABYTES << 20,
                )  # fmt: skip
            except child.ChildFailedError as error:
                raise _unusable(f"the process that ran it {error}") from None
            return _usable(*outcome)

        return registry.remembered("chat-templates.json", hashlib.sha256(call).hexdigest(), dict[str, str], render)

    return apart


def _render(template: str, special: dict[str, str], messages: Messages) -> tuple[bool, str]:
    """Return whether a template could be used, and the prompt or else what is wrong."""
    import jinja2

    try:
        text = str(_compiled(template).render(messages=messages, add_generation_prompt=True, **special))
    except Exception as error:  # noqa: BLE001 - whatever the code in a file may raise
        # Some templates know no system role.
        if isinstance(error, jinja2.TemplateError) and len(messages) > 1 and messages[0]["role"] == "system":
            return _render(template, special, without_system(messages))
        return False, " ".join(str(error).split()) or type(error).__name__
    if len(text) > _MOST_CHARACTERS:
        return False, f"it makes {len(text):,} characters of a prompt"
    return True, text


@cache
def _compiled(template: str) -> Any:
    return _environment().from_string(template)


@cache
def _environment() -> Any:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    return environment


def _usable(good: bool, text: str) -> str:
    if not good:
        raise _unusable(text)
    return text


def _unusable(error: object) -> ModelError:
    return ModelError(f"the model's chat template cannot be used ({str(error)[:300]}); use style='plain'")
