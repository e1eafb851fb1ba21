"""The study of perturbed evidence: how often answers are right, or follow a wrong one, and whether a whole chain helps."""

# Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect
# Context", sections 5 to 7 and appendices A and B.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.figure_files import new_figure, save_figure
from pytrace.evaluation.scores.matching import FuzzyMatcher, Matcher, Pair
from pytrace.evaluation.scores.metrics import mean_of
from pytrace.evaluation.scores.significance import mann_whitney
from pytrace.perturb.breaking import KINDS
from pytrace.perturb.perturbed_rows import Noise
from pytrace.records import Perturbation

SIGNIFICANT = 0.05

# What a table shows: how often the right answer is given, or the wrong one that the chain tells.
_METRICS: Mapping[Noise, Literal["ACC", "FR"]] = {"irrelevant": "ACC", "swapped": "FR", "misinformation": "ACC"}
# In the order of the paper: effectiveness, faithfulness, robustness.
_NOISES: tuple[Noise, ...] = tuple(_METRICS)
_TITLES: Mapping[Noise, str] = {
    "irrelevant": "Accuracy (ACC) beside irrelevant text",
    "swapped": "Following rate (FR) of the wrong answer in the chain, beside irrelevant text",
    "misinformation": "Accuracy (ACC) beside misinformation",
}
_NAMES = {"coe": "CoE", "senp": "SenP", "wordp": "WordP", "erp": "ERP", "intentp": "IntentP"}
_MOST_HOPS = 3


class Cell(msgspec.Struct, frozen=True):
    """How a method did on the `n` rows of one kind, noise and ratio; what is not defined is None."""

    kind: str
    noise: str
    ratio: float
    n: int
    failed: int  # rows without an answer, which count as neither
    accuracy: float | None  # the share of right answers
    following: float | None  # that of the wrong answer that the chain tells
    p_value: float | None = None  # Mann–Whitney against the whole chain, of what the noise is judged by


class HopCell(msgspec.Struct, frozen=True):
    """The share of right answers (swapped chains: of wrong ones) for questions of so many hops; 3 stands for 3 and more."""

    kind: str
    noise: str
    ratio: float
    hops: int
    n: int
    share: float | None


class Study(msgspec.Struct, frozen=True):
    """The study of one method: a cell for every kind, noise and ratio that was asked, and the split by hops."""

    method: str
    cells: tuple[Cell, ...]
    hops: tuple[HopCell, ...]


class Table(msgspec.Struct, frozen=True):
    """A table of texts, ready to be printed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class _Row(msgspec.Struct, frozen=True):
    kind: str
    noise: Noise
    ratio: float
    hops: int
    failed: bool
    right: bool
    wrong: bool | None

    @property
    def counted(self) -> bool:
        """What the noise is judged by: the wrong answer where the chain tells it, else the right one."""
        return bool(self.wrong) if _METRICS[self.noise] == "FR" else self.right


def study_rows(method: str, rows: Sequence[RunRow], *, matcher: Matcher | None = None) -> Study | None:
    """Study how one method answered perturbed questions."""
    # Source: sections 5.1 (ACC, Mann–Whitney tests), 6.1 (FR), 7.1, and appendix B (hops).
    perturbed = [(row, row.perturbation) for row in rows if row.perturbation is not None]
    if not perturbed:
        return None
    matched = _matched(perturbed, matcher if matcher is not None else FuzzyMatcher())
    groups: dict[tuple[Noise, float, str], list[_Row]] = {}
    for row in sorted(matched, key=lambda row: (_NOISES.index(row.noise), row.ratio, KINDS.index(row.kind))):
        groups.setdefault((row.noise, row.ratio, row.kind), []).append(row)
    cells = tuple(
        Cell(
            kind=kind,
            noise=noise,
            ratio=ratio,
            n=len(group),
            failed=sum(row.failed for row in group),
            accuracy=mean_of(row.right for row in group).mean,
            following=mean_of(row.wrong for row in group).mean,
            # Rows of different chains are not paired, hence the rank test and not the bootstrap.
            p_value=None
            if kind == "coe"
            else mann_whitney(
                [float(row.counted) for row in group],
                [float(row.counted) for row in groups.get((noise, ratio, "coe"), [])],
            ),
        )
        for (noise, ratio, kind), group in groups.items()
    )
    hops = tuple(
        HopCell(kind, noise, ratio, number, len(split), mean_of(row.counted for row in split).mean)
        for (noise, ratio, kind), group in groups.items()
        for number in range(1, _MOST_HOPS + 1)
        if (split := [row for row in group if row.hops == number])
    )
    return Study(method, cells, hops)


def _matched(perturbed: Sequence[tuple[RunRow, Perturbation]], matcher: Matcher) -> list[_Row]:
    # The right answers and the wrong ones in one call: a matcher that asks a model has them in one batch.
    pairs: list[Pair] = []
    for row, change in perturbed:
        given = "" if row.result is None else row.result.answer
        wrong = (change.wrong_answer,) if change.wrong_answer else ()
        pairs += [Pair(row.question, given, row.answers), Pair(row.question, given, wrong)]
    verdicts = matcher.match(pairs)
    return [
        _Row(
            kind=change.kind,
            noise=change.noise,
            ratio=change.ratio,
            hops=min(max(change.hops, 1), _MOST_HOPS),
            failed=row.result is None,
            right=right,
            wrong=follows if change.wrong_answer else None,
        )
        for (row, change), right, follows in zip(perturbed, verdicts[::2], verdicts[1::2], strict=True)
    ]


def study_tables(study: Study) -> list[Table]:
    """Lay a study out as the paper's tables: a row a ratio, a column a kind, and a star where it differs from the whole chain."""
    tables, hop_tables = [], []
    for noise in _NOISES:
        cells = {(cell.ratio, cell.kind): cell for cell in study.cells if cell.noise == noise}
        kinds = [kind for kind in KINDS if any(kind == other for _, other in cells)]
        title = f"{study.method}: {_TITLES[noise]}"
        if cells:
            rows = []
            for ratio in sorted({ratio for ratio, _ in cells}):
                asked = sum(cell.n for (other, _), cell in cells.items() if other == ratio)
                rows.append((f"{ratio:g}", *(_shown(cells.get((ratio, kind))) for kind in kinds), str(asked)))
            columns = ("RATIO", *(_NAMES[kind] for kind in kinds), "ROWS")
            tables.append(Table(f"{title}, in percent (* differs from CoE, p < {SIGNIFICANT})", columns, tuple(rows)))
        split = {(cell.ratio, cell.hops): cell for cell in study.hops if cell.noise == noise and cell.kind == "coe"}
        hops = sorted({number for _, number in split})
        if len(hops) > 1:  # else nothing is split
            rows = [
                (f"{ratio:g}", *(_shown_hops(split.get((ratio, number))) for number in hops))
                for ratio in sorted({ratio for ratio, _ in split})
            ]
            names = (f"{number}{'+' * (number == _MOST_HOPS)} HOP{'S' * (number > 1)} (ROWS)" for number in hops)
            hop_tables.append(Table(f"{title}, whole chains by hops, in percent", ("RATIO", *names), tuple(rows)))
    return [*tables, *hop_tables]


def _shown_hops(cell: HopCell | None) -> str:
    return "-" if cell is None or cell.share is None else f"{100 * cell.share:.1f} ({cell.n})"


def _shown(cell: Cell | None) -> str:
    share = None if cell is None else _measure(cell)
    if cell is None or share is None:
        return "-"
    return f"{100 * share:.1f}" + "*" * (cell.p_value is not None and cell.p_value < SIGNIFICANT)


def _measure(cell: Cell) -> float | None:
    return cell.following if _METRICS[cell.noise] == "FR" else cell.accuracy  # type: ignore[index]


def draw_curves(study: Study, directory: Path) -> list[Path]:
    """Draw each noise's shares over its ratio, one curve a kind, as PNG and SVG."""
    # Source: Tables 2 to 4, as curves.
    paths: list[Path] = []
    for noise in _NOISES:
        cells = [cell for cell in study.cells if cell.noise == noise]
        if not cells:
            continue
        figure, axes = new_figure("the curves of a study", (7, 5))
        for kind in KINDS:
            points = [
                (cell.ratio, 100 * share)
                for cell in cells
                if cell.kind == kind and (share := _measure(cell)) is not None
            ]
            if points:
                axes.plot(
                    [ratio for ratio, _ in points], [share for _, share in points], marker="o", label=_NAMES[kind],
                    linewidth=2.5 if kind == "coe" else 1.2, color="black" if kind == "coe" else None,
                )  # fmt: skip
        axes.set_xlabel("share of injected characters")
        axes.set_ylabel(f"{_METRICS[noise]} (%)")
        axes.set_ylim(-2, 102)
        axes.set_title(f"{study.method}: {_TITLES[noise]}", fontsize="medium")
        axes.grid(visible=True, linewidth=0.3)
        if axes.lines:
            axes.legend(fontsize="small")
        # A method's name may hold what no file name may.
        name = re.sub(r"[^\w.-]+", "-", study.method, flags=re.ASCII).strip(".-") or "method"
        paths += save_figure(figure, directory, f"{name}-{noise}", dpi=120)
    return paths
