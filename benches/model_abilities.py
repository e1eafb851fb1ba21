"""What language models can do by the self-test, without its time limits: the content of `pytrace/engine/known_abilities.json`.

    python -m benches.model_abilities tiny gemma3-270m [--threads 1] > pytrace/engine/known_abilities.json

Each is a model of the catalog, or a file. Printed are parameters and verdicts by the SHA-256 of the file; the tests of the tiny model
compare what they measure with them.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from pytrace.engine.model_abilities import KnownModel, is_large, prompt_style
from pytrace.engine.self_test import measure_choices, measure_triples
from pytrace.models import registry
from pytrace.models.llama.llama_cpp import LlamaCppModel

_SECONDS = 3_600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llm", nargs="+")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    found = {}
    for llm in arguments.llm:
        path = registry.resolve_original(llm).path
        with LlamaCppModel(path, style=prompt_style(llm), threads=arguments.threads) as model:
            how = {"presumed": is_large(llm), "seconds": _SECONDS}
            verdicts = {**measure_choices(model, **how), **measure_triples(model, **how)}
            known = KnownModel(registry.identify(path) or path.name, model.parameters, verdicts)
        found[registry.content_sha256(path)] = known
        counts = {name: f"{one.right} of {one.of}" for name, one in verdicts.items()}
        print(llm, counts, file=sys.stderr)
    print(msgspec.json.format(msgspec.json.encode(found)).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
