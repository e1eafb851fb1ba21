"""Rerankers in GGUF files, run by llama.cpp: models with a classification head, and language models that answer yes or no."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models.base_model import check_bounds
from pytrace.models.encoders.cross_encoder import (
    Scores,
    checked_pairs,
    label_probabilities,
    label_score,
    positive_label,
)
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.llama.file_trial import check_file
from pytrace.models.llama.gguf_encoder import has_head, layers_on_gpu, stated_pooling, text_length
from pytrace.models.llama.gguf_header import Header, read_header
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.pooled_runtime import PooledRuntime
from pytrace.models.registry.model_files import check_gguf, sha256_of
from pytrace.processes import useful_threads
from pytrace.storage.closing import Closing

# Pairs that are tokenised together.
_AT_ONCE = 4096
# A question is cut to this share of the room for both texts, so that a passage always keeps some.
_QUESTION_SHARE = 0.75
_CONTEXT = 8192  # what Qwen3-Reranker was trained to read
# Their heads give probabilities, where others give logits.
_PROBABILITIES = frozenset({"qwen3", "qwen3vl"})
# How Qwen3-Reranker is asked (its model card, as converters write it under the name "rerank"); it ends where "yes" or "no" follows.
_QUESTION = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)
_NO_THOUGHT = "<think>\n\n</think>\n\n"
_CONTROL = re.compile(r"<\|[^<>|]*\|>")
_INSTRUCTION = re.compile(r"(?<=<Instruct>: )[^\n{}]*")


class GgufReranker(Closing):
    """A reranker in a GGUF file, run inside this process by llama.cpp.

    Three kinds are known, by what the file says: models for sequence classification with a head in the file
    (bge-reranker-v2-m3, jina-reranker, gte-reranker-modernbert), whose pair is built as the file's tokenizer says; Qwen3-Reranker
    as llama.cpp's converter makes it, with its head of "yes" and "no" and its own question; and language models that are asked
    that question and answer yes or no (Qwen3-Reranker as it was published), for which what passages of one question share is
    evaluated once. Equal pairs are scored once. Of a pair that is longer than the model takes, the passage is cut, and a
    question only where it is longer than three quarters of what the model takes.

    A score is the logit of a head with one label, or of one with several the log-odds of the label that speaks for a pair
    (``relevant``, ``yes``, …, or `positive`, its number) against all others. Only the order among scores of one question means
    anything; `probabilities` are what the model was trained to give.

    Parameters
    ----------
    path
        The file.
    name
        What to call it in reports; the file's name without its suffix if not given.
    instruction
        What Qwen3-Reranker is told a passage has to do; the question in the file has one of web search.
    positive
        The number of the label that says yes, for a head whose labels' names do not say it.
    context
        The length in tokens, special ones and question included, that pairs are cut to; what the model was trained for if not
        given, 8,192 for a language model.
    threads
        Threads; all processors if not given.
    device
        ``"cpu"`` or ``"cuda"``.
    gpu_layers
        Layers on a GPU, -1 for all; if not given, all of them on ``"cuda"`` and none on ``"cpu"``.

    Raises
    ------
    ModelFileError
        The file cannot be loaded, holds no reranker, or one that llama.cpp does not compute as it was trained.
    InputError
        An instruction was given to a model that takes none.
    ValueError
        A number is out of range.

    Notes
    -----
    Nogueira and Cho, "Passage Re-ranking with BERT" (2019), section 3: the pair as one sequence, the passage cut. Zhang et al.,
    "Qwen3 Embedding" (2025), section 2: relevance as the likelihood of yes against no.

    Examples
    --------
    >>> reranker = GgufReranker("bge-reranker-v2-m3.Q8_0.gguf")  # doctest: +SKIP
    >>> reranker.score([("Who wrote it?", "Ada did."), ("Who wrote it?", "It rained.")]).argmax()  # doctest: +SKIP
    0
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        instruction: str | None = None,
        positive: int | None = None,
        context: int | None = None,
        threads: int | None = None,
        device: Device = "cpu",
        gpu_layers: int | None = None,
    ) -> None:
        check_bounds(1, context=context, threads=threads)
        layers = layers_on_gpu(device, gpu_layers)
        self._path = check_gguf(Path(path))
        self.name = name or self._path.stem
        header = read_header(self._path)
        self._judge: _Head | _Answers
        if has_head(header):
            _check_head(self._path, header)
            check_file(self._path, "rank")
            runtime = PooledRuntime(self._path, pooling="rank", threads=useful_threads(threads), gpu_layers=layers)
            length = text_length(runtime, context, around=len(runtime.between))
            wording = runtime.template("rerank")
            if wording is None and instruction is not None:
                raise InputError(f"{self._path} takes no instruction, which is for Qwen3-Reranker; leave it out")
            question = None if wording is None else _Question(runtime, wording, instruction, length, self._path)
            architecture = header.values["general.architecture"]
            self._judge = _Head(runtime, question, length, probabilities=architecture in _PROBABILITIES)
            names = runtime.labels
            self.labels = names or tuple(map(str, range(runtime.width)))
            """What each of a pair's probabilities is of, by the model's own names."""
            where = f"{self._path}: {architecture}.classifier.output_labels"
            self._positive = positive_label(names, runtime.width, positive, where)
        elif stated_pooling(header) is not None:
            raise ModelFileError(
                f"{self._path} has no classification head, so that it scores no pairs: it holds an encoder, or was converted "
                "without its head; give a reranker"
            )
        else:
            if positive is not None:
                raise ValueError("positive is the number of a head's label; a language model has none, so leave it out")
            length = context or _CONTEXT
            model = LlamaCppModel(
                self._path, name=self.name, context=length, cache_tokens=length, threads=threads, gpu_layers=layers,
                style="plain",
            )  # fmt: skip
            self._judge = _Answers(model, instruction, self._path)
            self.labels, self._positive = ("yes", "no"), 0
        self._rules = (_QUESTION, _NO_THOUGHT, instruction, positive, context)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file and of everything else that shapes a score."""
        return hashlib.sha256(f"{sha256_of(self._path)} reranker {self._rules!r}".encode()).hexdigest()

    def close(self) -> None:
        """Free the model; any later call fails."""
        self._judge.close()

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Score pairs of a question and a passage: float32 [n], larger is better, in the order of the pairs."""
        return label_score(self._logits(pairs), self._positive, self.name, self.labels)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Return float32 [n, labels], the probability of each of `labels` for each pair, in the order of the pairs.

        With one label it is the logistic function of the logit; with several they sum to 1.
        """
        return label_probabilities(self._logits(pairs))

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        rows: dict[tuple[str, str], list[int]] = {}
        for index, pair in enumerate(checked_pairs(pairs)):
            rows.setdefault(pair, []).append(index)
        logits = np.empty((len(pairs), len(self.labels)), dtype=np.float32)
        distinct = list(rows)
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            for pair, row in zip(some, self._judge.logits(some), strict=True):
                logits[rows[pair]] = row
        if not np.isfinite(logits).all():
            raise ModelError(f"reranker {self.name!r} gives NaN or infinity for a pair; its weights are damaged")
        return logits


class _Tokenizer(Protocol):
    def tokenize(self, text: str, *, special: bool = False) -> list[int]: ...


class _Question:
    """A model's own wording of a question about a pair, in tokens; only its own words may be control tokens."""

    def __init__(self, tokenizer: _Tokenizer, wording: str, instruction: str | None, length: int, path: Path) -> None:
        parts = re.split(r"\{(query|document)\}", wording)
        if parts[1::2] != ["query", "document"]:
            raise ModelFileError(
                f"{path} has a rerank template without {{query}} and then {{document}}; choose another file"
            )
        opening, _, between, _, closing = parts
        if instruction is not None:
            opening, count = _INSTRUCTION.subn(lambda _: instruction, opening, count=1)
            if not count:
                raise InputError(f"{path} has a rerank template without '<Instruct>: '; leave the instruction out")
        # What stands between control tokens is tokenised as one text, so that words join as they did in training.
        start = max((match.end() for match in _CONTROL.finditer(opening)), default=0)
        first = _CONTROL.search(closing)
        end = first.start() if first else len(closing)
        self._opening, self._between, self._closing = opening[start:], between, closing[:end]
        self._before = tokenizer.tokenize(opening[:start], special=True)
        self._after = tokenizer.tokenize(closing[end:], special=True)
        self._tokenizer = tokenizer
        self._room = length - len(self._before) - len(self._after)
        if self._room < 8:
            raise ValueError(f"context must leave room for a pair beside {length - self._room} tokens of the question")

    def tokens(self, question: str, passage: str) -> list[int]:
        body = self._tokenizer.tokenize(f"{self._opening}{question}{self._between}{passage}{self._closing}")
        if len(body) > self._room:
            asked = self._tokenizer.tokenize(f"{self._opening}{question}{self._between}")
            if len(asked) > _QUESTION_SHARE * self._room:
                asked = self._tokenizer.tokenize(f"{self._opening}{question}")[: int(_QUESTION_SHARE * self._room)]
                body = asked + self._tokenizer.tokenize(f"{self._between}{passage}")
            closing = self._tokenizer.tokenize(self._closing)
            body = body[: self._room - len(closing)] + closing
        return self._before + body + self._after


class _Head:
    """A classification head behind a model that reads the pair."""

    def __init__(self, runtime: PooledRuntime, question: _Question | None, length: int, *, probabilities: bool) -> None:
        self._runtime, self._question, self._length = runtime, question, length
        self._probabilities = probabilities
        self.close = runtime.close

    def logits(self, pairs: list[tuple[str, str]]) -> Scores:
        texts = self._framed(pairs) if self._question is None else [self._question.tokens(*pair) for pair in pairs]
        logits = np.empty((len(pairs), self._runtime.width), np.float32)
        for indices, rows in self._runtime.rows(texts):
            logits[indices] = np.log(np.maximum(rows, np.finfo(np.float32).tiny)) if self._probabilities else rows
        return logits

    def _framed(self, pairs: list[tuple[str, str]]) -> list[list[int]]:
        """Put special tokens around and between the two texts of pairs."""
        before, after = self._runtime.frame
        between = self._runtime.between
        room = self._length - len(before) - len(between) - len(after)
        cut = int(room * _QUESTION_SHARE)
        questions = {question: self._runtime.tokenize(question)[:cut] for question in {pair[0] for pair in pairs}}
        passages = {passage: self._runtime.tokenize(passage) for passage in {pair[1] for pair in pairs}}
        return [
            [*before, *questions[first], *between, *passages[second][: room - len(questions[first])], *after] or [0]
            for first, second in pairs
        ]


class _Answers:
    """A language model's own yes or no."""

    def __init__(self, model: LlamaCppModel, instruction: str | None, path: Path) -> None:
        self._model = model
        self.close = model.close
        known = {text: model.tokenize(text, special=True) for text in ("<|im_start|>", "<|im_end|>", "yes", "no")}
        if missing := [text for text, tokens in known.items() if len(tokens) != 1]:
            raise ModelFileError(
                f"{path} holds a language model without the token {missing[0]!r}, with which Qwen3-Reranker is asked and "
                "answers; give a reranker"
            )
        self._forms = [known["yes"], known["no"]]
        thinks = len(model.tokenize("<think>")) == 1
        wording = _QUESTION + _NO_THOUGHT * thinks
        self._question = _Question(model, wording, instruction, model.context_tokens - 1, path)

    def logits(self, pairs: list[tuple[str, str]]) -> Scores:
        prompts = [np.array(self._question.tokens(*pair), np.int32) for pair in pairs]
        answers = self._model.score_tokens(prompts, [self._forms] * len(prompts))
        return np.array([answer.log_probabilities for answer in answers], np.float32)


def _check_head(path: Path, header: Header) -> None:
    """Refuse a head of which llama.cpp would make other scores than the model's own."""
    architecture = header.values["general.architecture"]
    if header.values.get("tokenizer.ggml.model") == "bert" and header.tensors.get("token_types.weight", ())[1:] > (1,):
        raise ModelFileError(
            f"{path} holds a reranker that tells question and passage by two types of tokens, of which llama.cpp has one, so that "
            "its scores would be wrong; give its ONNX export"
        )
    if architecture in _PROBABILITIES and header.lengths.get(f"{architecture}.classifier.output_labels", 1) < 2:
        raise ModelFileError(
            f"{path} has one label, of which llama.cpp gives a probability that is always 1; convert it with the labels 'yes' and "
            "'no', or give the language model itself"
        )
