"""The checker of claims without a model: learn its weights, and cross-validate them on labelled claims.

    python -m benches.claim_checker --data DIR [--folds 5] [--seed 0] [--write]

Labelled sets: FEVER-symmetric (a claim and a sentence, supported or refuted) and WiCE (a claim and the sentences of a web page, supported,
partially or not). Made ones: sentences of the open corpora and what becomes of them with a negation, another number, another passage's or sentence's name, two names
that change places, a clause of another passage behind, or beside another passage. Figures of a labelled set are of claims whose fold was not
learned from (claims that share a text are in one fold), and of weights that were learned from the other set and the made ones alone. `--write`
learns from all and replaces the shipped weights and the list of the labelled claims. Last come answers to the questions of the open
corpora, put to their questions and checked against their gold passages by the shipped weights: right ones, and other names of these passages.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pytrace.certify.claims import CheckedClaim, ClaimChecker
from pytrace.certify.claims import features as claim_features
from pytrace.certify.claims.answer_claims import answer_statement
from pytrace.certify.claims.checker import MIN_SUPPORTED, REFUSED, limited
from pytrace.certify.claims.evaluation import auroc, balanced_accuracy, calibration_error, read_labelled
from pytrace.certify.claims.features import FEATURES, compare
from pytrace.certify.claims.text_tokens import TextTokens
from pytrace.certify.claims.tokens import tokens
from pytrace.certify.claims.weights import ClaimWeights, Logistic
from pytrace.documents.sentences import split_sentences
from pytrace.records import Document
from pytrace.storage.question_hashes import save_question_hashes
from pytrace.training.made_claims import KINDS, changed

Floats = NDArray[np.float64]

PENALTY = 3.0
NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z]+(?: [A-Z][a-z]+)+")
# More of these never speaks for a claim, or never against it; the others may do either.
HELPS = frozenset(("coverage", "pairs", "opening"))
EITHER = frozenset(("negation", "length"))


class Row(NamedTuple):
    """A labelled claim beside sentences."""

    claim: str
    evidence: Sequence[str]
    label: str  # supported, contradicted or not there
    title: str
    group: str
    kind: str = ""  # of a made claim: what was changed


def labelled(data: Path) -> dict[str, list[Row]]:
    """Read the labelled sets."""
    sets: dict[str, list[Row]] = {}
    for name in ("fever-symmetric", "wice"):
        rows = list(read_labelled(data / "claims" / f"{name}-dev.jsonl"))
        evidence = [row.documents[0].sentences if row.documents else () for row in rows]
        groups = joined(
            [(row.text, *(of_row if len(of_row) == 1 else ())) for row, of_row in zip(rows, evidence, strict=True)]
        )
        sets[name] = [
            Row(row.text, of_row, row.label, "", f"{name} {group}")
            for row, of_row, group in zip(rows, evidence, groups, strict=True)
        ]
    return sets


def claims_of(sets: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the labelled claims that are learned from; made ones are in no data set."""
    return [row.claim for name, rows in sets.items() if name != "made" for row in rows]


def joined(keys: Sequence[tuple[str, ...]]) -> list[int]:
    """Give rows numbers such that those with a text in common have one number."""
    parent = list(range(len(keys)))

    def root(row: int) -> int:
        while parent[row] != row:
            row = parent[row]
        return row

    first: dict[str, int] = {}
    for row, texts in enumerate(keys):
        for text in texts:
            parent[root(row)] = root(first.setdefault(text, row))
    return [root(row) for row in range(len(keys))]


def made(data: Path, rng: random.Random, *, most: int) -> list[Row]:
    """Make claims of sentences of the open corpora, and change them."""
    rows: list[Row] = []
    for name in ("hotpotqa-train", "musique-train", "2wiki"):
        lines = (data / "open" / name / "corpus.jsonl").read_text("utf-8").splitlines()
        passages = [json.loads(line) for line in rng.sample(lines, min(most, len(lines)))]
        texts = [split_sentences(passage["text"]) for passage in passages]
        for number, (passage, sentences) in enumerate(zip(passages, texts, strict=True)):
            other = texts[number - 1]
            if not sentences or not other:
                continue
            group = f"{name} {passage['id']}"
            sentence = rng.choice(sentences)
            for claim, kind in changed(sentence, rng.choice(other), sentences, passage["title"], rng):
                rows.append(Row(claim, sentences, KINDS[kind], passage["title"], group, kind))
            elsewhere = passages[number - 1]["title"]
            rows.append(Row(sentence, other, KINDS["elsewhere"], elsewhere, group, "elsewhere"))
    return rows


def measure(rows: Sequence[Row]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the features of each row ``[n, n_features]``, and whether its predicate is said of something else or missing ``[n]``."""
    measured = []
    for row in rows:
        text = TextTokens(row.evidence, [row.title] * len(row.evidence))
        claim = tokens(row.claim)
        chosen = text.choose(claim)
        sentences, titles = [text.sentence(number) for number in chosen], [text.title(number) for number in chosen]
        english = not chosen or text.is_english(chosen[0])
        measured.append(compare(claim, sentences, titles, english=english))
    return np.array([each.features for each in measured]), np.array([each.statement in REFUSED for each in measured])


# How the sign of each weight is bound where the score is that of support; the bias is free.
SIGNS = [(None, None) if name in EITHER else (0, None) if name in HELPS else (None, 0) for name in FEATURES] + [
    (None, None)
]


# The same where it is that of contradiction: evidence that speaks of the same things, and differs.
DIFFERS = frozenset(
    [
        "coverage",
        "pairs",
        "negated",
        "refused",
        "opposite",
        "swapped",
        "other_numbers",
        "other_number",
        "other_name",
        "other_word",
        "exactly_negated",
        "exactly_swapped",
        "exactly_numbered",
        "exactly_replaced",
        "exactly_other",
    ]
)
CONTRADICTING = [
    (0, None) if name in DIFFERS else (None, 0) if name.startswith("missing") else (None, None) for name in FEATURES
] + [(None, None)]


def fit(
    features: Floats, wanted: NDArray[np.bool_], weights: Floats, bounds: Sequence[tuple[float | None, float | None]]
) -> Logistic:
    """Learn a logistic score, each row by its weight."""
    scale = features.std(axis=0)
    scale[scale == 0] = 1
    x = np.hstack([features / scale, np.ones((len(features), 1))])
    sign = np.where(wanted, 1.0, -1.0)

    def loss(beta: Floats) -> tuple[float, Floats]:
        margin = sign * (x @ beta)
        value = weights @ np.logaddexp(0, -margin) + PENALTY * beta[:-1] @ beta[:-1] / 2
        slope = -(weights * sign / (1 + np.exp(np.clip(margin, -50, 50)))) @ x
        slope[:-1] += PENALTY * beta[:-1]
        return float(value), slope

    if not wanted.any() or wanted.all():
        raise SystemExit("all claims have one label; nothing can be learned")
    beta = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return Logistic(dict(zip(FEATURES, (beta[:-1] / scale).tolist(), strict=True)), float(beta[-1]))


class Measured(NamedTuple):
    """The features of a set's claims."""

    features: Floats
    refused: NDArray[np.bool_]
    labels: NDArray[np.str_]
    groups: NDArray[np.str_]
    kinds: NDArray[np.str_]
    share: float = 1.0

    def only(self, rows: NDArray[np.bool_]) -> Measured:
        """Return some of the rows."""
        return Measured(
            self.features[rows], self.refused[rows], self.labels[rows], self.groups[rows], self.kinds[rows], self.share
        )

    def supported(self, weights: ClaimWeights) -> Floats:
        """Return how likely each claim is supported, as `ClaimChecker` does."""
        return limited(weights.supported.probabilities(self.features), self.refused)


# Made claims are easier than written ones, and of a few kinds: they count less.
MADE = 0.5


def learn(parts: Sequence[Measured], made_by: str = "") -> ClaimWeights:
    """Learn both scores, of each part as much as of the others, and of supported claims as much as of others."""
    features = np.vstack([part.features for part in parts])
    labels = np.concatenate([part.labels for part in parts])

    def balanced(chosen: Sequence[NDArray[np.bool_]], positive: str) -> Floats:
        weights: list[Floats] = []
        for part, rows in zip(parts, chosen, strict=True):
            yes = (part.labels == positive) & rows
            no = (part.labels != positive) & rows
            each = np.zeros(len(rows))
            share = 300 * part.share
            for side in (yes, no):
                kinds = set(part.kinds[side].tolist())
                for kind in kinds:
                    of_kind = side & (part.kinds == kind)
                    each[of_kind] = share / len(kinds) / of_kind.sum()
            weights.append(each)
        return np.concatenate(weights)

    every = [np.ones(len(part.labels), dtype=bool) for part in parts]
    supported = fit(features, labels == "supported", balanced(every, "supported"), SIGNS)
    # Of sets that have both: else what tells the sets apart would tell contradiction.
    both = [part for part in parts if {"contradicted", "not there"} <= {*part.labels.tolist()}]
    contradicted = Logistic(dict.fromkeys(FEATURES, 0.0), 0.0)
    if both:
        features = np.vstack([part.features for part in both])
        labels = np.concatenate([part.labels for part in both])
        parts = both
        wrong = [part.labels != "supported" for part in both]
        weights = balanced(wrong, "contradicted")
        contradicted = fit(features, labels == "contradicted", weights, CONTRADICTING)
    return ClaimWeights(supported, contradicted, made_by)


def answers(data: Path, rng: random.Random) -> dict[str, list[CheckedClaim]]:
    """Check right and wrong answers to questions against the questions' gold passages."""
    checked: dict[str, list[CheckedClaim]] = {"right": [], "wrong": []}
    for name in ("hotpotqa-train", "musique-train", "2wiki"):
        folder = data / "open" / name
        passages = {
            row["id"]: row for row in map(json.loads, (folder / "corpus.jsonl").read_text("utf-8").splitlines())
        }
        for row in map(json.loads, (folder / "questions.jsonl").read_text("utf-8").splitlines()):
            gold = [passages[each] for each in row["gold"] if each in passages]
            documents = [Document(each["id"], each["title"], tuple(split_sentences(each["text"]))) for each in gold]
            known = " ".join([row["question"], *row["answers"]]).lower()
            names = {found[0] for each in gold for found in NAME.finditer(each["text"])}
            others = sorted(name for name in names if not any(word.lower() in known for word in name.split()))
            if row["answers"][0].lower() in ("yes", "no") or not others:
                continue
            texts = {"right": row["answers"][0], "wrong": rng.choice(others)}
            for kind, text in texts.items():
                checked[kind] += ClaimChecker().check_claims([answer_statement(row["question"], text)], documents)
    return checked


def agreement(probabilities: Floats, labels: NDArray[np.str_]) -> str:
    """Return the cells of a table: how well probabilities, and the labels that `MIN_SUPPORTED` makes of them, agree with others."""
    wanted = labels == "supported"
    found = probabilities >= MIN_SUPPORTED
    return (
        f"{auroc(probabilities, wanted):.3f} | {calibration_error(probabilities, wanted):.3f} | "
        f"{100 * balanced_accuracy(probabilities >= 0.5, wanted):.1f} | {100 * balanced_accuracy(found, wanted):.1f} | "
        f"{100 * found[wanted].mean():.1f} | {100 * found[~wanted].mean():.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the evaluation data: claims/ and open/")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    sets: dict[str, list[Row]] = {**labelled(options.data), "made": made(options.data, rng, most=400)}
    parts: dict[str, Measured] = {}
    for name, rows in sets.items():
        begun = time.perf_counter()
        features, refused = measure(rows)
        took = time.perf_counter() - begun
        sentences = sum(len(row.evidence) for row in rows)
        print(
            f"{name}: {len(rows)} claims, {len(rows) / took:.0f} a second, one thread, {sentences / len(rows):.1f} sentences read for each"
        )
        parts[name] = Measured(
            features,
            refused,
            np.array([row.label for row in rows]),
            np.array([row.group for row in rows]),
            np.array([row.kind for row in rows]),
            MADE if name == "made" else 1.0,
        )
    print(
        "\n| set | learned from | AUROC | calibration error | balanced accuracy % at 0.5 | at the label | supported: found so % | others: found so % |"
        "\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    held_out: dict[str, tuple[Floats, Floats]] = {}  # how likely each claim is supported, and contradicted
    for name, part in parts.items():
        others = [other for key, other in parts.items() if key != name]
        print(f"| {name} | the other sets | {agreement(part.supported(learn(others)), part.labels)} |")
        groups = sorted(set(part.groups.tolist()))
        random.Random(options.seed).shuffle(groups)
        fold_of = {group: number % options.folds for number, group in enumerate(groups)}
        folds = np.array([fold_of[group] for group in part.groups.tolist()])
        yes, no = np.zeros(len(folds)), np.zeros(len(folds))
        for fold in range(options.folds):
            rest = folds != fold
            learned = learn([*others, part.only(rest)])
            yes[~rest] = part.only(~rest).supported(learned)
            no[~rest] = learned.contradicted.probabilities(part.features[~rest])
        held_out[name] = yes, no
        print(f"| {name} | the other sets and other folds | {agreement(yes, part.labels)} |")
    weights = learn(list(parts.values()), f"python -m benches.claim_checker --seed {options.seed} --write")
    print("\nof all sets: " + ", ".join(f"{n} {w:.2f}" for n, w in weights.supported.features.items()))
    print("contradicted: " + ", ".join(f"{n} {w:.2f}" for n, w in weights.contradicted.features.items()))
    for name, part in parts.items():
        yes, no = held_out[name]
        for label in sorted({*part.labels.tolist()} - {"supported"}):
            chosen = (part.labels == label) & (yes < MIN_SUPPORTED)
            # As `ClaimChecker` labels: of a claim that is not supported, contradicted if that is at least as likely as either other.
            share = 100 * (((1 - yes) * no)[chosen] >= np.maximum(yes, (1 - yes) / 2)[chosen]).mean()
            print(
                f"{name}: of {chosen.sum()} claims found unsupported that are {label}, {share:.1f} % found contradicted"
            )
    for kind, label in KINDS.items():
        passed = held_out["made"][0][parts["made"].kinds == kind]
        print(
            f"made, {kind} ({label}): {len(passed)}, {100 * (passed >= MIN_SUPPORTED).mean():.1f} % taken for supported "
            f"({100 * (passed >= 0.5).mean():.1f} % at 0.5)"
        )
    for kind, claims in answers(options.data, random.Random(options.seed)).items():
        share = sum(claim.label == "supported" for claim in claims) / len(claims)
        print(f"answers, {kind}: {len(claims)}, {100 * share:.1f} % supported")
    if options.write:
        path = Path(claim_features.__file__).with_name("weights.json")
        rounded: Any = msgspec.to_builtins(weights)
        for part_name in ("supported", "contradicted"):
            score = rounded[part_name]
            score["features"] = {key: round(value, 4) for key, value in score["features"].items()}
            score["bias"] = round(score["bias"], 4)
        path.write_text(json.dumps(rounded, indent=2) + "\n", "utf-8")
        save_question_hashes(path, claims_of(sets), made_by=weights.made_by)


if __name__ == "__main__":
    main()
