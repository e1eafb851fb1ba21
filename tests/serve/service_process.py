"""A real `pytrace serve` for tests: a process of its own with the tiny models, on a free port of 127.0.0.1."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.scripted_methods import WAIT

EXAMPLES = Path(__file__).parents[2] / "examples" / "docs"


def build_index(directory: Path, *docs: Path) -> Path:
    """Make an index with the tiny encoder, of the examples if nothing else is given; the same documents are indexed once."""
    shutil.copytree(_built(docs or (EXAMPLES,)), directory)
    return directory


@functools.cache
def _built(docs: tuple[Path, ...]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pytrace-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-m", "pytrace", "index", "build", str(folder / "index"), "--threads", "1"]
    for path in docs:
        command += ["--docs", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder / "index"


def resident(process: int) -> int:
    """Return the bytes of memory that a process has (its resident set)."""
    fields = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


class ServiceProcess:
    """A service that runs: its address, its process, and the lines of its log."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log_path = log

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log so far that are JSON."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request; return status, JSON (or bytes of what is none) and headers."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(asked, timeout=timeout) as response:
                status, content, told = response.status, response.read(), dict(response.headers)
        except urllib.error.HTTPError as error:
            status, content, told = error.code, error.read(), dict(error.headers)
        told = {name.lower(): value for name, value in told.items()}
        if told.get("content-type", "").startswith("application/json"):
            return status, json.loads(content), told
        return status, content, told

    def post(self, path: str, body: object, **options: Any) -> Any:
        """Send JSON; return the answer's, which must be a success."""
        status, answer, _ = self.request("POST", path, body, **options)
        assert status == 200, (status, answer)
        return answer

    def get(self, path: str, **options: Any) -> Any:
        """Return the JSON at a path, which must be a success."""
        status, answer, _ = self.request("GET", path, **options)
        assert status == 200, (status, answer)
        return answer

    def memory(self) -> int:
        """Return the bytes of memory that the process has (its resident set)."""
        return resident(self.process.pid)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60.0) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def served(
    index: Path,
    *options: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    wait_ready: bool = True,
    program: str = "pytrace",
) -> Iterator[ServiceProcess]:
    """Serve an index until the end of the block; `log` is where stderr goes, `program` the module that serves."""
    command = [
        sys.executable,
        "-m",
        program,
        "serve",
        "--index",
        str(index),
        "--port",
        "0",
        "--threads",
        "1",
        *options,
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env={**os.environ, **(environment or {})},
        )
    try:
        url = _address(process, log)
        service = ServiceProcess(process, url, log)
        end = time.monotonic() + WAIT
        while wait_ready and service.request("GET", "/ready")[0] != 200:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("pytrace: serving "):
                return line.partition(" at ")[2].split()[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise TimeoutError(log.read_text())
