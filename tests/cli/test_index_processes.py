"""`pytrace index build --processes`: however it is ended, no process stays, nothing is half there, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.errors import StoreError
from pytrace.retrieval.passages import PassageIndex
from pytrace.retrieval.passages.manifest import read_manifest

ROWS, BATCH = 240, 4
PATIENCE = 120

# Its processes, which are started anew, run it too, but for the last lines.
PROGRAM = textwrap.dedent(
    f"""
    import os, time
    from pytrace.__main__ import main
    from pytrace.engine.loading import Engine
    from pytrace.models.scripted import HashEncoder
    from pytrace.retrieval.passages import writer

    class SlowEncoder(HashEncoder):
        def encode(self, texts, *, kind="passage"):
            with open(os.environ["ENCODED"], "a") as log:
                log.write(f"{{len(texts)}}\\n")
            time.sleep(0.1)
            return super().encode(texts, kind=kind)

    writer._BATCH = {BATCH}
    Engine.encoder = SlowEncoder(dimension=16)
    if __name__ == "__main__":
        main()
    """
)


class Build:
    """Builds an index in two processes, and tells what they encode."""

    def __init__(self, folder: Path) -> None:
        self.index = folder / "index"
        self.parts = [folder / "index.parts" / f"{number}-of-2" for number in (1, 2)]
        self._encoded = folder / "encoded"
        (folder / "program.py").write_text(PROGRAM)
        rows = ({"id": f"{row}", "title": f"No {row}", "text": f"Number {row} follows."} for row in range(ROWS))
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        build = (
            "index",
            "build",
            self.index,
            "--docs",
            folder / "rows.jsonl",
            "--processes",
            2,
            "--threads",
            1,
            "--json",
        )
        self._command = [sys.executable, str(folder / "program.py"), *map(str, build)]

    def start(self) -> subprocess.Popen[str]:
        """Start the command, in a group of processes of its own, as a terminal does."""
        self._encoded.write_text("")
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "ENCODED": str(self._encoded)}
        return subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def encoded(self) -> int:
        """Count the passages that were given to the encoder since the start."""
        return sum(map(int, self._encoded.read_text().split()))

    def kept(self) -> int:
        """Count the passages that both parts keep; 0 before both keep some."""
        counts = []
        for part in self.parts:
            try:
                counts.append(sum(entry.passages for entry in read_manifest(part).pending))
            except StoreError:
                counts.append(0)
        return sum(counts) if all(counts) else 0


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(group: int) -> bool:
    """Tell whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize(
    ("ended_by", "status", "said"),
    [
        (signal.SIGINT, 130, "pytrace: interrupted; the same command goes on with what is stored\n"),
        (signal.SIGTERM, 143, "pytrace: terminated; the same command goes on with what is stored\n"),
        (signal.SIGKILL, -signal.SIGKILL, ""),
    ],
    ids=["interrupt", "terminate", "kill"],
)
def test_a_build_in_processes_that_is_ended_goes_on_without_encoding_again(
    tmp_path: Path, ended_by: signal.Signals, status: int, said: str
) -> None:
    build = Build(tmp_path)
    with build.start() as process:
        until(lambda: build.kept() >= 4 * BATCH or process.poll() is not None)
        if ended_by == signal.SIGINT:
            os.killpg(process.pid, ended_by)  # as a terminal does: to all of them
        else:
            process.send_signal(ended_by)
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, errors
    assert output == ""
    assert said in errors
    assert "Traceback" not in errors
    until(lambda: is_gone(process.pid))
    # Long before its end, and what was encoded until then is kept, but for a batch of each process.
    kept = build.kept()
    assert kept >= 4 * BATCH
    assert build.encoded() - 2 * BATCH <= kept <= build.encoded() < ROWS
    with pytest.raises(StoreError, match="has not been built to its end"):
        PassageIndex(build.index)
    with build.start() as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert build.encoded() == ROWS - kept
    assert json.loads(output)["changes"]["encoded"] == ROWS - kept
    index = PassageIndex(build.index)
    index.verify()
    assert sorted(int(passage.id) for passage in index.passages(range(len(index)))) == [*range(ROWS)]
    assert not build.parts[0].parent.exists()
