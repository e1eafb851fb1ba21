"""Naive twins of the kernels: slow, obvious, and sharing no code with what they check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


def pair_score(query: Sequence[float], item: Sequence[float], metric: str) -> float:
    """Inner product, cosine or Euclidean distance of two vectors, in float64."""
    if metric == "l2":
        return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(query, item, strict=True)))
    product = math.fsum(a * b for a, b in zip(query, item, strict=True))
    if metric == "ip":
        return product
    lengths = math.sqrt(math.fsum(a * a for a in query)) * math.sqrt(math.fsum(b * b for b in item))
    return product / lengths if lengths > 0 else 0.0


def top_k(
    queries: Sequence[Sequence[float]],
    items: Sequence[Sequence[float]],
    k: int,
    metric: str,
    visible: Sequence[Sequence[int]],
) -> list[list[tuple[float, int]]]:
    """Rank by sorting everything: the (score, index) pairs of each query, best first, among its visible items."""
    sign = 1 if metric == "l2" else -1
    results = []
    for query, indices in zip(queries, visible, strict=True):
        scored = [(pair_score(query, items[index], metric), index) for index in indices]
        scored.sort(key=lambda pair: (sign * pair[0], pair[1]))
        results.append(scored[:k])
    return results


def max_sim(question: Sequence[Sequence[float]], document: Sequence[Sequence[float]]) -> float:
    """Sum over a question's vectors of the largest inner product with one of a document's, in float64."""
    return math.fsum(max((pair_score(query, item, "ip") for item in document), default=-math.inf) for query in question)


def embedding_bag(
    rows: Sequence[Sequence[float]], tokens: Sequence[int], weights: Sequence[float], mapping: Sequence[int], dim: int
) -> list[float]:
    """Mean of the rows of the tokens that have one, each times its weight, in float64; zeros if there is none."""
    counted = [token for token in tokens if mapping[token] >= 0]
    return [
        math.fsum(rows[mapping[token]][d] * weights[token] for token in counted) / len(counted) if counted else 0.0
        for d in range(dim)
    ]


def word_scores(words: Sequence[tuple[float, Sequence[tuple[int, int]]]], norms: Sequence[float]) -> list[float]:
    """Sum the shares of words, each a weight and its (row, count) pairs, for every row."""
    return [
        math.fsum(
            weight * count / (count + norm) for weight, postings in words for held, count in postings if held == row
        )
        for row, norm in enumerate(norms)
    ]


def pair_features(
    weight: Callable[[int], float],
    question: tuple[Sequence[float], set[int], float],
    links: dict[tuple[int, int], tuple[float, float]],
    first: dict[str, Any],
    second: dict[str, Any],
) -> list[float]:
    """What tells whether two passages answer together, with sets; passages have row, vector, words, names and scores."""
    vector, asked, total = question
    total += 1e-9
    squares = {word: weight(word) ** 2 for word in asked | first["words"] | second["words"]}

    def mass(words: Iterable[int]) -> float:
        return math.fsum(weight(word) ** 2 for word in words)

    def best_name(passage: dict[str, Any], words: set[int]) -> float:
        shares = [mass(set(name) & words) / (mass(name) + 1e-9) for name in passage["names"]]
        return max(shares, default=0.0)

    new = first["words"] - asked
    lacking = asked - first["words"]
    both = [a + b for a, b in zip(vector, first["vector"], strict=True)]
    length = math.sqrt(math.fsum(value * value for value in both)) + 1e-9
    covered = mass(asked & first["words"]) / total
    adds = math.fsum(squares[word] for word in lacking & second["words"])
    near, by_words, named, rarity = second["scores"]
    first_near, first_words, first_named, first_rarity = first["scores"]
    forth, back = links.get((first["row"], second["row"]), (0.0, 0.0))
    return [
        math.fsum(a * b for a, b in zip(second["vector"], both, strict=True)) / length,
        math.fsum(a * b for a, b in zip(second["vector"], first["vector"], strict=True)),
        forth,
        back,
        max((weight(word) for word in new & second["words"]), default=0.0) / 10,
        max((weight(word) for name in second["names"] for word in name if word in new), default=0.0) / 10,
        mass(new & second["words"]) / (mass(new) + 1e-9),
        adds / total,
        adds / max(total * (1 - covered), 1e-9),
        named * first_named,
        best_name(second, new),
        math.sqrt(max((mass(set(name) & new) for name in second["names"]), default=0.0)) / 10,
        best_name(first, second["words"]),
        *(near, by_words, named, rarity / 10, best_name(second, asked)),
        *(first_near, first_words, covered, first_named, first_rarity / 10, best_name(first, asked)),
    ]


def beam_candidates(
    chain_score: float, logits: Sequence[float], finished: bool, beams: int, min_prob: float, terminate: int | None
) -> list[tuple[int, float, bool, bool]]:
    """List what one chain may become: (option, score, finished, stuck)."""
    if finished:
        return [(-1, chain_score, True, False)]
    possible = [option for option, logit in enumerate(logits) if logit != -math.inf]
    if possible:
        largest = max(logits[option] for option in possible)
        total = math.fsum(math.exp(logits[option] - largest) for option in possible)
        ordered = sorted(possible, key=lambda option: (-logits[option], option))[:beams]
        log_probs = {option: logits[option] - largest - math.log(total) for option in ordered}
        kept = [option for option in ordered if math.exp(log_probs[option]) >= min_prob]
        if kept:
            return [(option, chain_score + log_probs[option], option == terminate, False) for option in kept]
    return [(-1, chain_score, False, True)]


def expand(
    chain_scores: Sequence[float],
    option_logits: Sequence[Sequence[float]],
    finished: Sequence[bool],
    question_offsets: Sequence[int],
    *,
    beams: int,
    chains: int,
    min_prob: float = 0.0,
    terminate: int | None = 0,
    lengths: Sequence[int] | None = None,
    length_penalty: float = 0.0,
) -> list[list[tuple[int, int, float, bool, bool]]]:
    """Take one beam step by trying everything: (parent, option, score, finished, stuck) a question, best first."""
    results = []
    for first, last in itertools.pairwise(question_offsets):
        ranked = []
        for parent in range(first, last):
            for option, score, ended, stuck in beam_candidates(
                chain_scores[parent], option_logits[parent], finished[parent], beams, min_prob, terminate
            ):
                steps = (lengths[parent] if lengths else 0) + (option >= 0)
                rank = score / max(1, steps) ** length_penalty
                ranked.append((-rank, parent, option, score, ended, stuck))
        ranked.sort(key=lambda entry: entry[:3])
        results.append([entry[1:] for entry in ranked[:chains]])
    return results


def all_alignments(n: int, m: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every global alignment of n symbols with m, as columns (i, j) where -1 is a blank."""
    if n == 0 and m == 0:
        yield ()
        return
    if n > 0 and m > 0:
        for head in all_alignments(n - 1, m - 1):
            yield (*head, (n - 1, m - 1))
    if n > 0:
        for head in all_alignments(n - 1, m):
            yield (*head, (n - 1, -1))
    if m > 0:
        for head in all_alignments(n, m - 1):
            yield (*head, (-1, m - 1))


def score_columns(
    columns: Iterable[tuple[int, int]], pair: Callable[[int, int], float], gap: float, gap_open: float
) -> float:
    """Score an alignment by its definition: pairs, and `gap_open + (length - 1) * gap` for each run of blanks."""
    listed = list(columns)
    kinds = ["left" if i < 0 else "up" if j < 0 else "pair" for i, j in listed]
    total = 0.0
    for at, ((i, j), kind) in enumerate(zip(listed, kinds, strict=True)):
        if kind == "pair":
            total += pair(i, j)
        else:
            total += gap if at > 0 and kinds[at - 1] == kind else gap_open
    return total


def best_alignment_score(n: int, m: int, pair: Callable[[int, int], float], gap: float, gap_open: float) -> float:
    """Best score over whole runs: the last thing is a pair, a run of k symbols of a, or a run of k symbols of b."""
    best = {(0, 0): 0.0}
    for i, j in itertools.product(range(n + 1), range(m + 1)):
        if i == 0 and j == 0:
            continue
        options = [best[i - k, j] + gap_open + (k - 1) * gap for k in range(1, i + 1)]
        options += [best[i, j - k] + gap_open + (k - 1) * gap for k in range(1, j + 1)]
        if i > 0 and j > 0:
            options.append(best[i - 1, j - 1] + pair(i - 1, j - 1))
        best[i, j] = max(options)
    return best[n, m]


def levenshtein(a: Sequence[object], b: Sequence[object]) -> int:
    """Edit distance by the textbook table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def least_cover(sets: Sequence[frozenset[int]], weights: Sequence[float]) -> float:
    """Weight of the lightest cover of all features, by trying every choice of sets."""
    everything = frozenset().union(*sets)
    return min(
        (
            sum(weights[s] for s in choice)
            for size in range(len(sets) + 1)
            for choice in itertools.combinations(range(len(sets)), size)
            if frozenset().union(*(sets[s] for s in choice)) == everything
        ),
        default=0.0,
    )


def greedy_choice(sets: Sequence[frozenset[int]], weights: Sequence[float]) -> list[int]:
    """Chvátal's greedy cover, in the order taken."""
    rest = set().union(*sets)
    taken: list[int] = []
    while rest:
        prices = [(weights[s] / len(sets[s] & rest), s) for s in range(len(sets)) if sets[s] & rest]
        taken.append(min(prices)[1])
        rest -= sets[taken[-1]]
    return taken


def three_phases(
    intent: Sequence[bool], relations: Sequence[Sequence[bool]], nodes: Sequence[Sequence[bool]]
) -> list[int]:
    """Algorithm 1 of the Chain of Evidence paper, line by line."""
    chosen = [i for i, has in enumerate(intent) if has]
    for judged in (relations, nodes):
        width = len(judged[0]) if len(judged) else 0
        uncovered = [f for f in range(width) if not any(judged[i][f] for i in chosen)]
        for feature in uncovered:
            for i in range(len(intent)):
                if judged[i][feature]:
                    if i not in chosen:
                        chosen.append(i)
                    break
    return chosen


def lcs_length(a, b):
    """Longest common subsequence by the textbook table."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if x == y else max(above, row[j])
            diagonal = above
    return row[-1]


def ratio(a, b):
    """Normalised Indel similarity, 0 to 100."""
    total = len(a) + len(b)
    return 100 * 2 * lcs_length(a, b) / total if total else 100.0


def partial_ratio(a, b):
    """Best ratio over all windows of the longer text, by trying every one."""
    if not a or not b:
        return 100.0 if len(a) == len(b) else 0.0
    pairs = [(a, b)] if len(a) < len(b) else [(b, a)] if len(b) < len(a) else [(a, b), (b, a)]
    return max(
        ratio(needle, text[max(start, 0) : start + len(needle)])
        for needle, text in pairs
        for start in range(1 - len(needle), len(text))
    )


def token_set_ratio(a, b):
    """Ratios of sorted, joined word sets, by Python's own split and sets."""
    words_a, words_b = set(a.split()), set(b.split())
    if not words_a or not words_b:
        return 0.0
    both = words_a & words_b
    if both and (words_a <= words_b or words_b <= words_a):
        return 100.0
    common = " ".join(sorted(both))
    with_a = " ".join(sorted(both) + sorted(words_a - both))
    with_b = " ".join(sorted(both) + sorted(words_b - both))
    # The two longer texts are compared with the common beginning matched to itself, as RapidFuzz has it.
    rest_a, rest_b = with_a[len(common) :], with_b[len(common) :]
    shared = len(common) + (lcs_length(rest_a, rest_b) if not both else 1 + lcs_length(rest_a[1:], rest_b[1:]))
    scores = [200 * shared / (len(with_a) + len(with_b))]
    if both:
        scores += [200 * len(common) / (len(common) + len(text)) for text in (with_a, with_b)]
    return max(scores)


def _sorted(text):
    return " ".join(sorted(text.split()))


def _distinct(text):
    return " ".join(sorted(set(text.split())))


def token_sort_ratio(a, b):
    return ratio(_sorted(a), _sorted(b))


def token_ratio(a, b):
    return max(token_sort_ratio(a, b), token_set_ratio(a, b))


def partial_token_sort_ratio(a, b):
    return partial_ratio(_sorted(a), _sorted(b))


def partial_token_set_ratio(a, b):
    """100 for a word in common, 0 for a text without words."""
    if not a.split() or not b.split():
        return 0.0
    return 100.0 if set(a.split()) & set(b.split()) else partial_ratio(_distinct(a), _distinct(b))


def partial_token_ratio(a, b):
    return max(partial_token_sort_ratio(a, b), partial_token_set_ratio(a, b))


def weighted_ratio(a, b):
    """Ratio beside 0.95 of the token ratio, or of much longer texts beside what partial ones count."""
    if not a or not b:
        return 0.0
    times = max(len(a), len(b)) / min(len(a), len(b))
    if times < 1.5:
        return max(ratio(a, b), 0.95 * token_ratio(a, b))
    scale = 0.9 if times <= 8 else 0.6
    return max(ratio(a, b), scale * partial_ratio(a, b), 0.95 * scale * partial_token_ratio(a, b))


def quick_ratio(a, b):
    return ratio(a, b) if a and b else 0.0


def personalised_pagerank(
    rows: Sequence[Sequence[tuple[int, float]]], start: Sequence[float], restart: float
) -> list[float]:
    """Score all nodes by power iteration; `start` adds up to 1, and a walk without a way on starts anew."""
    scores = list(start)
    for _ in range(2_000):
        following = [restart * share for share in start]
        for node, row in enumerate(rows):
            total = math.fsum(weight for _, weight in row)
            ways = [(target, weight / total) for target, weight in row] if total > 0 else enumerate(start)
            for target, share in ways:
                following[target] += (1 - restart) * scores[node] * share
        change = math.fsum(abs(a - b) for a, b in zip(following, scores, strict=True))
        scores = following
        if change < 1e-15:
            break
    return scores


def nodes_within(
    rows: Sequence[Sequence[int]], sources: Sequence[int], hops: int, budget: int
) -> list[tuple[int, int, int]]:
    """Search breadth first: (node, hop, parent) in the order in which nodes are reached."""
    found: dict[int, tuple[int, int, int]] = {}
    waiting = [(source, 0, -1) for source in sources]
    while waiting and len(found) < budget:
        node, hop, parent = waiting.pop(0)
        if node not in found:
            found[node] = (node, hop, parent)
            waiting += [(target, hop + 1, node) for target in rows[node] if hop < hops]
    return list(found.values())


def reasoning_chains(
    candidates: Callable[[tuple[int, ...]], Sequence[int]],
    logits: Callable[[tuple[int, ...], Sequence[int]], Sequence[float]],
    *,
    length: int,
    beams: int,
    chains: int,
    min_prob: float,
    adaptive: bool,
    minimum: int,
) -> tuple[list[tuple[tuple[int, ...], tuple[float, ...], bool]], list[tuple[int, ...]]]:
    """Algorithm 1 of TRACE for one question, with probabilities multiplied as it is written there.

    `candidates` names the triples offered to a chain, and `logits` scores ending (entry 0) and each of them. Returns the
    chains, best first, as (triples, probability of each step, ended), and every chain that the selector was asked about.
    """
    kept: list[tuple[tuple[int, ...], tuple[float, ...], str]] = [((), (), "open")]
    asked = []
    for _ in range(length):
        grown: list[tuple[tuple[int, ...], tuple[float, ...], str]] = []
        for chain, steps, state in kept:
            if state != "open":
                grown.append((chain, steps, state))
                continue
            asked.append(chain)
            offered = candidates(chain)
            scores = dict(enumerate(logits(chain, offered)))
            if not adaptive or len(chain) < minimum:
                del scores[0]
            total = math.fsum(math.exp(score) for score in scores.values())
            tried = sorted(scores, key=lambda option: -scores[option])[:beams]
            likely = [option for option in tried if math.exp(scores[option]) / total >= min_prob]
            for option in likely:
                step = (*steps, math.exp(scores[option]) / total)
                grown.append((chain, step, "ended") if option == 0 else ((*chain, offered[option - 1]), step, "open"))
            if not likely:
                grown.append((chain, steps, "stuck"))
        grown.sort(key=lambda entry: -math.prod(entry[1]))
        kept = grown[:chains]
    return [(chain, steps, state == "ended") for chain, steps, state in kept if chain], asked


def shared_beginning(first: Sequence[int], second: Sequence[int]) -> int:
    """Count the tokens that two sequences share from the beginning."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def longest_take_over(tokens: Sequence[int], first_wanted: int, residents: Sequence[Sequence[int]]) -> int:
    """Count the tokens that a sequence may take over from the resident most like it."""
    return min(first_wanted, max((shared_beginning(tokens, resident) for resident in residents), default=0))


def equal_take_overs(works: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[int]:
    """Lower take-overs, pair by pair until nothing moves, so that sequences decoded together are equally long."""
    lowered = list(lengths)
    moved = True
    while moved:
        moved = False
        for i, j in itertools.permutations(range(len(works)), 2):
            if lowered[j] < min(lowered[i], shared_beginning(works[i], works[j])):
                lowered[i] = lowered[j]
                moved = True
    return lowered


def distinct_beginnings(sequences: Iterable[Sequence[int]], starts: Iterable[int]) -> int:
    """Count the different beginnings that end at or after each sequence's start: cells of a cache that shares all."""
    return len(
        {
            tuple(tokens[: end + 1])
            for tokens, start in zip(sequences, starts, strict=True)
            for end in range(start, len(tokens))
        }
    )
