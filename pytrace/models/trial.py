"""Model files that nobody vouches for, tried once in a process of its own before this one loads them.

Native code parses them, which a file may crash, hold up for ever or fill the memory with, and no check of ours knows all that.
What was found is remembered by content, so that a model is tried once, wherever it lies and whatever it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytrace.errors import ModelFileError
from pytrace.models import child, registry

# Of the processor, besides the time to read the file from a slow disk; a busy machine gives a process less than its time.
_SECONDS, _BYTES_A_SECOND, _PATIENCE = 30.0, 10e6, 4.0


def check(
    path: Path, load: Callable[..., str], /, *arguments: str, file: str, key: str, size: int, memory: int | None = None
) -> None:
    """Refuse a model of some bytes that would end this process when it is loaded or first used.

    `load` tries it in the child, which gets `memory` bytes. It returns what is wrong beside what this process would say in words
    when it loads the model itself, or an empty text. `file` remembers that by `key`, which stands for the content.
    """
    seconds = _SECONDS + size / _BYTES_A_SECOND

    def trial() -> str:
        try:
            return child.run(
                load, *arguments, returns=str, timeout=_PATIENCE * seconds, processor_seconds=seconds, memory=memory
            )
        except child.ChildFailedError as error:
            if error.crashed:
                return str(error)
            # The machine may be at fault, so that it is not remembered.
            raise ModelFileError(_refusal(path, str(error))) from None

    if ending := registry.remembered(file, key, dict[str, str], trial):
        raise ModelFileError(_refusal(path, ending))


def _refusal(path: Path, ending: str) -> str:
    return f"{path} is no model that can be loaded (a process that tried it {ending}); choose another"
