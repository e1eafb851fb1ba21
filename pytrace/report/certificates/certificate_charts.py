"""The plots of certificates: what kinds they are, why they fail, and how answers and reasoning differ."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.certify.certification_scores import CertificationScores
from pytrace.report.drawing import WIDTH, at_share, drawing, estimate, label, line, link, rect, share_axis, titled
from pytrace.report.page_texts import finite, percent, points

KIND_NAMES = {
    "faithful": "Faithful",
    "unfaithful": "Unfaithful",
    "abstained": "Abstained",
    "unstructured": "Unstructured",
}
# In the order in which they are looked for: the first failing reason counts.
ERROR_NAMES = {"factual": "Factual error", "incoherent": "Incoherence", "answer": "Answer error"}


def bars(name: str, title: str, names: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """Draw how many responses are of which kind or error as bars; those of errors are Figure 4 of the paper."""
    total = sum(counts.get(kind, 0) for kind in names)
    parts, texts = [], []
    for row, (kind, word) in enumerate(names.items()):
        count, y = counts.get(kind, 0), 44 * row
        words = f"{count:,} · {percent(count / total if total else None)}"
        texts.append(f"{word}: {words}")
        parts += [*titled(y + 18, word, words, ("label", "value")), rect("track", 0, y + 26, WIDTH, 8, rx=4)]
        if count:
            # One response of ten thousand is still a mark that can be seen.
            parts.append(rect(f"bar {kind}", 0, y + 26, max(WIDTH * count / total, 3), 8, rx=4))
    return drawing(name, title, texts, 44 * len(names), parts)


def gap_chart(summary: CertificationScores) -> str:
    """Draw precision, recall and F1 of answers (rings) and reasoning (squares) on one axis, and the gap between them."""
    parts, texts = share_axis(10, 172, 188), []
    for row, (name, measure) in enumerate((("Precision", "precision"), ("Recall", "recall"), ("F1", "f1"))):
        y = 34 + 54 * row
        answers = getattr(summary.answer, measure, None)
        reasoning = getattr(summary.reasoning, measure)
        first, second = finite(answers.value if answers else None), finite(reasoning.value)
        words = f"answers {percent(first)} · reasoning {percent(second)}"
        texts.append(f"{name}: {words}")
        parts += titled(y - 12, name, words, ("on-grid", "value on-grid"))
        if first is not None and second is not None:
            parts.append(line("gap", at_share(first), y + 8, at_share(second), y + 8))
        if answers:
            parts += estimate("answers", answers.value, (answers.low, answers.high), y + 4, ring=True, size=10)
        parts += estimate("reasoning", reasoning.value, (reasoning.low, reasoning.high), y + 12, ring=False, size=9)
    texts.append(f"gap in F1: {points(summary.gap.value)}")
    return drawing("gap", "Answers beside reasoning", texts, 196, parts)


def quadrants_chart(summary: CertificationScores) -> str:
    """Draw the four quadrants of answer and reasoning; each leads to its responses."""
    cells = [(answer, kind) for answer in ("right", "wrong") for kind in ("faithful", "unfaithful")]
    total = sum(summary.quadrants.get(f"{answer} {kind}", 0) for answer, kind in cells)
    heads = (
        (138, 14, "reasoning faithful", "middle"), (252, 14, "unfaithful", "middle"), (70, 58, "answer", "end"),
        (70, 74, "right", "end"), (70, 136, "answer", "end"), (70, 152, "wrong", "end"),
    )  # fmt: skip
    parts, texts = [label(x, y, words, "tick", anchor=anchor) for x, y, words, anchor in heads], []
    for row, (answer, kind) in enumerate(cells):
        count = summary.quadrants.get(f"{answer} {kind}", 0)
        share = count / total if total else None
        texts.append(f"answer {answer} and reasoning {kind}: {count}")
        x, y = 82 + 114 * (row % 2), 24 + 78 * (row // 2)
        # The quadrant that the paper is about: right for the wrong reasons.
        lucky = " lucky" if (answer, kind) == ("right", "unfaithful") else ""
        box = f'x="{x}" y="{y}" width="112" height="76" rx="4"'
        field = [
            f'<rect class="quadrant{lucky}" {box}/>',
            f'<rect class="quadrant-fill{lucky}" {box} fill-opacity="{0.45 * (share or 0):.3f}"/>',
            label(x + 56, y + 38, f"{count:,}", "count", anchor="middle"),
            label(x + 56, y + 58, percent(share), "tick", anchor="middle"),
        ]
        name = f"{count} responses with the answer {answer} and the reasoning {kind}"
        parts.append(link(f"answer={answer}&amp;kind={kind}", name, field))
    return drawing("quadrants", "Answer and reasoning", texts, 184, parts, role="group")
