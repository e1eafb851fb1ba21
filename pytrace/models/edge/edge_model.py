"""The small model on onnxruntime: reads answers out of passages, checks claims against texts, and links passages to chains."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ModelFileError
from pytrace.models.edge.packing import PackedInput, Packer
from pytrace.models.edge.reading import READ_OUTPUTS, EdgeReading, Logits, check, link, read
from pytrace.models.encoders.onnx_graph import NO_MEMORY, first_line, open_session

GRAPH, CHECK_GRAPH, SHARED = "model.onnx", "check.onnx", "embeddings.bin"
"""What reads and links, what checks claims, and the word embeddings of both."""

INPUTS = ("input_ids", "token_type_ids")
"""Inputs of each graph, one window at a time: nothing is padded, so none takes an attention mask."""

OUTPUTS = {GRAPH: (*READ_OUTPUTS, "link"), CHECK_GRAPH: ("check",)}
"""What each graph gives."""

TOKENIZER = "tokenizer.json"
_SHIPPED = Path(__file__).with_name("weights")


def shipped_edge() -> Path | None:
    """Return the folder of the small model; None if it, or what runs it, is not installed."""
    usable = (_SHIPPED / GRAPH).is_file() and find_spec("onnxruntime") is not None
    return _SHIPPED if usable else None


class EdgeModel:
    """The small model of a folder.

    Parameters
    ----------
    directory
        Folder with `model.onnx`, `check.onnx`, `embeddings.bin` and `tokenizer.json`, as ``pytrace train edge`` writes them.
    threads
        Threads of one run.

    Raises
    ------
    ModelFileError
        A file is missing or is not such a model.
    """

    def __init__(self, directory: Path, *, threads: int = 1) -> None:
        for name in (GRAPH, CHECK_GRAPH, SHARED, TOKENIZER):
            if not (directory / name).is_file():
                raise ModelFileError(f"{directory} has no {name}; give a folder that 'pytrace train edge' wrote")
        self.directory = directory
        self._packer = Packer(directory / TOKENIZER)
        self._threads = threads
        self._opening = threading.Lock()
        # Each is opened when it is first needed: most questions check nothing.
        self._sessions: dict[str, Any] = {}

    def _session(self, graph: str) -> Any:
        with self._opening:
            if graph not in self._sessions:
                session = open_session(self.directory / graph, ["CPUExecutionProvider"], self._threads)
                for does, items, wanted in (
                    ("expects inputs", session.get_inputs(), INPUTS),
                    ("has outputs", session.get_outputs(), OUTPUTS[graph]),
                ):
                    given = tuple(item.name for item in items)
                    if given != wanted:
                        raise ModelFileError(
                            f"{self.directory / graph} {does} {', '.join(given)} instead of {', '.join(wanted)}; use a model "
                            "written by this version of 'pytrace train edge'"
                        )
                self._sessions[graph] = session
            return self._sessions[graph]

    def open_reader(self) -> None:
        """Open the graph that reads now, instead of when it is first needed."""
        self._session(GRAPH)

    def _run(self, outputs: Sequence[str], packed: PackedInput) -> Logits:
        graph = CHECK_GRAPH if "check" in outputs else GRAPH
        session = self._session(graph)
        try:
            found = tuple(session.run(list(outputs), packed.arrays))
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
                raise MemoryError(
                    f"not enough memory to run {self.directory / graph} on {len(packed.ids)} tokens"
                ) from error
            raise ModelError(
                f"{self.directory / graph} failed on an input of {len(packed.ids)} tokens ({first_line(error)}); reinstall "
                "or retrain the model"
            ) from error
        if not all(np.isfinite(values).all() for values in found):
            raise ModelError(f"{self.directory / graph} returned NaN or infinity; reinstall or retrain the model")
        return found

    def read(self, questions: Sequence[str], passages: Sequence[Sequence[str]], *, top: int = 5) -> list[EdgeReading]:
        """Return the likeliest spans of each question's passages, and how likely each kind of answer is.

        Parameters
        ----------
        questions, passages
            Questions, and the passages of each, whose titles stand in brackets before them.
        top
            Maximum number of spans per question.
        """
        return read(self._run, self._packer, questions, passages, top=top)

    def check(self, claims: Sequence[str], evidence: Sequence[str]) -> NDArray[np.float32]:
        """Return the probabilities of `LABELS` for each claim and its text, float32 [claims, 3].

        A long text is read in windows; the window that says most for or against the claim decides.
        """
        return check(self._run, self._packer, claims, evidence)

    def link(
        self, questions: Sequence[str], so_far: Sequence[Sequence[str]], candidates: Sequence[str | None]
    ) -> NDArray[np.float32]:
        """Return how likely each candidate goes on from what was found, or without a candidate, how likely that is enough: float32 [n].

        Parameters
        ----------
        questions, so_far
            Questions, and the passages, sentences or triples that were found for each, in their order.
        candidates
            What may come next; None asks whether what was found is enough.
        """
        return link(self._run, self._packer, questions, so_far, candidates)
