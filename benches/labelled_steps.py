"""How well each scoring picks the next triple on human-labelled steps of reasoning chains.

    python -m benches.labelled_steps --data PATH/labels/next-triple-hotpotqa.jsonl [--llm tiny] [--encoder tiny] [--json]

A row has `question`, `triples` (the chain so far), `candidate_triples` (lettered; A ends the chain) and `answer`. Printed
are the accuracy on steps whose answer is a triple, choosing among the triples alone (`triple`; chance is one in the number
of candidates), the accuracy over all options (`all options`), and how often an ended chain is ended (`ended`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from pytrace.engine.model_abilities import prompt_style
from pytrace.methods.abilities import UNABLE
from pytrace.methods.catalog import method_settings
from pytrace.methods.trace.selector import Demonstrations, LetterSelector, RankerSelector, Selector, Step, TextSelector
from pytrace.methods.trace.trace import make_selector
from pytrace.models import registry
from pytrace.models.encoders.encoder import Encoder, OnnxEncoder
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.records import Candidate, Triple


def read_steps(path: Path, encoder: Encoder) -> tuple[list[Step], list[int]]:
    steps, answers = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        chain = tuple(parse(text) for text in row["triples"])
        triples = [parse(text.split(". ", 1)[1]) for text in row["candidate_triples"][1:]]
        query = " ".join([row["question"], *(triple.text for triple in chain)])
        scores = encoder.encode([t.text for t in triples], kind="passage") @ encoder.encode([query], kind="query")[0]
        candidates = tuple(
            Candidate(triple, i, float(score)) for i, (triple, score) in enumerate(zip(triples, scores, strict=True))
        )
        steps.append(Step(row["question"], chain, candidates))
        answers.append(ord(row["answer"]) - ord("A"))
    return steps, answers


def parse(text: str) -> Triple:
    head, _, rest = text.strip("<>").partition("; ")
    relation, _, tail = rest.partition("; ")
    return Triple(head, relation, tail)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    encoder = OnnxEncoder(registry.resolve(arguments.encoder, "encoder"))
    steps, answers = read_steps(arguments.data, encoder)
    path = registry.resolve(arguments.llm, "language-model")
    results = []
    model = LlamaCppModel(path, style=prompt_style(arguments.llm))
    three = Demonstrations(3, encoder=encoder)
    two = Demonstrations(2)
    tiny = method_settings("trace", UNABLE)
    selectors: dict[str, Selector] = {
        "encoder": RankerSelector(),
        "letters, 3 adaptive": LetterSelector(model, three),
        "letters, 2 fixed": LetterSelector(model, two),
        "letters, 2 fixed, calibrated": LetterSelector(model, two, calibrated=True),
        "letters, 2 fixed, shared layout": LetterSelector(model, two, layout="shared"),
        "likelihood, 2 fixed": TextSelector(model, two, scoring="likelihood"),
        "pmi, 3 adaptive": TextSelector(model, three),
        "pmi, 2 fixed": TextSelector(model, two),
        "pmi + half encoder, 2 fixed": TextSelector(model, two, ranker_weight=0.5),
        "pmi + encoder, 2 fixed": TextSelector(model, two, ranker_weight=1.0),
        "profile tiny": make_selector(model, encoder, tiny),
    }
    for name, selector in selectors.items():
        if arguments.only and name not in arguments.only:
            continue
        before, started = model.usage, time.perf_counter()
        logits = selector.select(steps)
        chosen = np.array([int(row.argmax()) for row in logits])
        among = np.array([1 + int(row[1:].argmax()) for row in logits])
        gold = np.array(answers)
        usage = model.usage - before
        results.append(
            {
                "scoring": name,
                "triple": float((among == gold)[gold > 0].mean()),
                "all options": float((chosen == gold).mean()),
                "ended": float((chosen == gold)[gold == 0].mean()),
                "ended too soon": float((chosen == 0)[gold > 0].mean()),
                "tokens asked for": usage.prompt_tokens,
                "tokens evaluated": usage.evaluated_tokens,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
        if not arguments.json:
            print(
                "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in results[-1].items()),
                flush=True,
            )
    if arguments.json:
        steps_with_triple = int((np.array(answers) > 0).sum())
        print(
            json.dumps(
                {"steps": len(steps), "steps whose answer is a triple": steps_with_triple, "results": results}, indent=2
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
