"""An index is built by several processes, of this machine or of a Ray cluster: each reads and encodes a part, and the parts are merged."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytrace import processes
from pytrace.documents import ReadReport, read_documents
from pytrace.documents.reader import ReadOptions
from pytrace.engine.loading import Engine
from pytrace.engine.named_passages import name_passages
from pytrace.errors import WorkerError
from pytrace.evaluation.run.workers import outcome
from pytrace.retrieval.passages.manifest import VectorType

if TYPE_CHECKING:
    from pytrace.retrieval.passages import IndexWriter

_GOES_ON = "what was encoded is kept, so do the same again, with fewer processes if memory is short"


class Built(NamedTuple):
    """What was read for a part, and how many of its passages the encoder had to read."""

    report: ReadReport
    encoded: int


@dataclass(frozen=True)
class Shards:
    """How an index is built in parts: the documents of `docs`, named by the graph `kg` if there is one, dealt out to processes that each load `models`.

    The parts are indexes of their own in `directory`, which all processes must see, until they are merged; a part that was begun
    goes on where it was.
    """

    directory: Path
    docs: tuple[Path, ...]
    reading: ReadOptions
    vectors: VectorType | None
    models: Engine
    processes: int
    kg: Path | None = None
    skip_bad: bool = False

    def build(self, number: int) -> Built:
        """Build one of the parts, from 1."""
        from pytrace.retrieval.passages import IndexWriter

        report = ReadReport()
        try:
            with IndexWriter(self.part(number), self.models.encoder, create=True, vectors=self.vectors) as writer:
                part = number, self.processes
                passages = read_documents(self.docs, report=report, part=part, skip_bad=self.skip_bad, **self.reading)
                writer.add(name_passages(passages, self.kg))
                writer.remove_unseen()
                return Built(report, writer.commit().encoded)
        finally:
            self.models.close()

    def part(self, number: int) -> Path:
        """Return where a part is."""
        return self.directory / f"{number}-of-{self.processes}"

    def merge(self, writer: IndexWriter) -> None:
        """Let an index have what the parts have; they are removed by `clear`, once it is committed."""
        for number in range(1, self.processes + 1):
            writer.merge(self.part(number))

    def clear(self) -> None:
        """Remove the parts, and their directory if nothing else is in it."""
        for number in range(1, self.processes + 1):
            shutil.rmtree(self.part(number), ignore_errors=True)
        with suppress(OSError):
            self.directory.rmdir()


def build_in_processes(shards: Shards) -> Iterator[Built]:
    """Build the parts in processes of this machine."""
    processes.check_count(shards.processes)
    context = multiprocessing.get_context("spawn")
    numbers = range(1, shards.processes + 1)
    with ProcessPoolExecutor(shards.processes, mp_context=context, initializer=processes.be_a_worker) as pool:
        try:
            with processes.interrupts_held():
                results = pool.map(partial(_outcome, shards), numbers)
            for result in results:
                yield _built(result)
        except BrokenProcessPool:
            raise WorkerError(f"a process that built a part of the index was ended; {_GOES_ON}") from None
        except BaseException:
            # An interrupt, or an error of one part: the others need not come to their end.
            for process in multiprocessing.active_children():
                process.kill()
            raise


def build_with_ray(shards: Shards, *, address: str | None = None) -> Iterator[Built]:
    """Build the parts on Ray, of this machine or of the cluster at an address."""
    from pytrace.evaluation.run.ray_cluster import import_ray, quiet, ray_cluster

    ray = import_ray()
    threads = shards.models.threads or 1
    with ray_cluster(shards.processes * threads, address):
        rows = [{"number": number} for number in range(1, shards.processes + 1)]
        data = ray.data.from_items(rows, override_num_blocks=len(rows))
        quiet(data)
        gpus = float(ray.cluster_resources().get("GPU", 0)) if shards.models.device == "cuda" else 0.0
        built = data.map(
            partial(_row, pickle.dumps(shards), str(Path.cwd())),
            num_cpus=threads,
            # Ray hides a machine's GPUs from processes that did not ask for one.
            num_gpus=min(1.0, gpus / shards.processes) or None,
        )
        try:
            for row in built.iter_rows():
                yield _built(pickle.loads(row["outcome"]))
        except ray.exceptions.RayError as error:
            message = (str(error).strip().splitlines() or ["no message"])[0]
            raise WorkerError(f"Ray cannot go on ({type(error).__name__}: {message}); {_GOES_ON}") from error


def joined(reports: Sequence[ReadReport]) -> ReadReport:
    """Return what several processes have read as one report."""
    whole = ReadReport()
    for report in reports:
        whole.documents += report.documents
        whole.empty += report.empty
        whole.duplicates += report.duplicates
        whole.filtered += report.filtered
        whole.other_files += report.other_files
        whole.skipped += report.skipped
        whole.warnings += report.warnings
        whole.bad += report.bad
    return whole


def _outcome(shards: Shards, number: int) -> Built | Exception:
    return outcome(partial(shards.build, number))


def _row(shards: bytes, folder: str, row: dict[str, int]) -> dict[str, bytes]:
    if Path(folder).is_dir():
        os.chdir(folder)  # an encoder that is named by its path is named from where the command was given
    return {"outcome": pickle.dumps(_outcome(pickle.loads(shards), row["number"]))}


def _built(result: Built | Exception) -> Built:
    if isinstance(result, Exception):
        raise result
    return result
