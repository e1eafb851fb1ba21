"""Model files whose headers are broken by chance, and chat templates that take all time or memory."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.attack.frame import Attack, command
from tests.gguf_files import CHAT_TEMPLATE, write_random_gguf

# Loads and uses each file that it is given, and says of each how it went; what crashes it is the last that it named.
_LOAD_ALL = """
import json, sys
from pytrace.errors import PytraceError

def say(what, words):
    print(json.dumps([what, words]), flush=True)

for path in sys.argv[1:]:
    say("begun", path)
    try:
        use(path)
        say("loaded", path)
    except PytraceError as error:
        say("refused", str(error))
"""
_USE = """
from pytrace.models.language_model import Prompt
from pytrace.models.llama.llama_cpp import LlamaCppModel

def use(path):
    with LlamaCppModel(path, threads=1, context=64) as model:
        model.generate(["A b", Prompt("Say.", (), "c")], max_tokens=2)
"""
_ENCODE = """
from pytrace.models.llama.gguf_encoder import GgufEncoder

def use(path):
    with GgufEncoder(path, threads=1) as encoder:
        encoder.encode(["A b", "", "c " * 99], kind="query")
"""
_RANK = """
from pytrace.models.llama.gguf_reranker import GgufReranker

def use(path):
    with GgufReranker(path, threads=1) as reranker:
        reranker.score([("A b?", "c"), ("", "c " * 99)])
"""
AT_ONCE, SECONDS = 20, 240
_EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
TEMPLATES = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a text of 10^10 characters": "{{ 'a' * 10 ** 10 }}",
    "a number of 10^9 digits": "{{ 10 ** (10 ** 9) }}",
    "a text that doubles": "{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a wide column": "{{ 'a'.center(10 ** 10) }}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
}


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    whole = write_random_gguf(workplace / "whole.gguf", layers=1, width=32).read_bytes()
    for batch in range(1 if short else 20):
        files = []
        for number in range(8 if short else AT_ONCE):
            files.append(workplace / f"{batch}-{number}.gguf")
            files[-1].write_bytes(with_broken_header(whole, random))
        yield Attack(f"broken headers, batch {batch}", lambda files=files: load_all(files))
    yield from _pooled(workplace, random, short=short)
    tiny = ["ask", "What is it?", "--docs", workplace / "it.txt", "--method", "rag:reading=free", "--threads", "1"]
    (workplace / "it.txt").write_text("It is a tern.")
    chosen = random.sample(sorted(TEMPLATES), 1) if short else sorted(TEMPLATES)
    for name in chosen:
        path = write_random_gguf(workplace / f"{name}.gguf", template=TEMPLATES[name] + CHAT_TEMPLATE)
        arguments = [*tiny, "--llm", path, "--llm-style", "chat"]
        yield Attack(
            f"chat template: {name}",
            lambda arguments=arguments: command(arguments, seconds=60, codes=(1,), must_say="chat template"),
        )


def _pooled(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    """Break encoders and rerankers, and give each where the other is due."""
    from tests import embedding_gguf  # imports torch, which other attacks need not

    encoder = embedding_gguf.write(embedding_gguf.bert(), workplace / "encoder.gguf", pooling=embedding_gguf.MEAN)
    reranker = embedding_gguf.write(
        embedding_gguf.modern_bert(labels=2),
        workplace / "reranker.gguf",
        pooling=embedding_gguf.RANK,
        labels=("yes", "no"),
    )
    llm = workplace / "whole.gguf"
    kinds = (("encoders", encoder, _ENCODE), ("rerankers", reranker, _RANK))
    for what, whole, use in kinds[: 1 if short else 2]:
        for batch in range(1 if short else 10):
            files = [workplace / f"{what}-{batch}-{number}.gguf" for number in range(2 if short else AT_ONCE)]
            for file in files:
                file.write_bytes(with_broken_header(whole.read_bytes(), random))
            yield Attack(
                f"broken headers of {what}, batch {batch}",
                lambda files=files, use=use: load_all([*files, llm, encoder, reranker], use),
            )


def with_broken_header(whole: bytes, random: Random) -> bytes:
    """Break a file's header in one to three places."""
    data = bytearray(whole)
    # Behind a key stand its type and value, behind a tensor's name its shape; most of the rest is the vocabulary.
    names = [
        match.end()
        for match in re.finditer(rb"(?:llama|bert|modern-bert|general|tokenizer)\.[a-z_.]+|[a-z_0-9.]+\.weight", whole)
    ]
    for _ in range(random.randint(1, 3)):
        place = random.choice([random.choice(names) + random.randrange(24), random.randrange(names[-1] + 40)])
        form = random.choice("BIQ")
        kind = random.random()
        if kind < 0.3:
            data[place] ^= 1 << random.randrange(8)
        elif kind < 0.8:
            value = random.choice(_EXTREMES) % (1 << 8 * struct.calcsize(form))
            struct.pack_into(f"<{form}", data, place, value)
        elif kind < 0.9:
            del data[place : place + random.randint(1, 64)]
        else:
            data[place:place] = data[: random.randint(1, 64)]
    return bytes(data[: random.randrange(len(data))] if random.random() < 0.1 else data)


def load_all(files: list[Path], use: str = _USE, **env: str) -> str | None:
    """Load files one after another in a process, and say which of them it did not survive, or how it was refused badly."""
    done = subprocess.run(
        [sys.executable, "-c", use + _LOAD_ALL, *map(str, files)], capture_output=True, text=True, timeout=SECONDS, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )  # fmt: skip
    try:
        said = [json.loads(line) for line in done.stdout.splitlines()]
    except ValueError:
        return f"printed on stdout: {done.stdout[-300:]!r}"
    if done.returncode:
        return f"exit status {done.returncode} at {said[-1] if said else 'the start'}: {done.stderr[-300:]}"
    if done.stderr:
        return f"printed on stderr: {done.stderr[-300:]!r}"
    for what, words in said:
        if what == "refused" and ("\n" in words or len(words) > 1_000):
            return f"refused in no sentence: {words[:300]!r}"
    return None
