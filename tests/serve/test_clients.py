"""Clients that people have talk to the service as they would to their own servers, and understand it."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
cohere = pytest.importorskip("cohere", reason="Cohere's client is not installed")

from pytrace.engine.encoders import load_cross_encoder, load_encoder
from pytrace.engine.loading import load
from pytrace.engine.questions import NOT_A_QUESTION
from pytrace.engine.running import NOT_FOUND
from pytrace.records import Usage
from pytrace.results import Findings, Result
from pytrace.serve import others_api
from tests.serve.conftest import KEY
from tests.serve.service_process import ServiceProcess

pytestmark = pytest.mark.models

QUERY = "Who founded Brackwater Ferries?"
DOCUMENTS = ["Geese fly south in autumn.", "Brackwater Ferries was founded by Tobias Rook.", "Ferries cross the sea."]
ORDER = [1, 2, 0]


@pytest.fixture
def service(keyed_service: ServiceProcess) -> ServiceProcess:
    return keyed_service


@pytest.fixture(scope="module")
def vectors() -> np.ndarray[Any, Any]:
    """Return the encoder's own vectors of the documents, scaled to length 1."""
    with closing(load("tiny", threads=1)) as engine:
        found = engine.encoder.encode(DOCUMENTS)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def post(service: ServiceProcess, path: str, body: object, **headers: str) -> Any:
    """Send JSON as programs without a client do."""
    return service.post(
        path, body, headers={"content-type": "application/json", "authorization": f"Bearer {KEY}", **headers}
    )


# ---- OpenAI


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "base64"}, {"encoding_format": "float"}])
def test_openais_client_gets_the_encoders_vectors(
    client: Any, vectors: np.ndarray[Any, Any], encoding: dict[str, Any]
) -> None:
    made = client.embeddings.create(model="pytrace", input=DOCUMENTS, **encoding)
    # Who asks for base64 gets it as it is; who says nothing gets it, too, and the client decodes it.
    rows = [each.embedding for each in made.data]
    found = np.array([np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows])
    assert [each.index for each in made.data] == [0, 1, 2]
    assert found.shape == vectors.shape
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    assert ((found * vectors).sum(axis=1) > 0.999).all()
    assert made.usage.prompt_tokens == made.usage.total_tokens > 10
    one = client.embeddings.create(model="tiny", input=DOCUMENTS[1], user="somebody", **encoding)
    assert len(one.data) == 1


def test_openais_client_is_told_what_is_wrong(client: Any, service: ServiceProcess) -> None:
    with pytest.raises(openai.BadRequestError, match="no model 'gpt-5' here; ask for"):
        client.embeddings.create(model="gpt-5", input="x")
    with pytest.raises(openai.BadRequestError, match=r"input\[1\] is empty"):
        client.embeddings.create(model="pytrace", input=["x", " "])
    with pytest.raises(openai.BadRequestError, match="leave dimensions out"):
        client.embeddings.create(model="pytrace", input="x", dimensions=8)
    with pytest.raises(openai.BadRequestError, match=r"\$.input"):
        client.embeddings.create(model="pytrace", input=[[1, 2], [3]])  # tokens of another model's
    with pytest.raises(openai.BadRequestError, match="no message of the user"):
        client.chat.completions.create(model="pytrace", messages=[{"role": "system", "content": "Be brief."}])
    with pytest.raises(openai.BadRequestError, match="nonsense"):
        client.chat.completions.create(
            model="pytrace/nonsense", messages=[{"role": "user", "content": "x"}], stream=True
        )
    with (
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="another-key-than-ours", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError, match="a key is needed"),
    ):
        stranger.models.list()


def test_openais_client_lists_the_models(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert {"pytrace", "tiny", "pytrace/trace", "pytrace/rag"} <= {*names}
    assert "pytrace/gold" not in names
    assert len(names) == len(set(names))


def test_openais_client_chats_whole_and_in_pieces(client: Any) -> None:
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "Who is Tobias Rook?"}]},
    ]
    whole = client.chat.completions.create(model="pytrace", messages=conversation, temperature=0, max_tokens=50)
    text = whole.choices[0].message.content
    assert text
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    stream = client.chat.completions.create(
        model="pytrace/standard", messages=conversation, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    # What the first request computed of the prompt, the second need not compute.
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_chats_answer_names_its_sources(client: Any) -> None:
    asked = [{"role": "user", "content": "Who founded the foundry that cast the bell of the Lady Addle?"}]
    completion = client.chat.completions.create(model="pytrace/hops", messages=asked)
    message = completion.choices[0].message
    sources = [annotation.url_citation for annotation in message.annotations]
    assert (
        message.content.casefold() in sources[-1].content.casefold()
    )  # the last step of the first chain has the answer
    for source in sources:
        assert source.url.startswith("pytrace:")
        assert (source.start_index, source.end_index) == (0, len(message.content))


def test_a_chat_without_an_answer_names_the_closest_passages(client: Any) -> None:
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    message = client.chat.completions.create(model="pytrace/hops", messages=asked).choices[0].message
    titles = [annotation.url_citation.title for annotation in message.annotations]
    assert message.content == f"{NOT_FOUND} Closest passages: {'; '.join(titles)}."
    thanks = [{"role": "user", "content": "Thanks!"}]
    assert client.chat.completions.create(model="pytrace", messages=thanks).choices[0].message.content == NOT_A_QUESTION


def test_a_chats_usage_counts_computed_tokens() -> None:
    usage = {
        "read": Usage(prompt_tokens=900, evaluated_tokens=120, generated_tokens=20),
        "rank": Usage(prompt_tokens=70),
    }
    result = Result(question="?", evidence=Findings(kind="none"), usage=usage)
    assert others_api._usage(result) == {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


# ---- Cohere


def test_coheres_client_ranks(service: ServiceProcess) -> None:
    with cohere.ClientV2(api_key=KEY, base_url=service.url) as client:
        ranked = client.rerank(model="tiny", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=512)
        with pytest.raises(cohere.errors.BadRequestError, match="no model"):
            client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)
    assert [each.index for each in ranked.results] == ORDER[:2]
    assert ranked.results[0].relevance_score > ranked.results[1].relevance_score
    assert ranked.meta.api_version.version == "2"
    assert ranked.meta.billed_units.search_units == 1
    with (
        cohere.ClientV2(api_key="another-key-than-ours", base_url=service.url) as stranger,
        pytest.raises(cohere.errors.UnauthorizedError),
    ):
        stranger.rerank(model="tiny", query=QUERY, documents=DOCUMENTS)


def test_coheres_older_client_ranks(service: ServiceProcess) -> None:
    rows = [{"text": text, "id": str(number)} for number, text in enumerate(DOCUMENTS)]
    with cohere.Client(api_key=KEY, base_url=service.url) as client:
        ranked = client.rerank(query=QUERY, documents=rows, model="tiny", return_documents=True)
    assert [each.index for each in ranked.results] == ORDER
    assert [each.document.text for each in ranked.results] == [DOCUMENTS[index] for index in ORDER]


# ---- Jina, LightRAG, Text Embeddings Inference


def test_jinas_shape(service: ServiceProcess) -> None:
    body = {
        "model": "tiny",
        "query": QUERY,
        "documents": DOCUMENTS,
        "top_n": 3,
        "return_documents": True,
        "truncate": True,
    }
    answer = post(service, "/v1/rerank", body)
    assert [each["index"] for each in answer["results"]] == ORDER
    assert [each["document"]["text"] for each in answer["results"]] == [DOCUMENTS[index] for index in ORDER]
    assert answer["model"] == "tiny"
    assert answer["usage"]["total_tokens"] > 0
    # Numbers are those of the vectors.
    made = post(service, "/v1/embeddings", {"input": DOCUMENTS, "input_type": "document"})["data"]
    (query,) = post(service, "/v1/embeddings", {"input": QUERY, "input_type": "query"})["data"]
    rows, asked = np.array([each["embedding"] for each in made]), np.array(query["embedding"])
    cosines = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
    assert [each["relevance_score"] for each in answer["results"]] == pytest.approx(cosines[ORDER], abs=2e-2)


def test_lightrags_binding_for_rerankers(service: ServiceProcess) -> None:
    # What it sends for Jina (return_documents) and for Cohere (without), and what it reads of the answer.
    for path, more in (("/v1/rerank", {"return_documents": False}), ("/v2/rerank", {"max_tokens_per_doc": 480})):
        payload = {"model": "tiny", "query": QUERY, "documents": DOCUMENTS, "top_n": 2, **more}
        asked = urllib.request.Request(
            f"{service.url}{path}",
            json.dumps(payload).encode(),
            {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {KEY}",
                "User-Agent": "Python/3.12 aiohttp/3.12",
            },
        )
        with urllib.request.urlopen(asked, timeout=30) as response:
            assert response.status == 200
            results = json.load(response).get("results", [])
        read = [{"index": result["index"], "relevance_score": result["relevance_score"]} for result in results]
        assert [each["index"] for each in read] == ORDER[:2]
        assert all(isinstance(each["relevance_score"], float) for each in read)


def test_text_embeddings_inferences_shape(service: ServiceProcess) -> None:
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "truncate": True, "truncation_direction": "Right"}
    answer = post(service, "/rerank", body)
    assert [each["index"] for each in answer] == ORDER
    assert all({*each} == {"index", "score"} for each in answer)
    answer = post(service, "/rerank", {**body, "return_text": True, "raw_scores": None, "truncate": None})
    assert [each["text"] for each in answer] == [DOCUMENTS[index] for index in ORDER]
    status, told, _ = service.request(
        "POST", "/rerank", {"query": QUERY, "texts": []}, headers={"authorization": f"Bearer {KEY}"}
    )
    assert status == 400
    assert "$.texts" in told["error"]["message"]


def test_what_documents_may_be(service: ServiceProcess) -> None:
    rows = [{"text": DOCUMENTS[0]}, DOCUMENTS[1], {"text": DOCUMENTS[2], "id": 7}]
    answer = post(service, "/v1/rerank", {"query": QUERY, "documents": rows, "return_documents": True, "top_n": None})
    assert [each["document"] for each in answer["results"]] == [{"text": DOCUMENTS[index]} for index in ORDER]
    for documents, told in (
        ([{"title": "x"}], "`text` - at `$.documents[0]`"),
        ([], "$.documents"),
        ([""] * 1001, "$.documents"),
    ):
        body = {"query": QUERY, "documents": documents}
        status, answer, _ = service.request("POST", "/v1/rerank", body, headers={"authorization": f"Bearer {KEY}"})
        assert status == 400
        assert told in answer["error"]["message"]
    assert post(service, "/v1/rerank", {"query": QUERY, "documents": ["", "x" * 100_000, *DOCUMENTS]})["results"]


# ---- pytrace itself


def test_pytraces_own_clients_of_servers(
    service: ServiceProcess, vectors: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", KEY)
    server = {"api_key_env": "OUR_KEY"}
    encoder = load_encoder(f"{service.url}/v1", ["model=tiny"], server=server)
    try:
        found = encoder.encode(DOCUMENTS)
    finally:
        encoder.close()  # type: ignore[attr-defined]
    assert ((found * vectors).sum(axis=1) / np.linalg.norm(found, axis=1) > 0.999).all()
    reranker = load_cross_encoder(service.url, ["model=tiny"], server=server)
    try:
        scores = reranker.score([(QUERY, text) for text in DOCUMENTS])
    finally:
        reranker.close()  # type: ignore[attr-defined]
    assert np.argsort(-scores).tolist() == ORDER


def test_texts_whose_cosines_are_negative_keep_their_order(service: ServiceProcess) -> None:
    # The shipped encoder's cosines of such texts are below 0, which Jina's and Cohere's clients do not expect.
    texts = ["qwxz 77 !!", "Tobias Rook founded it.", "0000 1111 2222", "zzz; drop; ;;"]
    body = {"query": "Who founded Brackwater Ferries?", "texts": texts}
    key = {"authorization": f"Bearer {KEY}"}
    raw = service.post("/rerank", {**body, "raw_scores": True}, headers=key)
    assert raw[-1]["score"] < raw[-2]["score"] < 0
    ranked = service.post("/v1/rerank", {"query": body["query"], "documents": texts}, headers=key)["results"]
    assert [each["index"] for each in ranked] == [each["index"] for each in raw]
    assert [each["relevance_score"] for each in ranked] == pytest.approx(
        [max(each["score"], 0) for each in raw], abs=1e-6
    )
