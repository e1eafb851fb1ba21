"""Real servers on 127.0.0.1 in processes of their own: llama.cpp's out of xllamacpp's wheel, and llama-cpp-python's.

A server ends when its standard input closes, so that none outlives the tests, however these end. xllamacpp's wheel is
compiled without AMX; llama-cpp-python's own server is given float32 weights, which llama.cpp's AMX code leaves alone.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

# What the two scripts share: end with the standard input, whatever native code is doing.
WATCH = """
import json, os, sys, threading
def watch():
    sys.stdin.read()
    os._exit(0)
given = json.loads(sys.argv.pop())
threading.Thread(target=watch, daemon=True).start()
"""
LLAMA_SERVER = f"""{WATCH}
import time, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = given["path"]
parameters.hostnames = ["127.0.0.1"]
parameters.port = given["port"]
parameters.n_ctx = given["context"] * given["slots"]
parameters.n_parallel = given["slots"]
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.api_keys = given["keys"]
parameters.warmup = False
parameters.embedding = given["task"] != "text"
if given["task"] == "rank":
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
if given["float32"]:
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(parameters)
threading.Event().wait()
"""
LLAMA_CPP_PYTHON = f"""{WATCH}
import runpy
sys.argv[1:] = given
runpy.run_module("llama_cpp.server", run_name="__main__")
"""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _running(script: str, given: object, port: int, log: Path) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            try:
                with urllib.request.urlopen(f"{url}/v1/models", timeout=5):
                    break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 401:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        else:
            pytest.fail(f"the server does not answer: {log.read_text(errors='replace')[-2000:]}")
        yield url
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


@contextmanager
def llama_server(
    path: Path,
    log: Path,
    *,
    context: int = 512,
    slots: int = 2,
    keys: tuple[str, ...] = (),
    float32: bool = True,
    task: Literal["text", "embedding", "rank"] = "text",
) -> Iterator[str]:
    """Run llama.cpp's own server and yield its address."""
    pytest.importorskip("xllamacpp", reason="xllamacpp, which brings llama.cpp's server, is not installed")
    port = free_port()
    given = {
        "path": str(path), "port": port, "context": context, "slots": slots, "keys": keys, "float32": float32, "task": task,
    }  # fmt: skip
    with _running(LLAMA_SERVER, given, port, log) as url:
        yield url


@contextmanager
def llama_cpp_python_server(path: Path, log: Path, *, context: int = 512, embedding: bool = False) -> Iterator[str]:
    """Run llama-cpp-python's server and yield its address."""
    pytest.importorskip("uvicorn", reason="llama-cpp-python[server] is not installed")
    port = free_port()
    options = {"model": path, "host": "127.0.0.1", "port": port, "n_ctx": context, "n_threads": 1, "verbose": False}
    options |= {"embedding": True, "n_batch": context} if embedding else {}
    given = [f"--{name}={value}" for name, value in options.items()]
    with _running(LLAMA_CPP_PYTHON, given, port, log) as url:
        yield url
