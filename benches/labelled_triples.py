"""How well documents become triples, on human-labelled documents.

    python -m benches.labelled_triples --data PATH/labels/triples-hotpotqa.jsonl [--llm tiny] [--limit N] [--json]

A row has `title`, `text` and `triples` (labelled lines). An extracted triple matches a labelled one if the heads are equal
and the tails' partial ratio is at least 80; each labelled triple is matched once (a maximum matching). Also printed: the
share of tails that are no span of the text, and the share of documents with no triple, before and after sentences stand in.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from pytrace.documents import split_sentences
from pytrace.engine.model_abilities import prompt_style
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.records import Document, Triple
from pytrace.triples.extraction import Extractor, PhraseExtractor
from pytrace.triples.kg_generator import LanguageModelExtractor
from pytrace.triples.parsing import parse_triples


def read_labels(path: Path, limit: int | None) -> list[tuple[Document, list[Triple]]]:
    labels = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[:limit]):
        row = json.loads(line)
        document = Document(str(number), row["title"], tuple(split_sentences(row["text"])))
        labels.append((document, [Triple(*parts) for parts in parse_triples(row["triples"], row["title"]).triples]))
    return labels


def matched(found: list[Triple], labelled: list[Triple]) -> int:
    if not found or not labelled:
        return 0
    tails = cdist([t.tail.casefold() for t in found], [t.tail.casefold() for t in labelled], scorer=partial_ratio) >= 80
    heads = np.array([[a.head.casefold() == b.head.casefold() for b in labelled] for a in found])
    rows, columns = linear_sum_assignment(-(tails & heads).astype(float))
    return int((tails & heads)[rows, columns].sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    labels = read_labels(arguments.data, arguments.limit)
    model = LlamaCppModel(registry.resolve(arguments.llm, "language-model"), style=prompt_style(arguments.llm))
    encoder = OnnxEncoder(registry.resolve(arguments.encoder, "encoder"))
    settings: dict[str, Extractor] = {
        "3 fixed, ungrounded": LanguageModelExtractor(model, grounding=0.0),
        "3 fixed": LanguageModelExtractor(model),
        "3 adaptive": LanguageModelExtractor(model, encoder=encoder),
        "3 fixed, spans": LanguageModelExtractor(model, spans=True),
        "3 adaptive, spans": LanguageModelExtractor(model, encoder=encoder, spans=True),
        "phrases": PhraseExtractor(),
    }
    results = []
    for name, extractor in settings.items():
        if arguments.only and name not in arguments.only:
            continue
        before, started = model.usage, time.perf_counter()
        extractions = extractor.extract([document for document, _ in labels])
        usage = model.usage - before
        triples = [[t for t in one.units if isinstance(t, Triple)] for one in extractions]
        hits = sum(matched(found, gold) for found, (_, gold) in zip(triples, labels, strict=True))
        found = sum(map(len, triples))
        gold = sum(len(labelled) for _, labelled in labels)
        invented = sum(
            triple.tail.casefold() not in document.text.casefold()
            for some, (document, _) in zip(triples, labels, strict=True)
            for triple in some
        )
        precision, recall = hits / max(found, 1), hits / gold
        results.append(
            {
                "extractor": name,
                "precision": precision,
                "recall": recall,
                "F1": 2 * precision * recall / max(precision + recall, 1e-9),
                "triples": found,
                "labelled": gold,
                "tails that are no span": invented / max(found, 1),
                "documents without a sound triple": sum(not some for some in triples) / len(labels),
                "documents without a triple": sum(not one.units for one in extractions) / len(labels),
                "lines": sum(one.statistics.lines for one in extractions),
                "lines dropped": sum(one.statistics.dropped for one in extractions),
                "lines repeated": sum(one.statistics.repeated for one in extractions),
                "tokens asked for": usage.prompt_tokens,
                "tokens evaluated": usage.evaluated_tokens,
                "tokens generated": usage.generated_tokens,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
        if not arguments.json:
            print(
                "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in results[-1].items()),
                flush=True,
            )
    if arguments.json:
        print(json.dumps({"documents": len(labels), "model": model.name, "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
