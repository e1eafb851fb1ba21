"""The study of perturbed evidence: how often answers are right, or follow a wrong one, and whether a whole chain helps.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
sections 5 to 7 and appendices A and B.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytrace.errors import MissingDependencyError
from pytrace.evaluation.run.run_store import Result
from pytrace.evaluation.scores.figure_files import new_figure, save_figure
from pytrace.evaluation.scores.matching import FuzzyMatcher, Matcher, ModelMatcher, Pair
from pytrace.perturb.breaking import KINDS
from pytrace.perturb.perturbed_rows import Noise

__all__ = [
    "Cell",
    "FuzzyMatcher",
    "HopCell",
    "Matcher",
    "ModelMatcher",
    "Study",
    "Table",
    "draw_curves",
    "study_results",
    "study_tables",
]

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
    """How a method did on the `n` rows of one kind, noise and ratio.

    `accuracy` is the share of right answers, `following` that of the wrong answer (None without one, and without rows).
    `failed` rows have no answer and count as neither. `p_value` is that of a two-sided Mann–Whitney U test against the whole
    chain with the same noise and ratio, of what the noise is judged by; None where it is not defined.
    """

    kind: str
    noise: str
    ratio: float
    n: int
    failed: int
    accuracy: float | None
    following: float | None
    p_value: float | None = None


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


def study_results(method: str, results: Sequence[Result], *, matcher: Matcher | None = None) -> Study | None:
    """Study how one method answered perturbed questions."""
    # Source: sections 5.1 (ACC, Mann–Whitney tests), 6.1 (FR), 7.1, and appendix B (hops).
    perturbed = [one for one in results if one.perturbation is not None]
    if not perturbed:
        return None
    rows = list(_rows(perturbed, matcher if matcher is not None else FuzzyMatcher()))
    groups: dict[tuple[Noise, float, str], list[_Row]] = {}
    for row in sorted(rows, key=lambda one: (_NOISES.index(one.noise), one.ratio, KINDS.index(one.kind))):
        groups.setdefault((row.noise, row.ratio, row.kind), []).append(row)
    cells = tuple(
        Cell(
            kind=kind,
            noise=noise,
            ratio=ratio,
            n=len(own),
            failed=sum(one.failed for one in own),
            accuracy=_share([one.right for one in own]),
            following=_share([one.wrong for one in own if one.wrong is not None]),
            p_value=None if kind == "coe" else _p_value(own, groups.get((noise, ratio, "coe"), [])),
        )
        for (noise, ratio, kind), own in groups.items()
    )
    hops = tuple(
        HopCell(kind, noise, ratio, number, len(split), _share([one.counted for one in split]))
        for (noise, ratio, kind), own in groups.items()
        for number in range(1, _MOST_HOPS + 1)
        if (split := [one for one in own if one.hops == number])
    )
    return Study(method, cells, hops)


def _rows(results: Sequence[Result], matcher: Matcher) -> Iterator[_Row]:
    """Match all answers in one call, the right ones and the wrong ones."""
    pairs: list[Pair] = []
    for one in results:
        given = "" if one.answer is None else one.answer.text
        wrong = "" if one.perturbation is None else one.perturbation.wrong_answer
        pairs += [Pair(one.question, given, one.answers), Pair(one.question, given, (wrong,) if wrong else ())]
    verdicts = matcher.match(pairs)
    for one, right, follows, pair in zip(results, verdicts[::2], verdicts[1::2], pairs[1::2], strict=True):
        if one.perturbation is not None:
            done = one.perturbation
            hops = min(max(done.hops, 1), _MOST_HOPS)
            failed = one.answer is None
            yield _Row(done.kind, done.noise, done.ratio, hops, failed, right, follows if pair.answers else None)


def _share(values: Sequence[bool | None]) -> float | None:
    return sum(map(bool, values)) / len(values) if values else None


def _p_value(own: Sequence[_Row], whole: Sequence[_Row]) -> float | None:
    """Test whether broken chains score otherwise than whole ones; None if there are none, or all scores are the same."""
    first, second = [float(one.counted) for one in own], [float(one.counted) for one in whole]
    if not first or not second or len({*first, *second}) < 2:
        return None
    try:
        stats: Any = importlib.import_module("scipy.stats")
    except ImportError as error:
        raise MissingDependencyError(
            "the Mann-Whitney tests of a study need SciPy: pip install 'pytrace-rag[eval]'"
        ) from error
    value = float(stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)
    return value if math.isfinite(value) else None


def study_tables(study: Study) -> list[Table]:
    """Lay a study out as the paper's tables: a row a ratio, a column a kind, and a star where it differs from the whole chain."""
    tables = []
    for noise in _NOISES:
        own = {(one.ratio, one.kind): one for one in study.cells if one.noise == noise}
        kinds = [kind for kind in KINDS if any(one == kind for _, one in own)]
        if not own:
            continue
        rows = []
        for ratio in sorted({ratio for ratio, _ in own}):
            cells = [own.get((ratio, kind)) for kind in kinds]
            rows.append((f"{ratio:g}", *(_shown(one) for one in cells), str(sum(one.n for one in cells if one))))
        title = f"{study.method}: {_TITLES[noise]}, in percent (* differs from CoE, p < {SIGNIFICANT})"
        tables.append(Table(title, ("RATIO", *(_NAMES[kind] for kind in kinds), "ROWS"), tuple(rows)))
    return [*tables, *_hop_tables(study)]


def _shown(cell: Cell | None) -> str:
    share = None if cell is None else _measure(cell)
    if cell is None or share is None:
        return "-"
    return f"{100 * share:.1f}" + "*" * (cell.p_value is not None and cell.p_value < SIGNIFICANT)


def _measure(cell: Cell) -> float | None:
    return cell.following if _METRICS[cell.noise] == "FR" else cell.accuracy  # type: ignore[index]


def _hop_tables(study: Study) -> list[Table]:
    tables = []
    for noise in _NOISES:
        own = {(one.ratio, one.hops): one for one in study.hops if one.noise == noise and one.kind == "coe"}
        hops = sorted({number for _, number in own})
        if len(hops) < 2:
            continue  # nothing is split
        rows = tuple(
            (
                f"{ratio:g}",
                *(
                    "-"
                    if (one := own.get((ratio, number))) is None or one.share is None
                    else f"{100 * one.share:.1f} ({one.n})"
                    for number in hops
                ),
            )
            for ratio in sorted({ratio for ratio, _ in own})
        )
        names = tuple(f"{number}{'+' * (number == _MOST_HOPS)} HOP{'S' * (number > 1)} (ROWS)" for number in hops)
        title = f"{study.method}: {_TITLES[noise]}, whole chains by hops, in percent"
        tables.append(Table(title, ("RATIO", *names), rows))
    return tables


def draw_curves(study: Study, directory: Path) -> list[Path]:
    """Draw each noise's shares over its ratio, one curve a kind, as PNG and SVG."""
    # Source: Tables 2 to 4, as curves.
    paths: list[Path] = []
    for noise in _NOISES:
        own = [one for one in study.cells if one.noise == noise]
        if not own:
            continue
        figure, axes = new_figure("the curves of a study", (7, 5))
        for kind in KINDS:
            points = [
                (one.ratio, 100 * share) for one in own if one.kind == kind and (share := _measure(one)) is not None
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
