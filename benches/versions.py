"""Two versions side by side, call by call: `/v1/search` and `/v1/ask` of a warm service, and a cold `pytrace ask`.

    python -m benches.versions CHECKOUT [--docs FOLDER] [--questions FILE] [--rounds 16]

CHECKOUT is a checkout of the other version with an environment in its `.venv`. Both index the same documents and answer the same questions
in turns, each by its default method on one thread. Medians, and their ratio: below 1 where this version is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.remote_servers import free_port

HERE = Path(__file__).parents[1]
ASK_ROUNDS = 2  # of /v1/ask, which takes seconds where a language model answers
READY = 120  # seconds to wait for a service


def pytrace(checkout: Path, *arguments: str) -> list[str]:
    return [str(checkout / ".venv" / "bin" / "python"), "-m", "pytrace", *arguments]


@contextmanager
def service(checkout: Path, index: Path) -> Iterator[str]:
    """Run a service over an index, and yield its address when it answers."""
    port = free_port()
    command = pytrace(checkout, "serve", "--index", str(index), "--port", str(port), "--threads", "1")
    process = subprocess.Popen(command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(2 * READY):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        else:
            raise SystemExit(f"the service of {checkout} did not answer within {READY} s")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def seconds_of_call(address: str, path: str, question: str) -> float:
    body = json.dumps({"question": question}).encode()
    request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"})
    begun = time.perf_counter()
    urllib.request.urlopen(request, timeout=120).read()
    return time.perf_counter() - begun


def seconds_of_command(checkout: Path, index: Path, question: str) -> float:
    begun = time.perf_counter()
    subprocess.run(
        pytrace(checkout, "ask", question, "--index", str(index)), cwd=checkout, capture_output=True, check=True
    )
    return time.perf_counter() - begun


def show(what: str, times: dict[Path, list[float]]) -> None:
    mine, other = (median(each) for each in times.values())
    print(f"| {what} | {len(times[HERE])} | {1000 * mine:.0f} | {1000 * other:.0f} | {mine / other:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--docs", type=Path, default=HERE / "examples" / "docs")
    parser.add_argument("--questions", type=Path, default=HERE / "examples" / "questions.jsonl")
    parser.add_argument("--rounds", type=int, default=16)
    given = parser.parse_args()
    questions = [json.loads(line)["question"] for line in given.questions.read_text("utf-8").splitlines()]
    sides = (HERE, given.checkout.resolve())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        indexes = {side: Path(folder) / str(number) for number, side in enumerate(sides)}
        for side, index in indexes.items():
            build = pytrace(side, "index", "build", str(index), "--docs", str(given.docs.resolve()))
            subprocess.run(build, cwd=side, capture_output=True, check=True)
        print("| call | times | this version, ms | the other, ms | ratio |\n|---|---|---|---|---|", flush=True)
        addresses = {side: running.enter_context(service(side, index)) for side, index in indexes.items()}
        for path, rounds in (("/v1/search", given.rounds), ("/v1/ask", ASK_ROUNDS)):
            times: dict[Path, list[float]] = {side: [] for side in sides}
            for address in addresses.values():
                seconds_of_call(address, path, questions[0])
            for turn in range(rounds):
                for number, question in enumerate(questions):
                    # Another wording each time, so that no cache answers.
                    for side in sides if (turn + number) % 2 else sides[::-1]:
                        asked = question.replace("?", f" {turn}?") if turn else question
                        times[side].append(seconds_of_call(addresses[side], path, asked))
            show(path, times)
        running.pop_all().close()
        times = {side: [] for side in sides}
        for number in range(9):
            for side in sides if number % 2 else sides[::-1]:
                times[side].append(seconds_of_command(side, indexes[side], questions[number % len(questions)]))
        show("pytrace ask, cold", times)


if __name__ == "__main__":
    main()
