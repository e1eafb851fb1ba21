"""How often a sentence that denies a yes-or-no question is right to: labelled claims asked as questions of their evidence.

    python -m benches.denials --data DIR

Claims of the training data (DATA/train/claims.jsonl.gz) are supported or refuted by their evidence. Prints, for several shares of the
claim's words that the sentence must have, how many of each the rule of `pytrace.reader.spans.yes_no.is_denied` answers with "no".
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

from pytrace.reader.spans.yes_no import is_denied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    with gzip.open(given.data / "train" / "claims.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [row for line in stream if (row := json.loads(line))["label"] in ("supported", "refuted")]
    print("| share | refuted | supported | precision |\n|---|---|---|---|")
    for share in (0.5, 0.6, 0.75, 0.9, 1.0):
        denied = Counter(row["label"] for row in rows if is_denied(row["claim"], row["evidence"], share=share))
        total = denied["refuted"] + denied["supported"]
        print(
            f"| {share} | {denied['refuted']} | {denied['supported']} | {100 * denied['refuted'] / max(total, 1):.0f} % |"
        )
    print(f"of {len(rows):,} claims: {dict(Counter(row['label'] for row in rows))}")


if __name__ == "__main__":
    main()
