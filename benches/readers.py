"""Four ways to read an answer beside each other: learn their weights, cross-validated, and print the table.

    python -m benches.readers --data DIR [--llm tiny] [--threads N] [--cache FILE] [--limit N] [--absent N]
        [--cost N] [--plot FILE.svg] [--write]

Answers are written freely, taken out of the evidence (span), written but held to what stands there (grammar), or the better of the first two
(agreement). Sets: HotpotQA's adversarial questions and the questions of the open corpora (HotpotQA, MuSiQue, 2WikiMultiHopQA), each with its
gold documents and no others, and the questions of IRCoT, whose rows name no gold documents, with all of theirs; the adversarial questions with
the evidence that TRACE selects, too. What is said of a set has weights that were learned from the other sets (none are learned from IRCoT's). All readers
get the same prompts of four demonstrations. Every set but IRCoT's has its questions a second time without what supports them, with other passages
that share their words: probabilities are learned from both, and told of each.

`--absent` takes only the first so many of each set without their evidence; `--cost` measures tokens and seconds of each reader with the first so many questions, each by a model that has seen nothing yet; `--plot` draws how far
probabilities are to be trusted; `--write` learns from all and replaces the shipped weights and the list of their questions; `--cache` keeps what the model said for the next time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from pytrace.certify.claims.evaluation import calibration_error
from pytrace.documents.sentences import split_sentences
from pytrace.engine import Engine, load
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.evaluation.scores.significance import paired_bootstrap
from pytrace.models.language_model import LanguageModel
from pytrace.models.response_cache import CachedModel
from pytrace.reader.answers import Reader, normalise_answer
from pytrace.reader.evidence import all_documents
from pytrace.reader.grammar import GrammarReader, Held
from pytrace.reader.grammar import certainty_of as certainty_of_beam
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.reader.spans import weights as shipped
from pytrace.reader.spans.agreement import AgreementReader
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.reader import Ranked, SpanReader, certainty_of
from pytrace.reader.spans.weights import SpanWeights
from pytrace.records import Document, Evidence, Question
from pytrace.retrieval import Bm25Retriever
from pytrace.storage.question_hashes import save_question_hashes

Floats = NDArray[np.float64]

PENALTY = 1.0  # of weights by which candidates are taken
CHOICE_PENALTY = 3.0  # of those by which the best is chosen
SAID = ("log-probability", "end", "tokens")  # what of a candidate's score in the model has a weight
LEAST = 5  # candidates that have a feature, for it to have a weight
SHARPNESS = 4  # a candidate is worth its F1 to this power: what is nearly right teaches, too, and what is right most
DEMONSTRATIONS = 4
TOGETHER = 16  # questions that the model is asked at once
ONLY_TESTED = "ircot"
READINGS = ("free", "span", "grammar", "agreement")
CHOOSING = ("span", "grammar", "agreement")
TRACED = ("trace", "trace-doc")
BINS = 10


class Row(NamedTuple):
    """A question with its answers and its evidence, the candidates of that, and what each is worth."""

    question: str
    answers: Sequence[str]
    evidence: Evidence
    found: Sequence[Scored]
    worth: Sequence[float]


class Read(NamedTuple):
    """A row with what the language model said to it."""

    row: Row
    written: str
    spans: Sequence[Ranked]
    both: Sequence[Ranked]
    beam: Sequence[Held]


class Told(NamedTuple):
    """An answer, and what tells how likely it is right."""

    text: str
    certainty: dict[str, float]


def row_of(question: str, answers: Sequence[str], evidence: Evidence) -> Row:
    found = candidates(question, evidence.context)
    return Row(question, answers, evidence, found, [worth(one.text, answers) for one in found])


def worth(text: str, answers: Sequence[str]) -> float:
    return float(f1_score(text, answers).f1 ** SHARPNESS)


def read_sets(data: Path, limit: int | None) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Read every set, with its gold documents, and without them."""
    gold: dict[str, list[Row]] = {}
    absent: dict[str, list[Row]] = {}
    for name, file in (("advhotpot", "advhotpot10-dev"), (ONLY_TESTED, "ircot-hotpotqa")):
        listed = list(read_questions(data / "multihop" / f"{file}.jsonl", limit=limit))
        gold[name] = [
            row_of(one.question, one.answers, all_documents(supporting(one) or one.documents)) for one in listed
        ]
        if name != ONLY_TESTED:
            absent[name] = [
                without(one.question, one.answers, supporting(one), Bm25Retriever(one.documents)) for one in listed
            ]
    for folder in ("hotpotqa-train", "musique-train", "2wiki"):
        rows = lines(data / "open" / folder / "corpus.jsonl")
        passages = {
            str(row["id"]): Document(str(row["id"]), row["title"], tuple(split_sentences(row["text"]))) for row in rows
        }
        retriever = Bm25Retriever(list(passages.values()))
        gold[folder], absent[folder] = [], []
        for row in lines(data / "open" / folder / "questions.jsonl")[:limit]:
            documents = [passages[str(name)] for name in row["gold"]]
            gold[folder].append(row_of(row["question"], row["answers"], all_documents(documents)))
            absent[folder].append(without(row["question"], row["answers"], documents, retriever))
    return gold, absent


def supporting(question: Question) -> list[Document]:
    return [document for document in question.documents if document.id in question.supporting_documents]


def without(question: str, answers: Sequence[str], gold: Sequence[Document], retriever: Bm25Retriever) -> Row:
    """Return a question with as many other documents as support it, those nearest to it by words."""
    hits = retriever.retrieve([question], 3 * len(gold))[0]
    others = [hit.document for hit in hits if hit.document not in gold][: len(gold)]
    return row_of(question, answers, all_documents(others))


def traced(engine: Engine, name: str, data: Path, limit: int | None) -> list[Row]:
    """Return the adversarial questions with the evidence that a method selects."""
    listed = list(read_questions(data / "multihop" / "advhotpot10-dev.jsonl", limit=limit))
    selected = engine.method(name).select([one.question for one in listed], [one.documents for one in listed])
    return [row_of(one.question, one.answers, seen) for one, seen in zip(listed, selected, strict=True)]


def lines(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# ---- what is learned


def learn_features(rows: Sequence[Row]) -> dict[str, float]:
    """Learn by which features alone a right candidate is told from the others of its question."""
    rows = [row for row in rows if any(row.worth)]
    return learn(
        [[one.features for one in row.found] for row in rows], [value for row in rows for value in row.worth], PENALTY
    )


def learn_choice(reads: Sequence[Read]) -> dict[str, float]:
    """Learn by which features, and by what of the language model says, the best of the candidates is chosen that it has seen."""
    return learn_ranked(
        [
            (read, one.candidate.text, {**one.candidate.features, **{name: one.told[name] for name in SAID}})
            for read in reads
            for one in read.spans
        ],
        CHOICE_PENALTY,
    )


def learn_agreement(reads: Sequence[Read], choice: Mapping[str, float]) -> dict[str, float]:
    """Learn what the score of a span counts beside what the model wrote."""
    weights = SpanWeights({}, dict(choice))
    rows = []
    for read in reads:
        for one in read.both:
            score = weights.total("span", one.candidate.features, one.told)
            told = {name: value for name, value in one.told.items() if "written" in name}
            rows.append((read, one.candidate.text, {"span": score, **told}))
    return learn_ranked(rows, 0.1)


def learn_ranked(rows: Sequence[tuple[Read, str, Mapping[str, float]]], penalty: float) -> dict[str, float]:
    """Learn from the candidates of questions that the right one is among."""
    groups: dict[int, list[tuple[float, Mapping[str, float]]]] = {}
    for read, text, told in rows:
        groups.setdefault(id(read), []).append((worth(text, read.row.answers), told))
    some = [group for group in groups.values() if any(value for value, _ in group)]
    return learn(
        [[told for _, told in group] for group in some], [value for group in some for value, _ in group], penalty
    )


def ranked(read: Read, reading: str) -> Sequence[Ranked]:
    return read.both if reading == "agreement" else read.spans


def learn(groups: Sequence[Sequence[Mapping[str, float]]], worths: Sequence[float], penalty: float) -> dict[str, float]:
    """Learn weights by which the worthiest of each group come first: the expected worth under a softmax is maximised."""
    counts = Counter(name for group in groups for one in group for name, value in one.items() if value)
    names = {name: place for place, name in enumerate(sorted(name for name, count in counts.items() if count >= LEAST))}
    matrix = matrix_of([one for group in groups for one in group], names)
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    group = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    values = np.array(worths)

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = matrix @ weights
        shares = np.exp(scores - np.maximum.reduceat(scores, starts)[group])
        shares /= np.add.reduceat(shares, starts)[group]
        expected = np.maximum(np.add.reduceat(shares * values, starts), 1e-12)
        gradient = matrix.T @ (shares - shares * values / expected[group])
        return -np.log(expected).sum() + penalty * weights @ weights, gradient + 2 * penalty * weights

    found = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return {name: round(float(found[place]), 4) for name, place in names.items()}


def learn_certainty(told: Sequence[Told], right: Sequence[bool]) -> dict[str, float]:
    """Learn how likely answers are right: logistic regression."""
    names = {name: place for place, name in enumerate(told[0].certainty)}
    matrix = matrix_of([one.certainty for one in told], names)
    signs = np.where(right, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signs * (matrix @ weights)
        gradient = matrix.T @ (-signs / (1 + np.exp(margins)))
        return np.logaddexp(0, -margins).sum() + 0.1 * weights @ weights, gradient + 0.2 * weights

    found = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B").x
    return {name: round(float(found[place]), 4) for name, place in names.items()}


def matrix_of(rows: Sequence[Mapping[str, float]], names: Mapping[str, int]) -> sparse.csr_matrix:
    entries = [
        (number, names[name], float(value))
        for number, row in enumerate(rows)
        for name, value in row.items()
        if name in names
    ]
    numbers, columns, values = zip(*entries, strict=True)
    return sparse.csr_matrix((values, (numbers, columns)), shape=(len(rows), len(names)))


# ---- what is read


def read_all(model: LanguageModel, features: Mapping[str, float], rows: Sequence[Row]) -> list[Read]:
    """Have the model say all that any reader asks of it."""
    weights = SpanWeights(dict(features), {})
    settings = {"demonstrations": DEMONSTRATIONS}
    free, grammar = Reader(model, **settings), GrammarReader(model, **settings)
    spans, both = (kind(model, weights=weights, **settings) for kind in (SpanReader, AgreementReader))
    reads: list[Read] = []
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        questions, evidence = [row.question for row in some], [row.evidence for row in some]
        fitted, prompts = free._prompts(questions, evidence)
        entries = [shown.entries for shown in fitted]
        ranked_spans = spans.rank(questions, entries, prompts)  # first, since it leaves the prompts in memory
        written = [reading.text for reading in free.read(questions, evidence)]
        reads += map(
            Read,
            some,
            written,
            ranked_spans,
            both.rank(questions, entries, prompts),
            grammar.beams(entries, prompts),
        )
    return reads


def answers(reads: Sequence[Read], reading: str, weights: SpanWeights) -> list[Told]:
    """Return every row's answer under weights."""
    if reading == "free":
        return [Told(read.written, {}) for read in reads]
    told = []
    for read in reads:
        question, entries = read.row.question, read.row.evidence.context
        if reading == "grammar":
            told.append(Told(read.beam[0].text, certainty_of_beam(question, entries, read.beam)))
            continue
        found = [
            one._replace(score=weights.total(reading, one.candidate.features, one.told))  # type: ignore[arg-type]
            for one in ranked(read, reading)
        ]
        found.sort(key=lambda one: -one.score)
        told.append(
            Told(found[0].candidate.text, certainty_of(question, entries, found))
            if found
            else Told("", {"always": 1.0})
        )
    return told


def is_right(read: Read, text: str) -> bool:
    return exact_match(text, read.row.answers) == 1


def scores(reads: Sequence[Read], told: Sequence[Told]) -> tuple[Floats, Floats]:
    """Return EM and F1 of each question, in per cent."""
    pairs = list(zip(reads, told, strict=True))
    return (
        np.array([100 * exact_match(one.text, read.row.answers) for read, one in pairs]),
        np.array([100 * f1_score(one.text, read.row.answers).f1 for read, one in pairs]),
    )


def stands(read: Read, text: str) -> bool:
    """Whether a text stands in the evidence, or is yes or no."""
    form, context = normalise_answer(text), read.row.evidence.context
    shown = " ".join(map(normalise_answer, context))
    within = any(text in entry for entry in context)
    return form in ("yes", "no") or (form != "" and (within or f" {form} " in f" {shown} "))


# ---- what is told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--absent", type=int)
    parser.add_argument("--cost", type=int, default=0)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    gold, absent = read_sets(given.data, given.limit)
    absent = {name: rows[: given.absent] for name, rows in absent.items()}
    engine = load(given.llm, threads=given.threads)
    model: LanguageModel = engine.model if given.cache is None else CachedModel(engine.model, given.cache)
    learned_from = [name for name in gold if name != ONLY_TESTED]
    seen: dict[tuple[str, str], list[Read]] = {}
    for name in gold:
        features = learn_features([row for other in learned_from if other != name for row in gold[other]])
        cases = {"gold": gold[name], "absent": absent.get(name, [])}
        if name == "advhotpot":
            cases |= {method: traced(engine, method, given.data, given.limit) for method in TRACED}
        for kind, rows in cases.items():
            seen[kind, name] = read_all(model, features, rows)
            print(f"{name}, {kind}: {len(rows)} questions read", flush=True)
    told: dict[tuple[str, str, str], list[Told]] = {}
    sure: dict[tuple[str, str, str], Floats] = {}
    for name in gold:
        weights = learned(seen, [other for other in learned_from if other != name])
        said = {part: weights.choice.get(part) for part in SAID}
        print(f"  {name}: {said}, {weights.agreement}, {weights.certainty}")
        for kind, of in seen:
            if of == name:
                for reading in READINGS:
                    told[kind, name, reading] = found = answers(seen[kind, name], reading, weights)
                    if reading != "free":
                        sure[kind, name, reading] = np.array(
                            [weights.probability(reading, one.certainty) for one in found]  # type: ignore[arg-type]
                        )
    print_answers(seen, told)
    print_certainty(seen, told, sure)
    if given.plot is not None:
        plot(seen, told, sure, given.plot)
    if given.cost:
        print_costs(given.llm, given.threads, gold["advhotpot"][: given.cost])
    if given.write:
        final = learned(
            seen, learned_from, features=learn_features([row for name in learned_from for row in gold[name]])
        )
        path = Path(shipped.__file__).with_name("weights.json")
        path.write_bytes(msgspec.json.format(msgspec.json.encode(final), indent=1) + b"\n")
        made_by = f"python -m benches.readers {' '.join(Path(each).name for each in sys.argv[1:])}"
        save_question_hashes(path, questions_of(gold), made_by=made_by)
        print(f"{len(final.candidates)} and {len(final.choice)} weights written to {path}")


def questions_of(gold: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the questions that are learned from; those without their evidence are the same."""
    return [row.question for name, rows in gold.items() if name != ONLY_TESTED for row in rows]


def learned(
    seen: Mapping[tuple[str, str], list[Read]], names: Sequence[str], features: dict[str, float] | None = None
) -> SpanWeights:
    """Learn from sets what counts beside what the model says, and how likely answers are right."""
    reads = [read for name in names for read in seen["gold", name]]
    choice = learn_choice(reads)
    weights = SpanWeights(features or {}, choice, learn_agreement(reads, choice))
    both = [read for kind in ("gold", "absent") for name in names for read in seen[kind, name]]
    certainty = {}
    for reading in CHOOSING:
        found = answers(both, reading, weights)
        certainty[reading] = learn_certainty(
            found, [is_right(read, one.text) for read, one in zip(both, found, strict=True)]
        )
    return msgspec.structs.replace(weights, certainty=certainty)


def print_answers(seen: Mapping[tuple[str, str], list[Read]], told: Mapping[tuple[str, str, str], list[Told]]) -> None:
    """Print the table of answers, and how far each reader is beyond the free one over all sets."""
    print("\n| set | evidence | questions | best candidate EM | tokens | reader | EM | F1 | stands in the evidence |")
    print("|---|---|---|---|---|---|---|---|---|")
    f1: dict[str, list[float]] = {reading: [] for reading in READINGS}
    for (kind, name), reads in seen.items():
        if kind == "absent" or not reads:
            continue
        best = 100 * np.mean([any(is_right(read, one.candidate.text) for one in read.spans) for read in reads])
        tokens = np.mean([sum(one.told["tokens"] for one in read.spans) for read in reads])
        for reading in READINGS:
            found = told[kind, name, reading]
            em, f1s = scores(reads, found)
            inside = 100 * np.mean([stands(read, one.text) for read, one in zip(reads, found, strict=True)])
            print(
                f"| {name} | {kind} | {len(reads)} | {best:.1f} | {tokens:.0f} | {reading} | {em.mean():.1f} | {f1s.mean():.1f} | {inside:.1f} |"
            )
            if kind == "gold":
                f1[reading] += f1s.tolist()
    for reading in CHOOSING:
        test = paired_bootstrap(f1[reading], f1["free"])
        print(
            f"all, gold: F1 {np.mean(f1['free']):.1f} free, {np.mean(f1[reading]):.1f} {reading}, {test.difference:+.1f} "
            f"({test.low:.1f} to {test.high:.1f}), p = {test.p_value}"
        )


def pooled(
    seen: Mapping[tuple[str, str], list[Read]],
    told: Mapping[tuple[str, str, str], list[Told]],
    sure: Mapping[tuple[str, str, str], Floats],
    reading: str,
    kinds: Sequence[str],
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the probabilities of answers to all sets with some kinds of evidence, and which are right."""
    probabilities, right = [], []
    for (kind, name), reads in seen.items():
        if kind in kinds and reads:
            probabilities.append(sure[kind, name, reading])
            found = told[kind, name, reading]
            right += [is_right(read, one.text) for read, one in zip(reads, found, strict=True)]
    return np.concatenate(probabilities), np.array(right)


def print_certainty(
    seen: Mapping[tuple[str, str], list[Read]],
    told: Mapping[tuple[str, str, str], list[Told]],
    sure: Mapping[tuple[str, str, str], Floats],
) -> None:
    """Print how far probabilities are to be trusted, and what abstaining brings."""
    print(
        "\n| reader | evidence | right | Brier | calibration error | EM of the surest 10 % | 25 % | 50 % | 75 % | AURC |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for reading in CHOOSING:
        for label, kinds in (("gold", ("gold",)), ("absent", ("absent",)), ("both", ("gold", "absent"))):
            probabilities, right = pooled(seen, told, sure, reading, kinds)
            ordered = right[np.argsort(-probabilities, kind="stable")]
            shares = " | ".join(
                f"{100 * ordered[: max(1, len(ordered) * percent // 100)].mean():.1f}" for percent in (10, 25, 50, 75)
            )
            risks = 1 - np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
            brier = float(((probabilities - right) ** 2).mean())
            error = calibration_error(probabilities, right)
            print(
                f"| {reading} | {label} | {100 * right.mean():.1f} | {brier:.3f} | {error:.3f} | {shares} | {risks.mean():.3f} |"
            )
    print("\n| reader | min_confidence | answered, gold | of them right | answered, absent | of them right |")
    print("|---|---|---|---|---|---|")
    for reading in CHOOSING:
        for least in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            cells = []
            for kinds in (("gold",), ("absent",)):
                probabilities, right = pooled(seen, told, sure, reading, kinds)
                given = probabilities >= least
                cells += [f"{100 * given.mean():.1f}", f"{100 * right[given].mean():.1f}" if given.any() else "–"]
            print(f"| {reading} | {least} | {' | '.join(cells)} |")


def plot(
    seen: Mapping[tuple[str, str], list[Read]],
    told: Mapping[tuple[str, str, str], list[Told]],
    sure: Mapping[tuple[str, str, str], Floats],
    path: Path,
) -> None:
    """Draw how often answers of a probability are right, and how often those that are given at a coverage are wrong."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "readers"})  # the same each time, and small
    figure, (left, right_axes) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    left.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for number, reading in enumerate(CHOOSING):
        colour = f"C{number}"
        probabilities, right = pooled(seen, told, sure, reading, ("gold", "absent"))
        bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
        some = [place for place in range(BINS) if (bins == place).sum() >= BINS]
        left.plot(
            [probabilities[bins == place].mean() for place in some],
            [right[bins == place].mean() for place in some],
            color=colour,
            marker="o",
            label=reading,
        )
        for kinds, style in ((("gold",), "-"), (("gold", "absent"), "--")):
            probabilities, right = pooled(seen, told, sure, reading, kinds)
            ordered = right[np.argsort(-probabilities, kind="stable")]
            counts = np.arange(1, len(ordered) + 1)
            kept = counts >= len(ordered) // 50
            right_axes.plot(
                (counts / len(ordered))[kept],
                (1 - np.cumsum(ordered) / counts)[kept],
                style,
                color=colour,
                label=f"{reading}, {' and '.join(kinds)}",
            )
    left.set(xlabel="probability", ylabel="share that is right", title="Reliability, gold and absent")
    right_axes.set(xlabel="coverage", ylabel="risk (share that is wrong)", title="Risk and coverage", ylim=(0, 1))
    for axes in (left, right_axes):
        axes.legend(fontsize="small", frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    print(f"drawn: {path}")


def print_costs(llm: str, threads: int | None, rows: Sequence[Row]) -> None:
    """Print what each reader costs a question, by a model that has seen nothing but what each prompt begins with."""
    print("\n| reader | tokens evaluated a question | beyond the prompt | seconds a question |")
    print("|---|---|---|---|")
    for reading in READINGS:
        model = load(llm, threads=threads).model
        reader = make_reader(model, ReaderSettings(reading=reading, reader_demonstrations=DEMONSTRATIONS))  # type: ignore[arg-type]
        reader.read(["Where does it lie?"], [Evidence("documents", ("[Ada Foah] It lies in Ghana.",), ("1",))])
        before, start = model.usage, time.perf_counter()
        _, prompts = reader._prompts([row.question for row in rows], [row.evidence for row in rows])
        lasting = model.count_tokens(prompts[0].plain()[: prompts[0].plain().rindex(prompts[0].input)])
        asked = sum(model.count_tokens(prompt.plain()) - lasting for prompt in prompts)
        for row in rows:
            reader.read([row.question], [row.evidence])
        seconds = time.perf_counter() - start
        evaluated = model.usage.evaluated_tokens - before.evaluated_tokens
        print(
            f"| {reading} | {evaluated / len(rows):.0f} | {(evaluated - asked) / len(rows):.0f} | {seconds / len(rows):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
