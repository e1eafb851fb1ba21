"""Rerankers in GGUF files: scores are those of transformers' models with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models import trial
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.llama import gguf_reranker, pooled_runtime
from pytrace.models.llama.gguf_reranker import GgufReranker
from tests import embedding_gguf as tiny
from tests.gguf_files import write_random_gguf

PAIRS = [
    ("who wrote it?", "the red house"), ("who?", "A blue bank in the river, it is."), ("", "red"), ("red", ""),
    ("who wrote it?", "the red house"), ("Who?", "zebra 7"),
]  # fmt: skip
TEMPLATE = "tokenizer__chat_template__rerank"


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load files without a trial in a process of their own, half a second each."""
    monkeypatch.setattr(trial, "check", lambda *_, **__: None)


def log_odds(logits: Any, label: int) -> Any:
    return logits[:, label] - np.logaddexp.reduce(np.delete(logits, label, axis=1), axis=1)


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({"labels": 1}, ()),
        ({"labels": 2}, ("Relevant", "irrelevant")),
        ({"labels": 3}, ("contradiction", "neutral", "entailment")),
    ],
)
@pytest.mark.parametrize("make", [tiny.xlm_roberta, tiny.modern_bert])
def test_scores_of_a_head_are_those_of_transformers(
    tmp_path: Path, make: Any, options: dict[str, Any], labels: tuple[str, ...]
) -> None:
    model = make(**options)
    path = tiny.write(model, tmp_path / "m.gguf", pooling=tiny.RANK, labels=labels)
    with GgufReranker(path, threads=1) as reranker:
        scores, probabilities = reranker.score(PAIRS), reranker.probabilities(PAIRS)
        assert reranker.name == "m"
        assert reranker.labels == (labels or ("0",))
    logits = np.stack([tiny.logits(model, *pair) for pair in PAIRS]).astype(np.float64)
    wanted = log_odds(logits, {2: 0, 3: 2}[len(labels)]) if labels else logits[:, 0]
    assert scores.dtype == np.float32
    # llama.cpp's GELU is the approximation by the hyperbolic tangent, transformers' is exact.
    np.testing.assert_allclose(scores, wanted, atol=3e-3)
    assert np.ptp(wanted) > 0.1
    chances = scipy.special.softmax(logits, axis=1) if labels else scipy.special.expit(logits)
    np.testing.assert_allclose(probabilities, chances, atol=1e-3)


def test_a_head_that_reads_the_first_token_and_a_file_that_does_not_name_its_pooling(tmp_path: Path) -> None:
    model = tiny.modern_bert(labels=1, pooling="cls")
    path = tiny.write(model, tmp_path / "m.gguf", pooling=None)
    with GgufReranker(path, threads=1) as reranker:
        judge: CrossEncoder = reranker
        np.testing.assert_allclose(judge.score(PAIRS)[0], tiny.logits(model, *PAIRS[0])[0], atol=3e-3)


def test_a_long_passage_is_cut_and_a_long_question_leaves_it_room(tmp_path: Path) -> None:
    model = tiny.xlm_roberta(context=40)
    path = tiny.write(model, tmp_path / "m.gguf", pooling=tiny.RANK)
    tokenizer = model.vocabulary.tokenizer

    def wanted(question: str, passage: str) -> float:
        """Cut as the class says: 36 tokens for both, at most 27 of them the question's."""
        first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in (question, passage))
        first = first[:27]
        ids = [0, *first, 2, 2, *second[: 36 - len(first)], 2]
        with torch.no_grad():
            return float(model.model(input_ids=torch.tensor([ids])).logits[0, 0])

    pairs = [
        ("who wrote it?", "the red house " * 30),
        ("who wrote it? " * 30, "the red house"),
        ("who " * 40, "red " * 40),
    ]
    with GgufReranker(path, threads=1) as reranker:
        np.testing.assert_allclose(reranker.score(pairs), [wanted(*pair) for pair in pairs], atol=3e-3)


def test_pairs_in_any_company_score_as_alone_and_equal_ones_are_scored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(tiny.modern_bert(labels=1, context=512), tmp_path / "m.gguf", pooling=tiny.RANK)
    random = np.random.default_rng(3)
    words = ["red", "house", "blue", "river", "7"]
    pairs = [("who wrote it?", " ".join(random.choice(words, size))) for size in random.integers(1, 40, 150)]
    seen: list[int] = []
    rows = pooled_runtime.PooledRuntime.rows

    def counted(self: Any, texts: Any) -> Any:
        seen.append(len(texts))
        return rows(self, texts)

    monkeypatch.setattr(pooled_runtime.PooledRuntime, "rows", counted)
    with GgufReranker(path, threads=1) as reranker:
        together = reranker.score([*pairs, *pairs])
        assert seen == [len(set(pairs))]
        np.testing.assert_array_equal(together[: len(pairs)], together[len(pairs) :])
        alone = np.concatenate([reranker.score([pair]) for pair in pairs[::20]])
        np.testing.assert_allclose(together[: len(pairs) : 20], alone, atol=2e-3)
        assert reranker.score([]).shape == (0,)
        with pytest.raises(TypeError, match="pairs must be"):
            reranker.score(["text"])  # type: ignore[list-item]


OPENING = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)


class Yes:
    """Qwen3-Reranker: what transformers' language model says of yes and no after the question in the model card's words."""

    def __init__(self) -> None:
        self.model = tiny.qwen3(head=True, context=2048)
        self.tokenizer = self.model.vocabulary.tokenizer
        self.tokenizer.post_processor = None
        self.numbers = [self.tokenizer.token_to_id(word) for word in ("yes", "no")]
        head = self.model.model.lm_head.weight.detach().numpy()
        self.rows = {"cls.output.weight": np.ascontiguousarray(head[self.numbers])}

    def ids(self, question: str, passage: str, instruction: str) -> list[int]:
        parts = (
            OPENING,
            f"<Instruct>: {instruction}\n<Query>: {question}\n<Document>: {passage}",
            "<|im_end|>\n<|im_start|>assistant\n",
        )
        return [token for part in parts for token in self.tokenizer.encode(part).ids]

    def wanted(self, ids: list[int]) -> float:
        with torch.no_grad():
            logits = self.model.model(input_ids=torch.tensor([ids])).logits[0, -1]
        yes, no = logits[self.numbers]
        return float(yes - no)


def tokens_of(reranker: GgufReranker) -> Callable[[str, str], list[int]]:
    """Return how a reranker words a question about a pair, in tokens."""
    question = reranker._judge._question
    assert question is not None
    return question.tokens


SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
ASKED = [
    (question, passage) for question in ("who wrote it?", "Who?") for passage in ("the red house", "", "zebra 7 " * 9)
]


@pytest.fixture(scope="module")
def yes() -> Yes:
    return Yes()


@pytest.fixture(scope="module", params=["language model", "head"])
def qwen(request: pytest.FixtureRequest, yes: Yes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen") / "qwen.gguf"
    if request.param == "language model":
        return tiny.write(yes.model, path, pooling=None)
    texts = {TEMPLATE: gguf_reranker._QUESTION}
    return tiny.write(yes.model, path, pooling=tiny.RANK, labels=("yes", "no"), tensors=yes.rows, **texts)


@pytest.mark.parametrize("instruction", [None, "Find {birds} \\1"])
def test_yes_and_no_are_those_of_transformers(qwen: Path, yes: Yes, instruction: str | None) -> None:
    wanted = [yes.wanted(yes.ids(*pair, instruction or SEARCH)) for pair in ASKED]
    with GgufReranker(qwen, threads=1, instruction=instruction) as reranker:
        np.testing.assert_allclose(reranker.score(ASKED), wanted, atol=3e-3)
        assert reranker.labels == ("yes", "no")
        np.testing.assert_allclose(reranker.probabilities(ASKED)[:, 0], scipy.special.expit(wanted), atol=1e-3)
    assert np.ptp(wanted) > 0.1


def test_a_long_passage_loses_its_end_and_the_question_stays_whole(qwen: Path, yes: Yes) -> None:
    pairs = [("who wrote it?", "zebra 7 " * 90), ("who wrote it? " * 90, "zebra 7 " * 90)]
    with GgufReranker(qwen, threads=1, context=400) as reranker:
        scores = reranker.score(pairs)
        question = tokens_of(reranker)
        for (first, second), score in zip(pairs, scores, strict=True):
            ids = question(first, second)
            assert 390 < len(ids) <= 400
            assert abs(yes.wanted(ids) - score) < 3e-3
        assert question(*pairs[0])[:350] == yes.ids(*pairs[0], SEARCH)[:350]
        assert "<Document>: zebra 7 zebra 7" in yes.tokenizer.decode(question(*pairs[1]))


def test_only_the_template_may_write_control_tokens(qwen: Path, yes: Yes) -> None:
    with GgufReranker(qwen, threads=1) as reranker:
        question = tokens_of(reranker)
        end = yes.tokenizer.token_to_id("<|im_end|>")
        assert question("a", "b").count(end) == 2
        assert question("a {document} {query}", "b<|im_end|>{query}").count(end) == 2


def test_passages_of_a_question_share_what_they_begin_with(
    qwen: Path, yes: Yes, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[int] = []
    batch = pooled_runtime.PooledRuntime._batch

    def counted(self: Any, texts: list[list[int]], first: int) -> Any:
        evaluated.append(sum(map(len, texts)))
        return batch(self, texts, first)

    monkeypatch.setattr(pooled_runtime.PooledRuntime, "_batch", counted)
    pairs = [("who wrote it?", f"the red house {number}") for number in range(20)]
    with GgufReranker(qwen, threads=1) as reranker:
        reranker.score(pairs)
        model = getattr(reranker._judge, "_model", None)
        total = model.usage.evaluated_tokens if model else sum(evaluated)
    asked = len(yes.ids(*pairs[0], SEARCH))
    assert asked < total < 0.4 * 20 * asked


def test_a_thinking_model_is_asked_behind_its_thought(tmp_path: Path, yes: Yes) -> None:
    path = tmp_path / "m.gguf"
    tiny.write(yes.model, path, pooling=None)
    with GgufReranker(path, threads=1) as reranker:
        assert not yes.tokenizer.decode(tokens_of(reranker)("a", "b")).endswith("</think>\n\n")
    thinking = tiny.qwen3(head=True, thinks=True)
    tiny.write(thinking, path, pooling=None)
    with GgufReranker(path, threads=1) as reranker:
        tokens = tokens_of(reranker)("a", "b")
        text = thinking.vocabulary.tokenizer.decode(tokens, skip_special_tokens=False)
        assert text.endswith("assistant\n<think>\n\n</think>\n\n")


def test_files_that_hold_no_reranker_are_refused(tmp_path: Path, yes: Yes) -> None:
    encoder = tiny.write(tiny.bert(), tmp_path / "encoder.gguf", pooling=tiny.MEAN)
    with pytest.raises(ModelFileError, match="no classification head, so that it scores no pairs: it holds an encoder"):
        GgufReranker(encoder, threads=1)
    with pytest.raises(
        ModelFileError, match="language model without the token 'yes', with which Qwen3-Reranker is asked"
    ):
        GgufReranker(write_random_gguf(tmp_path / "llm.gguf"), threads=1)
    two = tiny.write(
        tiny.bert(),
        tmp_path / "two.gguf",
        pooling=tiny.RANK,
        tensors={"cls.output.weight": np.ones((1, 64), np.float32)},
    )
    with pytest.raises(ModelFileError, match=r"two types of tokens, of which llama.cpp has one.*ONNX export"):
        GgufReranker(two, threads=1)
    one = {"cls.output.weight": yes.rows["cls.output.weight"][:1]}
    sure = tiny.write(yes.model, tmp_path / "one.gguf", pooling=tiny.RANK, tensors=one)
    with pytest.raises(ModelFileError, match=r"one label, of which llama.cpp gives a probability that is always 1"):
        GgufReranker(sure, threads=1)
    texts = {TEMPLATE: "Is {document} what {query} asks?"}
    turned = tiny.write(
        yes.model, tmp_path / "t.gguf", pooling=tiny.RANK, labels=("yes", "no"), tensors=yes.rows, **texts
    )
    with pytest.raises(ModelFileError, match=r"a rerank template without \{query\} and then \{document\}"):
        GgufReranker(turned, threads=1)


def test_labels_are_known_by_name_or_number(tmp_path: Path) -> None:
    path = tiny.write(tiny.xlm_roberta(labels=2), tmp_path / "m.gguf", pooling=tiny.RANK, labels=("LABEL_0", "LABEL_1"))
    with pytest.raises(ModelFileError, match=r"output_labels does not say which of two labels says yes.*\(positive=\)"):
        GgufReranker(path, threads=1)
    with pytest.raises(ValueError, match="positive must be the number of a label, 0 to 1, not 2"):
        GgufReranker(path, threads=1, positive=2)
    with GgufReranker(path, threads=1, positive=0) as first, GgufReranker(path, threads=1, positive=1) as second:
        np.testing.assert_allclose(first.score(PAIRS), -second.score(PAIRS), atol=1e-5)
        assert first.fingerprint != second.fingerprint
    path = tiny.write(
        tiny.xlm_roberta(labels=3), tmp_path / "m.gguf", pooling=tiny.RANK, labels=("red", "blue", "green")
    )
    with GgufReranker(path, threads=1) as several:
        np.testing.assert_allclose(several.probabilities(PAIRS).sum(axis=1), 1, atol=1e-5)
        with pytest.raises(InputError, match="labels red, blue, green, none of which says yes"):
            several.score(PAIRS)


def test_options_that_a_kind_does_not_take_are_refused(tmp_path: Path, yes: Yes) -> None:
    head = tiny.write(tiny.xlm_roberta(), tmp_path / "m.gguf", pooling=tiny.RANK)
    with pytest.raises(ValueError, match="context must leave room for a text beside 4 special tokens, not be 4"):
        GgufReranker(head, threads=1, context=4)
    with pytest.raises(InputError, match="takes no instruction, which is for Qwen3-Reranker"):
        GgufReranker(head, threads=1, instruction="x")
    texts = {TEMPLATE: "Is {query} answered by {document}?"}
    plain = tiny.write(
        yes.model, tmp_path / "t.gguf", pooling=tiny.RANK, labels=("yes", "no"), tensors=yes.rows, **texts
    )
    with pytest.raises(InputError, match="template without '<Instruct>: '"):
        GgufReranker(plain, threads=1, instruction="x")
    model = tiny.write(yes.model, tmp_path / "q.gguf", pooling=None)
    with pytest.raises(ValueError, match="a language model has none"):
        GgufReranker(model, threads=1, positive=1)
    with pytest.raises(ValueError, match="context must leave room for a pair beside"):
        GgufReranker(model, threads=1, context=64)


def test_a_closed_reranker_says_so(qwen: Path) -> None:
    reranker = GgufReranker(qwen, threads=1)
    reranker.close()
    reranker.close()
    with pytest.raises(ModelError, match="closed"):
        reranker.score(PAIRS)


def test_damaged_weights_are_noticed(tmp_path: Path) -> None:
    model = tiny.xlm_roberta()
    next(model.model.parameters()).data[10:] = float("nan")
    path = tiny.write(model, tmp_path / "nan.gguf", pooling=tiny.RANK)
    with GgufReranker(path, threads=1) as reranker, pytest.raises(ModelError, match=r"NaN or infinity.*damaged"):
        reranker.score(PAIRS)
