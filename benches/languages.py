"""How many English paragraphs and sentences are taken for another language, and what detection costs.

    python -m benches.languages --data PATH/open/hotpotqa-train/corpus.jsonl PATH/open/cranfield/corpus.jsonl …

Beside py3langid where it is installed (`pip install py3langid`), on the paragraphs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pytrace.documents import split_sentences
from pytrace.documents.languages import detect_language


def others(detect: Callable[[str], str], texts: Sequence[str]) -> str:
    """Count the texts that are not taken for English, and time the detection."""
    started = time.perf_counter()
    wrong = sum(detect(text) != "en" for text in texts)
    seconds = time.perf_counter() - started
    return f"{wrong} of {len(texts):,} taken for another language, {1e6 * seconds / max(len(texts), 1):.0f} µs each"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="JSON Lines with English texts")
    rows = (json.loads(line) for path in parser.parse_args().data for line in path.read_text("utf-8").splitlines())
    paragraphs = [
        text for text in (row.get("text") or " ".join(row.get("sentences", ())) for row in rows) if text.strip()
    ]
    print(f"paragraphs: {others(detect_language, paragraphs)}")
    print(
        f"sentences: {others(detect_language, [sentence for text in paragraphs for sentence in split_sentences(text)])}"
    )
    if importlib.util.find_spec("py3langid") is None:
        print("py3langid is not installed")
        return
    import py3langid

    print(f"paragraphs by py3langid: {others(lambda text: py3langid.classify(text)[0], paragraphs)}")


if __name__ == "__main__":
    main()
