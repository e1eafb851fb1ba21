"""Ray's processes that answer the batches of an evaluation: on this machine, or on all machines of a Ray cluster.

The batches are a Ray data set, an actor that makes the methods once is mapped over it, and this process takes the results as
they come. Ray starts a process anew that has died, as happens where a machine is lost, and gives it the same batch; a batch
that has ended `_ATTEMPTS` processes ends the run.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytrace.errors import DeviceUnavailableError, InputError, WorkerError
from pytrace.evaluation.run.ray_cluster import import_ray, quiet, ray_cluster
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.run.runner import Batch, Method, answer_batch
from pytrace.evaluation.run.workers import make_methods, outcome, pickled

# How many processes may end at one batch, or one after another while they make the methods, before it is taken for their fault.
_ATTEMPTS = 2


class RayEngine:
    """An engine for `pytrace.evaluation.run.runner.evaluate`: processes that Ray starts.

    A Ray that this process has started already is used as it is, and left running.
    """

    def __init__(
        self,
        make: Callable[[], Mapping[str, Method]],
        sizes: Mapping[str, int],
        *,
        processes: int = 1,
        threads: int = 1,
        gpu: bool = False,
        address: str | None = None,
    ) -> None:
        if processes < 1 or threads < 1:
            raise InputError(f"{processes} processes of {threads} threads were asked for; at least 1 of each is needed")
        self.sizes = dict(sizes)
        self.processes = processes
        self.threads = threads
        self.gpu = gpu
        self.address = address
        self._make = pickled(make)
        import_ray()

    def results(self, batches: Sequence[Batch]) -> Generator[tuple[Batch, Sequence[RunRow]]]:
        """Answer batches, in the order in which processes are through with them."""
        ray = import_ray()
        processes = min(self.processes, len(batches))
        with ray_cluster(processes * self.threads, self.address):
            gpus = float(ray.cluster_resources().get("GPU", 0))
            if self.gpu and not gpus:
                raise DeviceUnavailableError(
                    "Ray knows no GPU, and --device cuda asks for one; leave it out, or correct CUDA_VISIBLE_DEVICES"
                )
            attempts = ray.remote(_Attempts).options(num_cpus=0).remote(processes * _ATTEMPTS)
            rows = [{"number": number, "batch": pickle.dumps(batch)} for number, batch in enumerate(batches)]
            data = ray.data.from_items(rows, override_num_blocks=len(rows))
            quiet(data)
            answered = data.map(
                _Answering,
                fn_constructor_args=(self._make, str(Path.cwd()), attempts),
                # One at a time: what waits in an actor's queue, another one cannot take.
                compute=ray.data.ActorPoolStrategy(size=processes, max_tasks_in_flight_per_actor=1),
                num_cpus=self.threads,
                num_gpus=min(1.0, gpus / processes) if self.gpu else None,
            )
            try:
                for block in answered.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pyarrow"):
                    for row in block.to_pylist():
                        answers = pickle.loads(row["outcome"])
                        if isinstance(answers, Exception):
                            raise answers
                        yield batches[row["number"]], answers
            except ray.exceptions.RayError as error:
                message = (str(error).strip().splitlines() or ["no message"])[0]
                raise WorkerError(
                    f"Ray cannot go on ({type(error).__name__}: {message}); the answers before are kept, so resume the run"
                ) from error


class _Attempts:
    """Counts, in a process of its own, how often each batch was begun: a batch that is begun again has ended a process."""

    def __init__(self, starts: int) -> None:
        self._begun: dict[int, int] = {}
        self._starts = 0
        self._most_starts = starts

    def start(self) -> bool:
        """Say that a process begins to make the methods; false if so many have died of it that it should not."""
        self._starts += 1
        return self._starts <= self._most_starts

    def begin(self, number: int) -> bool:
        """Say that a process begins with a batch; false if it should not."""
        self._starts = 0
        self._begun[number] = self._begun.get(number, 0) + 1
        return self._begun[number] <= _ATTEMPTS


class _Answering:
    """Makes the methods once, and answers batch after batch; whatever is raised is an outcome too."""

    def __init__(self, make: bytes, folder: str, attempts: Any) -> None:
        import ray

        self._get = ray.get
        self._attempts = attempts
        if Path(folder).is_dir():
            os.chdir(folder)  # what the job says of files is said from where it was given
        self._methods: Mapping[str, Method] | Exception = WorkerError(
            f"{_ATTEMPTS} Ray processes ended, one after another, while making the methods, as happens where memory runs "
            "out; use fewer processes or a smaller model"
        )
        if self._get(attempts.start.remote()):
            self._methods = outcome(partial(make_methods, make))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"number": row["number"], "outcome": pickle.dumps(self._outcome(row))}

    def _outcome(self, row: dict[str, Any]) -> list[RunRow] | Exception:
        if isinstance(self._methods, Exception):
            return self._methods
        batch: Batch = pickle.loads(row["batch"])
        if not self._get(self._attempts.begin.remote(int(row["number"]))):
            return WorkerError(
                f"{_ATTEMPTS} Ray processes ended while answering {len(batch.questions)} questions with {batch.method}, as "
                "happens where memory runs out; the answers before are kept, so resume the run, with fewer processes or a smaller model"
            )
        return outcome(partial(answer_batch, self._methods, batch))
