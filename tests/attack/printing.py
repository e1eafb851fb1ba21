"""Foreign text that steers terminals, in every place from which it can reach one, and standard streams that are closed, full or left."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.attack.frame import PYTRACE, Attack, command
from tests.server_double import double
from tests.sparql_server import sparql_server

# Sets the title, clears the screen, turns text round, hides it, goes back over it, begins a line of its own.
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31mTern\u202egnp.exe\u202c\u2066x\u2069\u200e\u200f\u061c\x7f\x08\r\x00\ufeff\U000e0041"
)
_WORDS = f"Tern{HOSTILE}"
_QUESTION = f"Who founded the owner of the {_WORDS}?"
_NAMED = "Tern\x1b[2J\u202e\n\u2066\x9b.txt"  # no file's name holds all of them

# {} stands for the folder of `_place`, [T] for the text and [N] for the file of that name.
COMMANDS = (
    "docs show docs",
    "docs show docs/[N]",
    "docs show docs/missing[T]",
    "docs show docs --where [T]=x",
    "docs show docs --language [T]",
    "docs show docs --[T]",
    "[T]",
    "ask [T] --docs docs --method bm25",
    "ask Who? --docs docs --method bm25 --explain",
    "ask Who? --docs docs --method [T]",
    "ask Who? --docs docs --method bm25 --set [T]=1",
    "ask Who? --docs docs --method bm25 --encoder [T]",
    "ask Who? --docs docs --llm [T]",
    "ask Who? --docs docs --llm http://[T]",
    "ask Who? --docs docs --llm http://me:attack-secret@127.0.0.1:1[T]",
    "ask Who? --questions docs/[N] --docs docs --method bm25",
    "ask [T] --docs docs --kg new.kg[T]",
    "ask Who? --method cok --kb kg.tsv --threads 1",
    "kg import kg.tsv --out new.kg",
    "kg import kg.tsv --out [T].kg",
    "kg import docs/[N] --out new.kg",
    "kg show kg",
    "kg show kg --entity [T]",
    "kg show kg --sources",
    "kg export kg",
    "kg remove kg [T]",
    "kg edit kg [T] --triples kg.tsv",
    "kg show [T]",
    "certify --kg kg.tsv --responses questions.jsonl --threads 1",
    "certify --kg kg.jsonl --responses questions.jsonl --threads 1",
    "certify --kg kg.tsv --responses docs/[N] --threads 1",
    "certify paths --kg kg.tsv --data questions.jsonl --out [T].jsonl",
    "certify paths --kg kg.tsv --data questions.jsonl --out paths.jsonl",
    "eval bm25 --data questions.jsonl --threads 1 --out run",
    "eval bm25 --data questions.jsonl --threads 1 --out [T]",
    "perturb --data questions.jsonl --out [T].jsonl --threads 1",
    "report [T]",
    "tune bm25 --data questions.jsonl --out [T] --threads 1 --trials 1",
    "index show [T]",
    "index build new.index[T] --docs docs --threads 1",
    "search [T] --index new.index",
    "models list",
    "models path [T]",
    "models pull [T]",
    "models verify [T]",
    "train evaluate --generator [T] --data questions.jsonl",
    "bench [T]",
    "doctor",
)
STREAMS = (
    ">&-",
    "2>&-",
    "<&-",
    "<&- >&- 2>&-",
    ">/dev/full",
    "2>/dev/full",
    ">/dev/full 2>&1",
    "| true",
    "2>&1 | true",
    "1</dev/null",
)
SHOWN = (
    "docs show docs",
    "kg show kg",
    "models list",
    "doctor",
    "kg show missing",
    "--help",
    "certify --help",
    "--version",
    "",
)


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    folder = _place(workplace / "place")
    lines = [(line, as_json) for line in COMMANDS for as_json in (False, True)]
    quick = [each for each in lines if each[0].split()[0] in {"docs", "kg", "models", "report"}]  # which load no model
    for line, as_json in random.sample(quick, 4) if short else lines:
        words = [*_filled(line), *(["--json"] if as_json else [])]
        yield Attack(
            f"{line}{' --json' if as_json else ''}",
            partial(command, words, cwd=folder, seconds=90, must_not_say=["attack-secret"]),
        )
    for name in () if short else ("rag", "cot", "trace"):
        yield Attack(f"a model that writes escapes: {name}", partial(_ask_hostile_model, folder, name))
    for shown in () if short else ((), ("--json",)):
        yield Attack(f"ask a graph of hostile documents {' '.join(shown)}", partial(_ask_graph, folder, shown))
    yield Attack("an endpoint that says escapes", partial(_ask_hostile_endpoint, folder))
    streams = [(line, stream) for line in SHOWN for stream in STREAMS]
    for line, stream in random.sample(streams, 3) if short else streams:
        yield Attack(f"{line} {stream}", partial(_redirected, folder, line, stream))


def _filled(line: str) -> list[str]:
    # No argument holds a zero byte, and none of a file's name a slash.
    text = _WORDS.replace("\x00", "").replace("/", "")
    return [word.replace("[T]", text).replace("[N]", _NAMED) for word in line.split()]


def _place(folder: Path) -> Path:
    """Make documents, triples, questions and a catalog of hostile text."""
    (folder / "docs").mkdir(parents=True)
    (folder / "home").mkdir()
    text = f"The {_WORDS} is a ferry of Brack{HOSTILE}. Brack was founded by Tobias Rook."
    (folder / "docs" / _NAMED).write_text(text, encoding="utf-8")
    (folder / "docs" / "page.html").write_text(f"<title>{_WORDS}</title><h1>{HOSTILE}</h1><p>{text}", encoding="utf-8")
    rows = [
        {"id": HOSTILE, "title": _WORDS, "text": text, "source": HOSTILE, "metadata": {HOSTILE: HOSTILE}},
        {"title": "deep", "text": text, "metadata": {"a": [HOSTILE]}},
    ]
    (folder / "docs" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    triple = [part.replace("\r", "") for part in (_WORDS, f"owned by{HOSTILE}", f"Brack{HOSTILE}")]
    (folder / "kg.tsv").write_text("\t".join(triple) + "\n", encoding="utf-8")
    record = {"head": triple[0], "relation": triple[1], "tail": triple[2], "source": HOSTILE, "document": HOSTILE}
    (folder / "kg.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    row = {
        "id": HOSTILE, "question": _QUESTION, "answers": [HOSTILE], "gold_paths": [[triple]], "supporting": [_WORDS],
        "documents": [{"title": _WORDS, "sentences": [text, HOSTILE]}],
        "response": f"1. {' '.join(triple)}.\nSo the answer is ({HOSTILE}).",
    }  # fmt: skip
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    if wrong := command(["kg", "import", "kg.tsv", "--out", "kg"], cwd=folder, codes=(0,), seconds=90):
        raise AssertionError(wrong)
    return folder


def _ask_graph(folder: Path, shown: tuple[str, ...]) -> str | None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        graph = f"{place}/built.kg"
        return command(
            ["kg", "build", "--docs", "docs", "--out", graph, "--threads", "1", *shown], cwd=folder, codes=(0,), seconds=90
        ) or command(
            ["ask", _QUESTION.replace("\x00", ""), "--kg", graph, "--docs", "docs", "--explain", "--threads", "1", *shown],
            cwd=folder, codes=(0,), seconds=90,
        )  # fmt: skip


def _ask_hostile_model(folder: Path, method: str) -> str | None:
    def writes(handler: object, path: str, number: int) -> bool:
        if path != "/v1/completions" or number < 1:
            return False
        choice = {"text": f" {HOSTILE}\n", "finish_reason": "stop"}
        handler.reply({"choices": [choice]})  # type: ignore[attr-defined]
        return True

    with double("openai") as server:
        server.trouble = writes
        settings = ["--set", "scoring=black-box"] if method == "trace" else []
        words = ["ask", _QUESTION.replace("\x00", ""), "--method", method, "--llm", server.url, "--explain", *settings]
        documents = [] if method == "cot" else ["--docs", "docs"]
        return command([*words, *documents, "--threads", "1"], cwd=folder, seconds=90)


def _ask_hostile_endpoint(folder: Path) -> str | None:
    said = json.dumps(HOSTILE, ensure_ascii=False)[1:-1]
    turtle = f'<http://a/x> <http://a/r> "{said}" ; <http://www.w3.org/2000/01/rdf-schema#label> "{said}" .'
    with sparql_server(turtle.replace("\\u0000", "")) as server, double("openai") as model:
        words = ["ask", "Who?", "--method", "cok", "--query-grammar", "none", "--kb", server.url, "--llm", model.url]
        return command([*words, "--explain", "--threads", "1"], cwd=folder, seconds=90)


def _redirected(folder: Path, line: str, stream: str) -> str | None:
    """Run a command with streams of its own; it may fail, in silence where nobody hears, and not claim that all went well."""
    with tempfile.TemporaryFile() as heard:
        script = f"set -o pipefail; {PYTRACE} {line} {stream}"
        done = subprocess.run(["bash", "-c", script], cwd=folder, stdout=heard, stderr=heard, timeout=90, check=False)
        heard.seek(0)
        said = heard.read().decode("utf-8", "replace")
    if done.returncode not in {0, 1, 2}:
        return f"exit status {done.returncode}: {said[-300:]}"
    if "Traceback" in said or "fault in pytrace" in said or "Exception ignored" in said:
        return said[-300:]
    if stream in {">&-", ">/dev/full", "1</dev/null", "<&- >&- 2>&-", ">/dev/full 2>&1"} and done.returncode == 0:
        return "exit status 0 though nothing got out"
    if stream in {">&-", ">/dev/full", "1</dev/null"} and not said.strip():
        return f"exit status {done.returncode} without a word of why"
    return None
