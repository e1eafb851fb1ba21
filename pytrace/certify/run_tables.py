"""Runs of several models side by side: the figures of Tables 2 and 3 of the paper, one row a run and a way of asking."""

# Source: section 5 of the paper: accuracy of judgements by mode, and F1 of answers and reasoning, their gap, and edit distances by prompting.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytrace.certify.certification_scores import CertificationScores, score_certificates
from pytrace.certify.discriminative import ModeReport, read_modes
from pytrace.check_records import Certificate
from pytrace.errors import DataError, InputError
from pytrace.storage.foreign_json import decode_json
from pytrace.triples.graph.exchange import read_lines

_CERTIFICATES = "certificates-"


class JudgedRun(msgspec.Struct, frozen=True):
    """A model's judgements in one mode of ``certify discriminate``; `run` is the name of their file."""

    run: str
    report: ModeReport


class GeneratedRun(msgspec.Struct, frozen=True):
    """A model's certified responses to one prompting of ``certify generate``; `run` is the name of their directory."""

    run: str
    prompting: str
    scores: CertificationScores


class RunTables(msgspec.Struct, frozen=True):
    """All runs, in the order in which they were given."""

    judged: tuple[JudgedRun, ...]
    generated: tuple[GeneratedRun, ...]


def read_run_tables(paths: Sequence[Path]) -> RunTables:
    """Read runs: files that ``certify discriminate --out`` wrote, and directories of ``certify generate``.

    Raises
    ------
    InputError
        A directory has no certificates.
    DataError
        A file is neither, or was cut off.
    """
    judged: list[JudgedRun] = []
    generated: list[GeneratedRun] = []
    for path in paths:
        if path.is_dir():
            generated += _generated(path)
        else:
            judged += [JudgedRun(path.stem, report) for report in read_modes(path)]
    return RunTables(tuple(judged), tuple(generated))


def _generated(directory: Path) -> list[GeneratedRun]:
    files = sorted(directory.glob(f"{_CERTIFICATES}*.jsonl"))
    if not files:
        raise InputError(
            f"{directory} has no certificates; name a directory that 'pytrace certify generate --out' made"
        )
    return [
        GeneratedRun(
            directory.resolve().name,
            file.stem.removeprefix(_CERTIFICATES),
            score_certificates(_certificates(file)),
        )
        for file in files
    ]


def _certificates(path: Path) -> Iterator[Certificate]:
    for number, line in read_lines(path):
        try:
            yield decode_json(line, Certificate, surrogates=True)
        except ValueError as error:
            raise DataError(
                f"no certificate of this version ({error}); certify again", path=path, line=number
            ) from None
