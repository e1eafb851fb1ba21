"""Encoders and rerankers on doubles of servers that cannot run here, and answers that make no sense."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytrace.errors import InputError, ServerError, ServerTimeoutError
from pytrace.models.servers.remote_encoder import RemoteEncoder
from pytrace.models.servers.remote_reranker import RemoteReranker
from pytrace.models.servers.remote_text_model import parted
from tests.server_double import Double, pause
from tests.text_model_double import (
    AT_ONCE,
    DIMENSION,
    ENCODERS,
    LIMIT,
    RERANKERS,
    asked,
    refuse,
    score_of,
    serve,
    text_model_double,
    vector_of,
)

pytestmark = pytest.mark.usefixtures("quick")
TEXTS = [f"text number {number}" for number in range(11)]
LONG = "word " * (LIMIT + 1)
PAIRS = [(question, text) for question in ("who?", "where?") for text in TEXTS]
EMBEDDINGS = "/v1/embeddings"
KEY = "sk-0123456789abcdef"


def named(kind: str) -> dict[str, Any]:
    """Return what must be said to a kind of server beside its address."""
    return {} if kind in {"tei", "vllm"} else {"model": "double"}


def changed(server: Double, path: str, change: Callable[[Any, dict[str, Any]], Any]) -> None:
    """Let each answer of a path from now on be another: bytes as they are, anything else as JSON."""

    def trouble(handler: Any, where: str, _: int) -> bool:
        if where == path:
            reply = type(handler).reply
            handler.reply = lambda given, status=200, headers=None: reply(
                handler, change(given, handler.body), status, headers
            )
        return serve(handler, where)

    server.trouble = trouble


@pytest.mark.parametrize(
    ("url", "base", "version", "endpoint"),
    [
        ("http://a:1", "http://a:1", "", ""),
        (" http://a:1// ", "http://a:1", "", ""),
        ("http://a:1/v1/", "http://a:1", "/v1", ""),
        ("http://a:1/v2/rerank", "http://a:1", "/v2", "/rerank"),
        ("http://a:1/rerank/", "http://a:1", "", "/rerank"),
        ("https://a/b/v1/c/v1/rerank", "https://a/b/v1/c", "/v1", "/rerank"),
        ("http://v1", "http://v1", "", ""),
        ("http://rerank/v1", "http://rerank", "/v1", ""),
        ("http://a/v1/rerank?key=x", "http://a/v1/rerank?key=x", "", ""),
        ("rerank", "rerank", "", ""),
        ("", "", "", ""),
    ],
)
def test_an_address_is_parted(url: str, base: str, version: str, endpoint: str) -> None:
    assert parted(url, "rerank") == (base, version, endpoint)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("base64", [True, "ignored", False])
def test_vectors_come_whole_from_every_kind_with_and_without_base64(kind: str, base64: bool | str) -> None:
    with text_model_double(kind, base64=base64) as server, RemoteEncoder(server.url, **named(kind)) as encoder:
        assert (encoder.kind, encoder.dimension) == (kind, DIMENSION)
        np.testing.assert_allclose(encoder.encode(TEXTS), [vector_of(text) for text in TEXTS], atol=1e-7)
        assert all(
            body.get("encoding_format") == ("base64" if base64 else None) for body in asked(server, EMBEDDINGS)[1:]
        )


@pytest.mark.parametrize("kind", RERANKERS)
def test_scores_come_from_every_kind_in_the_order_of_the_pairs(kind: str) -> None:
    with text_model_double(kind) as server, RemoteReranker(server.url, **named(kind)) as reranker:
        scores = reranker.score(PAIRS)
        assert reranker.dialect == ("tei" if kind == "tei" else "jina")
        logits = np.array([score_of(*pair) for pair in PAIRS])
        np.testing.assert_allclose(scores, logits if kind == "tei" else 1 / (1 + np.exp(-logits)), atol=1e-6)


def test_text_embeddings_inference_is_known_by_what_it_says_of_itself() -> None:
    with text_model_double("tei") as server:
        with RemoteEncoder(server.url) as encoder, RemoteEncoder(server.url, model="org/double") as other:
            assert (encoder.name, encoder.fingerprint) == ("double", other.fingerprint)
            encoder.encode(TEXTS)
        assert sorted(len(body["input"]) for body in asked(server, EMBEDDINGS)) == [1, 1, 3, 4, 4]
        with text_model_double("tei", sha="3d4c") as later, RemoteEncoder(later.url) as exchanged:
            assert exchanged.fingerprint != encoder.fingerprint
        with pytest.raises(InputError, match=r"has no model 'gte', but: org/double"):
            RemoteEncoder(server.url, model="gte")
        with pytest.raises(
            InputError, match=r"cuts long texts; start it with --auto-truncate false, or leave truncate"
        ):
            RemoteEncoder(server.url, truncate=False)
        with RemoteReranker(server.url) as reranker:
            reranker.score(PAIRS)
        bodies = asked(server, "/rerank")
        assert sorted(len(body["texts"]) for body in bodies) == [1, 3, 3, 4, 4, 4, 4]
        assert all(body["raw_scores"] and body["truncate"] for body in bodies)


def test_one_of_several_models_must_be_named_and_openai_gets_nothing_that_it_does_not_know() -> None:
    with text_model_double("openai") as server:
        with pytest.raises(InputError, match=r"has 2 models \(double, other\); name one \(--encoder-set model=\)"):
            RemoteEncoder(server.url)
        with pytest.raises(InputError, match=r"name one \(--cross-encoder-set model=\)"):
            RemoteReranker(server.url)
        with RemoteEncoder(server.url, model="double", truncate_dim=5) as encoder:
            assert encoder.encode(TEXTS).shape == (11, 5)
            with RemoteEncoder(server.url, model="double") as whole, RemoteEncoder(server.url, model="other") as other:
                assert len({encoder.fingerprint, whole.fingerprint, other.fingerprint}) == 3
        assert asked(server, EMBEDDINGS)[1]["dimensions"] == 5
    with (
        text_model_double("cohere") as server,
        pytest.raises(ServerError, match=r"name the model \(--cross-encoder-set model=\)"),
    ):
        RemoteReranker(server.url)


def test_a_text_that_is_too_long_is_cut_where_the_server_does_that_and_named_elsewhere() -> None:
    texts = [*TEXTS, LONG]
    for kind in ("tei", "vllm"):
        with (
            text_model_double(kind) as server,
            RemoteEncoder(server.url) as encoder,
            RemoteReranker(server.url) as reranker,
        ):
            np.testing.assert_allclose(encoder.encode(texts)[-1], vector_of(LONG), atol=1e-7)
            assert np.isfinite(reranker.score([("who?", LONG)])).all()
    message = r"the text 'word word .* \(65 characters\) is refused \(.*less than 12 tokens. Given: 13.*\); if it is longer than the "
    for kind, truncate, remedy in (
        ("tei", True, "--auto-truncate"),
        ("vllm", False, "truncate=True"),
        ("openai", True, "split it$"),
    ):
        with text_model_double(kind, auto_truncate=False) as server:
            prompts = {"passage": "a prompt "}
            with RemoteEncoder(server.url, truncate=truncate, prompts=prompts, **named(kind)) as encoder:
                before = len(asked(server, EMBEDDINGS))
                with pytest.raises(ServerError, match=f"{message.replace('13', '15')}.*{remedy}") as refused:
                    encoder.encode(texts)
                assert refused.value.status in {400, 422}
                assert len(asked(server, EMBEDDINGS)) - before <= 7
    for kind in ("tei", "vllm"):
        message = r"the passage 'word .* \(65 characters\) with the question 'who\?' .*Given: 13"
        with (
            text_model_double(kind) as server,
            RemoteReranker(server.url, truncate=False) as reranker,
            pytest.raises(ServerError, match=message),
        ):
            reranker.score([("who?", text) for text in texts])


def test_an_empty_text_that_a_server_refuses_is_named() -> None:
    with (
        text_model_double("openai") as server,
        RemoteEncoder(server.url, model="double") as encoder,
        pytest.raises(ServerError, match=r"the text '' \(0 characters\) is refused .*cannot be an empty string"),
    ):
        encoder.encode([*TEXTS, ""])


def test_requests_that_are_too_large_are_halved_and_later_ones_sent_so() -> None:
    def small(handler: Any, path: str, _: int) -> bool:
        body = handler.body
        if len(body.get("input") or body.get("documents") or ()) <= 3:
            return serve(handler, path)
        handler.reply(b"<html>Request Entity Too Large</html>", 413)
        return True

    with text_model_double("vllm") as server:
        server.trouble = small
        with RemoteEncoder(server.url, concurrency=1) as encoder, RemoteReranker(server.url, concurrency=1) as reranker:
            before = len(asked(server, EMBEDDINGS))
            np.testing.assert_allclose(encoder.encode(TEXTS), [vector_of(text) for text in TEXTS], atol=1e-7)
            sizes = [len(body["input"]) for body in asked(server, EMBEDDINGS)[before:]]
            assert sizes == [11, 6, 3, 3, 3, 2]
            encoder.encode([f"{text} again" for text in TEXTS])
            assert [len(body["input"]) for body in asked(server, EMBEDDINGS)[before + 6 :]] == [3, 3, 3, 2]
            assert len(reranker.score(PAIRS)) == len(PAIRS)


def test_long_texts_go_out_in_smaller_requests() -> None:
    with text_model_double("vllm") as server, RemoteEncoder(server.url) as encoder:
        encoder.encode([f"{number} " + "x" * 30_000 for number in range(5)])
        assert sorted(len(body["input"]) for body in asked(server, EMBEDDINGS)) == [1, 1, 2, 2]


def test_a_model_that_cannot_have_fewer_dimensions_says_so() -> None:
    with (
        text_model_double("vllm", dimensions=False) as server,
        pytest.raises(ServerError, match="does not support matryoshka representation"),
    ):
        RemoteEncoder(server.url, truncate_dim=4)


def test_vectors_are_brought_to_length_one_on_request() -> None:
    with text_model_double("vllm", base64="ignored") as server:

        def longer(given: Any, _: Any) -> Any:
            for row in given["data"]:
                row["embedding"] = [3 * number for number in row["embedding"]]
            return given

        changed(server, EMBEDDINGS, longer)
        with RemoteEncoder(server.url) as encoder, RemoteEncoder(server.url, normalize=True) as normal:
            np.testing.assert_allclose(np.linalg.norm(encoder.encode(TEXTS), axis=1), 3, atol=1e-6)
            np.testing.assert_allclose(normal.encode(TEXTS), [vector_of(text) for text in TEXTS], atol=1e-6)
            assert normal.fingerprint != encoder.fingerprint


def test_rows_are_placed_by_their_index() -> None:
    with text_model_double("vllm") as server:
        changed(server, EMBEDDINGS, lambda given, _: {**given, "data": given["data"][::-1]})
        with RemoteEncoder(server.url) as encoder:
            np.testing.assert_allclose(encoder.encode(TEXTS), [vector_of(text) for text in TEXTS], atol=1e-7)


def row(embedding: object, index: object = 0) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": embedding}]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": []}, r"the answer has 0 rows \(index none\) for 1 texts"),
        (
            {"data": [*row([1.0] * 8)["data"] * 9]},
            r"the answer has 9 rows \(index 0, 0, 0, 0, 0, 0, 0, 0, …\) for 1 texts",
        ),
        (row([1.0] * 8, 1), r"1 rows \(index 1\) for 1 texts; each wants one row, 0 to 0"),
        (row([1.0] * 8, -1), r"Expected `int` >= 0"),
        (row([1.0] * 8, True), r"got `bool`"),
        (row([1.0] * 8, None), r"got `null` - at `\$\.data\[0\]\.index`"),
        ({"data": [{"embedding": [1.0] * 8}]}, "missing required field `index`"),
        (row([1.0] * 7), "a vector of 7 numbers where 8 are due"),
        (row([]), "a vector of 0 numbers where 8 are due"),
        (row([1.0] * 7 + [1e39]), "NaN, infinity or numbers above"),
        (row([1.0] * 7 + [1e16]), "NaN, infinity or numbers above"),
        (row([1.0] * 7 + [None]), "got `null`"),
        (row([[1.0] * 8]), "of another shape"),
        (row({"0": 1.0}), "of another shape"),
        (row("AAAA"), "no base64 of float32"),
        (row("A"), "no base64 of float32"),
        (row("not base64!"), "no base64 of float32"),
        (row(base64.b64encode(np.full(8, np.nan, np.float32).tobytes()).decode()), "NaN, infinity"),
        (row(base64.b64encode(np.ones(8).tobytes()).decode()), "a vector of 16 numbers where 8 are due"),
        ({"error": {"message": "no"}}, "missing required field `data`"),
        (b"[1]", r"of another shape .*; is this an encoder's server\?"),
        (b'{"data": [{"index": 0, "embedding": [NaN]}]}', "no JSON"),
        (b'{"data": [{"index": 0, "embedding": [' + b"1," * 10**7, "is longer than"),
    ],
)
def test_answers_that_are_no_vectors_are_told(given: Any, message: str) -> None:
    with text_model_double("vllm") as server, RemoteEncoder(server.url) as encoder:
        changed(server, EMBEDDINGS, lambda *_: given)
        with pytest.raises(ServerError, match=message):
            encoder.encode(["the sea"])


def test_a_first_vector_of_zeros_is_told() -> None:
    with text_model_double("vllm") as server:
        changed(server, EMBEDDINGS, lambda *_: row([0.0] * 8))
        with pytest.raises(ServerError, match="is all zeros; org/double is no encoder"):
            RemoteEncoder(server.url)


@pytest.mark.parametrize("kind", ["tei", "vllm"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], r"0 rows \(index none\) for 2 passages"),
        ([(0, 1.0)], r"1 rows \(index 0\) for 2 passages"),
        ([(0, 1.0), (0, 1.0)], r"2 rows \(index 0, 0\) for 2 passages; each wants one row, 0 to 1"),
        ([(0, 1.0), (2, 1.0)], r"\(index 0, 2\)"),
        ([(0, 1.0), (-1, 1.0)], "Expected `int` >= 0"),
        ([(0, 1.0), (1, None)], r"row 1 has None for its score \(relevance_score or score\)"),
        ([(0, 1.0), (1, 1e300)], r"row 1 has 1e\+300 for its score"),
        ([(0, 1.0), (1, "0.5")], "got `str`"),
        ([(0, 1.0), (1, True)], "got `bool`"),
        ([(0, 1.0), (1, [0.5])], "got `array`"),
        (b"{}", r"of another shape .*is this a reranker's server\?"),
        (b'"yes"', "of another shape"),
        (b'{"results": {"0": 1.0}}', "of another shape"),
        (b"[null, null]", "of another shape"),
        (b'{"results": "' + b"x" * 10**6, "is longer than"),
    ],
)
def test_answers_that_are_no_scores_are_told(kind: str, given: Any, message: str) -> None:
    with text_model_double(kind) as server, RemoteReranker(server.url) as reranker:
        name = "score" if kind == "tei" else "relevance_score"
        rows = given if isinstance(given, bytes) else [{"index": index, name: score} for index, score in given]
        changed(
            server, reranker._path, lambda *_: rows if kind == "tei" or isinstance(rows, bytes) else {"results": rows}
        )
        with pytest.raises(ServerError, match=message):
            reranker.score(PAIRS[:2])


def test_where_and_how_a_server_reranks_is_found_out() -> None:
    with text_model_double("cohere") as server:
        for address, path in (
            (server.url, "/v1/rerank"),
            (f"{server.url}/v2", "/v2/rerank"),
            (f"{server.url}/v2/rerank", "/v2/rerank"),
        ):
            with RemoteReranker(address, model="double") as reranker:
                assert reranker._path == path
                reranker.score(PAIRS)
        assert asked(server, "/v2/rerank")[-1].keys() == {"model", "query", "documents", "top_n"}
    # A gateway before Text Embeddings Inference that lets nothing else through.
    with text_model_double("tei", paths=("/rerank",)) as server, RemoteReranker(server.url, model="double") as reranker:
        assert (reranker.kind, reranker.dialect, reranker._path) == ("openai", "tei", "/rerank")
        reranker.score(PAIRS[:4])
    with text_model_double("jina") as server:
        with pytest.raises(ServerError, match=r"does not rerank at /rerank \(.*404"):
            RemoteReranker(server.url, model="double", dialect="tei")
        with pytest.raises(InputError, match="the dialect 'cohere' is none of: auto, jina, tei"):
            RemoteReranker(server.url, dialect="cohere")  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_gateway_that_keeps_its_models_to_itself_is_used_where_the_model_is_named(status: int) -> None:
    def keeps(handler: Any, path: str, _: int) -> bool:
        if path not in {"/v1/models", "/info"}:
            return serve(handler, path)
        refuse(handler, "not for you", status)
        return True

    with text_model_double("jina") as server:
        server.trouble = keeps
        with (
            RemoteReranker(server.url, model="double") as reranker,
            RemoteEncoder(server.url, model="double") as encoder,
        ):
            assert (len(reranker.score(PAIRS)), len(encoder.encode(TEXTS))) == (len(PAIRS), len(TEXTS))
        with pytest.raises(ServerError, match=r"not for you|name the model \(--encoder-set model=\)"):
            RemoteEncoder(server.url)
        status = 500
        with pytest.raises(ServerError, match="not for you"):  # else the same model would have two fingerprints
            RemoteEncoder(server.url, model="double")


def test_a_refusal_is_told_with_the_servers_own_words() -> None:
    def refused(handler: Any, path: str, _: int) -> bool:
        if not path.endswith("rerank"):
            return serve(handler, path)
        refuse(handler, "unknown model 'double'", 400)
        return True

    with text_model_double("cohere") as server:
        server.trouble = refused
        with pytest.raises(
            ServerError, match=r"^POST http.*/v1/rerank: the server answers 400: unknown model 'double'"
        ):
            RemoteReranker(server.url, model="double")


def test_many_requests_are_under_way_together() -> None:
    barrier = threading.Barrier(4)
    with (
        text_model_double("vllm") as server,
        RemoteEncoder(server.url, batch_texts=1, concurrency=4) as encoder,
        RemoteReranker(server.url, concurrency=4) as reranker,
    ):

        def together(handler: Any, path: str, _: int) -> bool:
            barrier.wait(timeout=30)
            return serve(handler, path)

        server.trouble = together
        np.testing.assert_allclose(encoder.encode(TEXTS[:8]), [vector_of(text) for text in TEXTS[:8]], atol=1e-7)
        questions = [(f"question {number}", text) for number in range(4) for text in TEXTS]
        assert len(reranker.score(questions)) == 44
    assert server.busiest == 4


def test_a_busy_server_is_asked_again_and_a_silent_one_given_up() -> None:
    left = [2]

    def busy(handler: Any, path: str, _: int) -> bool:
        if path == "/info" or left[0] <= 0:
            return serve(handler, path)
        left[0] -= 1
        refuse(handler, "Model is overloaded", 429)
        return True

    with text_model_double("tei") as server:
        with RemoteEncoder(server.url, timeout=5.0) as encoder:
            server.trouble = busy
            assert encoder.encode(TEXTS).shape == (11, DIMENSION)
        with RemoteReranker(server.url, timeout=0.4) as reranker:
            server.trouble = lambda *_: pause(2) is None
            with pytest.raises(ServerTimeoutError, match=r"no whole answer within 0\.4 s"):
                reranker.score(PAIRS[:1])


def test_vectors_made_before_a_failure_are_kept() -> None:
    with text_model_double("vllm") as server, RemoteEncoder(server.url, concurrency=1, batch_texts=2) as encoder:
        before = len(asked(server, EMBEDDINGS))

        def later(handler: Any, path: str, _: int) -> bool:
            if len(asked(server, EMBEDDINGS)) - before > 2:
                refuse(handler, "the engine died", 501)
                return True
            return serve(handler, path)

        server.trouble = later
        with pytest.raises(ServerError, match="the engine died"):
            encoder.encode(TEXTS)
        server.trouble = lambda handler, path, _: serve(handler, path)
        encoder.encode(TEXTS)
        assert sum(len(body["input"]) for body in asked(server, EMBEDDINGS)[before + 3 :]) == len(TEXTS) - 4


@pytest.mark.parametrize("use", [RemoteEncoder, RemoteReranker])
def test_no_message_repeats_the_key(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_API_KEY", KEY)

    def repeats(handler: Any, path: str, _: int) -> bool:
        if path == "/v1/models":
            return serve(handler, path)
        handler.reply({"error": {"message": f"Incorrect API key provided: {handler.headers['authorization']}"}}, 401)
        return True

    with text_model_double("vllm") as server:
        server.trouble = repeats
        with pytest.raises(ServerError, match=r"401: .*\[API key\].*PYTRACE_API_KEY") as refused:
            use(server.url)
        assert KEY not in f"{refused.value!r}{refused.value.__cause__!r}{refused.value.__context__!r}"
        server.trouble = lambda handler, *_: handler.reply({"data": [{"id": KEY, "owned_by": "vllm"}]}) is None
        with pytest.raises(ServerError, match="its API key in a model's name"):
            use(server.url)


def test_options_out_of_range_are_refused() -> None:
    for use in (RemoteEncoder, RemoteReranker):
        for wrong in ({"concurrency": 0}, {"batch_texts": 0}, {"attempts": 0}, {"timeout": 0.0}):
            with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
                use("http://127.0.0.1:1", **wrong)  # type: ignore[operator]
    with pytest.raises(ValueError, match="truncate_dim must be at least 1"):
        RemoteEncoder("http://127.0.0.1:1", truncate_dim=0)
    with pytest.raises(InputError, match="is no server's address"):
        RemoteEncoder("embeddings")
    assert AT_ONCE["tei"] < len(TEXTS)
