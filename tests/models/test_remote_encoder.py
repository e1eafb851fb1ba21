"""Encoders and rerankers on llama.cpp's own server, against the same random float32 weights in this process (llama.cpp's C functions).

Both compute in float32, but for GELU, which llama.cpp takes from a table in float16: 2e-5 was seen between them and between
batches of one server, 1e-4 is allowed. For what cannot run here, a double answers in its documented shape
(`tests/models/test_remote_text_models.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python, the engine to compare with, is not installed")

from pytrace.errors import InputError, ServerError, StoreError
from pytrace.methods.ranking import rank_by_cross_encoder
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.models.llama import runtime
from pytrace.models.servers.remote_encoder import RemoteEncoder
from pytrace.models.servers.remote_reranker import RemoteReranker
from pytrace.records import Document
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import IndexWriter, PassageIndex
from tests.bert_gguf import write_bert_gguf
from tests.remote_servers import llama_cpp_python_server, llama_server

CLOSE = 1e-4
TEXTS = ["the sea", "who owns the company", "Terns nest on cliffs.", "", "where the gull nests, the tern owns the sea!"]
QUESTIONS = ["who owns the sea?", "where is the tern"]
LONG = "the sea " * 40  # 82 tokens, where the model takes 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def encoder_file(folder: Path) -> Path:
    return write_bert_gguf(folder / "encoder.gguf")


@pytest.fixture(scope="module")
def reranker_file(folder: Path) -> Path:
    return write_bert_gguf(folder / "reranker.gguf", seed=1, ranks=True)


@pytest.fixture(scope="module")
def url(encoder_file: Path, folder: Path) -> Iterator[str]:
    with llama_server(encoder_file, folder / "encoder.txt", context=64, task="embedding") as address:
        yield address


@pytest.fixture(scope="module")
def ranking_url(reranker_file: Path, folder: Path) -> Iterator[str]:
    with llama_server(reranker_file, folder / "reranker.txt", context=64, task="rank") as address:
        yield address


@pytest.fixture(scope="module")
def encoder(url: str) -> Iterator[RemoteEncoder]:
    with RemoteEncoder(url) as model:
        yield model


def in_process(path: Path, numbers: int) -> Callable[..., Vectors]:
    """Return what turns texts, joined as one sequence, into what llama.cpp makes of it in this process."""
    llama_cpp = runtime.library()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.embeddings = True
    parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 64
    parameters.n_threads = parameters.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)

    def tokens(text: str) -> list[int]:
        room, data = (llama_cpp.llama_token * 64)(), text.encode()
        return list(room[: llama_cpp.llama_tokenize(vocabulary, data, len(data), room, 64, True, False)])

    def run(text: str, *rest: str) -> Vectors:
        # A later text has no [CLS] before it.
        sequence = [*tokens(text), *(token for each in rest for token in tokens(each)[1:])]
        ids = (llama_cpp.llama_token * len(sequence))(*sequence)
        assert llama_cpp.llama_encode(context, llama_cpp.llama_batch_get_one(ids, len(sequence))) == 0
        row = llama_cpp.llama_get_embeddings_seq(context, 0)
        return np.ctypeslib.as_array(ctypes.cast(row, ctypes.POINTER(ctypes.c_float)), shape=(numbers,)).copy()

    return run


def test_vectors_are_those_of_the_same_file_in_this_process(encoder: RemoteEncoder, encoder_file: Path) -> None:
    run = in_process(encoder_file, 32)
    vectors = encode(encoder, TEXTS, "passage")
    assert (vectors.shape, vectors.dtype) == ((5, 32), np.float32)
    for text, vector in zip(TEXTS, vectors, strict=True):
        expected = run(text)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=CLOSE)  # llama-server normalises


def test_vectors_do_not_depend_on_how_texts_are_batched(url: str) -> None:
    texts = [f"{text} {number}" for number in range(7) for text in TEXTS]
    with RemoteEncoder(url, batch_texts=100) as together, RemoteEncoder(url, batch_texts=1, concurrency=3) as alone:
        np.testing.assert_allclose(together.encode(texts), alone.encode(texts), atol=CLOSE)
        assert alone._client.requests - together._client.requests == 34


def test_equal_texts_are_asked_once_and_no_text_twice(url: str) -> None:
    with RemoteEncoder(url, batch_texts=2) as encoder:
        before = encoder._client.requests
        first = encoder.encode(["the sea", "the gull", "the sea", "the tern"])
        assert encoder._client.requests - before == 2
        np.testing.assert_array_equal(first[0], first[2])
        np.testing.assert_array_equal(encoder.encode(["the tern", "the sea"]), first[[3, 0]])
        assert encoder._client.requests - before == 2
        assert encoder.encode([]).shape == (0, 32)


def test_vectors_on_disk_are_not_asked_for_again(url: str, tmp_path: Path) -> None:
    with RemoteEncoder(url, cache_directory=tmp_path) as encoder:
        first = encoder.encode(TEXTS)
    with RemoteEncoder(url, cache_directory=tmp_path) as encoder:
        before = encoder._client.requests
        np.testing.assert_array_equal(encoder.encode(TEXTS), first)
        assert encoder._client.requests == before


def test_vectors_on_disk_of_exchanged_weights_are_refused(url: str, encoder_file: Path, folder: Path) -> None:
    cache = folder / "cache"
    with RemoteEncoder(url, cache_directory=cache) as encoder:
        fingerprint = encoder.fingerprint
    other = folder / "other"
    other.mkdir()
    write_bert_gguf(other / encoder_file.name, seed=7)
    with llama_server(other / encoder_file.name, other / "log.txt", context=64, task="embedding") as address:
        with RemoteEncoder(address) as exchanged:
            assert exchanged.fingerprint == fingerprint  # a server tells no more
        with pytest.raises(
            StoreError, match=r"keeps other vectors under the name encoder\.gguf .* weights were exchanged"
        ):
            RemoteEncoder(address, cache_directory=cache)


def test_prompts_go_before_texts_of_their_kind(url: str, encoder: RemoteEncoder) -> None:
    with RemoteEncoder(url, prompts={"query": "who owns ", "passage": "on "}) as prompted:
        np.testing.assert_allclose(
            prompted.encode(["the sea"], kind="query"), encoder.encode(["who owns the sea"]), atol=CLOSE
        )
        np.testing.assert_allclose(prompted.encode(["cliffs"]), encoder.encode(["on cliffs"]), atol=CLOSE)
        assert prompted.fingerprint != encoder.fingerprint
    with pytest.raises(InputError, match="prompts are of kind 'query' or 'passage', not 'passages'"):
        RemoteEncoder(url, prompts={"passages": "x"})  # type: ignore[dict-item]


def test_the_address_may_be_the_root_its_version_or_the_whole_endpoint(url: str, encoder: RemoteEncoder) -> None:
    for address in (f"{url}/", f"{url}/v1", f"{url}/v1/", f"{url}/v1/embeddings"):
        with RemoteEncoder(address) as other:
            assert other.fingerprint == encoder.fingerprint
            assert (other.kind, other.name, other.dimension) == ("llama-server", "encoder.gguf", 32)


def test_a_text_that_is_too_long_is_named_among_others(url: str) -> None:
    message = (
        r"the text 'the sea the sea .*'… \(320 characters\) is refused \(.*82 tokens.*64 tokens.*\); if it is longer than the "
        r"model takes, split it, or start the server with an --ubatch-size that holds it"
    )
    with RemoteEncoder(url, truncate=False) as encoder:
        with pytest.raises(ServerError, match=message):
            encoder.encode([*TEXTS, LONG, "more"])
        assert encoder.encode([*TEXTS, "more"]).shape == (6, 32)


def test_a_text_that_is_too_long_is_cut_to_the_context(encoder: RemoteEncoder) -> None:
    vectors = encoder.encode([TEXTS[0], LONG, "the " * 2000, TEXTS[1]])
    kept = encoder.encode([TEXTS[0], LONG[:240], "the " * 60, TEXTS[1]])  # 60 tokens and special ones
    np.testing.assert_allclose(vectors, kept, atol=CLOSE)


def test_a_server_that_ignores_dimensions_is_refused(url: str) -> None:
    with pytest.raises(ServerError, match="vector of 32 numbers where 8 are due; it heeds no truncate_dim"):
        RemoteEncoder(url, truncate_dim=8)


def test_servers_that_do_something_else_are_refused(
    url: str, ranking_url: str, random_gguf: Path, folder: Path
) -> None:
    with pytest.raises(ServerError, match=r"was started with --reranking, .*; start one with --embeddings"):
        RemoteEncoder(ranking_url)
    with pytest.raises(ServerError, match=r"501: This server does not support reranking. Start it with `--reranking`"):
        RemoteReranker(url)
    with (
        llama_server(random_gguf, folder / "text.txt") as address,
        pytest.raises(ServerError, match=r"501: This server does not support embeddings"),
    ):
        RemoteEncoder(address)


def test_llama_cpp_pythons_server_gives_the_same_vectors_without_base64(
    encoder: RemoteEncoder, encoder_file: Path, folder: Path
) -> None:
    with (
        llama_cpp_python_server(encoder_file, folder / "python.txt", context=64, embedding=True) as address,
        RemoteEncoder(address, normalize=True) as other,
    ):
        np.testing.assert_allclose(other.encode(TEXTS), encoder.encode(TEXTS), atol=CLOSE)
        assert other.encode([LONG]).shape == (1, 32)  # it cuts what is too long


def test_scores_are_those_of_the_same_file_in_this_process(ranking_url: str, reranker_file: Path) -> None:
    run = in_process(reranker_file, 1)
    pairs = [(question, text) for question in QUESTIONS for text in TEXTS]
    expected = [float(run(*pair)[0]) for pair in pairs]
    assert np.ptp(expected) > 0.1
    for dialect in ("auto", "jina", "tei"):
        with RemoteReranker(ranking_url, dialect=dialect) as reranker:  # type: ignore[arg-type]
            scores = reranker.score(pairs)
            assert (scores.shape, scores.dtype) == ((10,), np.float32)
            np.testing.assert_allclose(scores, expected, atol=CLOSE)
            assert reranker.dialect == ("jina" if dialect == "auto" else dialect)


def test_pairs_in_any_order_and_many_requests_keep_their_scores(ranking_url: str) -> None:
    pairs = [(question, text) for text in TEXTS for question in QUESTIONS] * 2
    order = np.random.default_rng(0).permutation(len(pairs))
    with RemoteReranker(ranking_url) as together, RemoteReranker(ranking_url, batch_texts=2, concurrency=3) as parted:
        scores = together.score(pairs)
        before = parted._client.requests
        np.testing.assert_allclose(parted.score([pairs[index] for index in order]), scores[order], atol=CLOSE)
        assert parted._client.requests - before == 6  # equal pairs once: two questions of five passages
        assert together.score([]).shape == (0,)


def test_a_passage_that_is_too_long_is_named_with_its_question_or_cut(ranking_url: str) -> None:
    pairs = [("who", "the sea"), ("who owns the sea", LONG), ("where", "the sea")]
    message = r"the passage 'the sea .*'… \(320 characters\) with the question 'who owns the sea' \(16 characters\) is refused "
    with RemoteReranker(ranking_url, truncate=False) as reranker, pytest.raises(ServerError, match=message):
        reranker.score(pairs)
    with RemoteReranker(ranking_url) as reranker:
        kept = [pairs[0], (pairs[1][0], LONG[: 8 * 28]), pairs[2]]  # 64 tokens but 4 of the question and 4 special ones
        np.testing.assert_allclose(reranker.score(pairs), reranker.score(kept), atol=CLOSE)
        with pytest.raises(
            ServerError, match=r"the passage 'the sea' \(7 characters\) with the question 'the sea .* is refused"
        ):
            reranker.score([(LONG, "the sea")])


def test_the_rerankers_address_may_be_its_whole_endpoint(ranking_url: str) -> None:
    with RemoteReranker(ranking_url) as reranker:
        for address in (f"{ranking_url}/v1", f"{ranking_url}/rerank", f"{ranking_url}/v1/rerank", f"{ranking_url}/v2"):
            with RemoteReranker(address) as other:
                assert other.fingerprint == reranker.fingerprint
    with pytest.raises(ServerError, match=r"does not rerank at /v2/rerank \(POST .*404.*give the whole address"):
        RemoteReranker(f"{ranking_url}/v2/rerank")


def test_keys_come_from_the_environment_and_stand_in_no_message(
    encoder_file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sesame-0123456789"
    with llama_server(encoder_file, folder / "locked.txt", context=64, keys=(secret,), task="embedding") as address:
        monkeypatch.delenv("TERN_KEY", raising=False)
        with pytest.raises(ServerError, match=r"401.*put its key into the environment variable TERN_KEY"):
            RemoteEncoder(address, api_key_env="TERN_KEY")
        monkeypatch.setenv("TERN_KEY", secret)
        with RemoteEncoder(address, api_key_env="TERN_KEY") as encoder:
            assert encoder.encode(["the sea"]).shape == (1, 32)
            with pytest.raises(ServerError) as refused:
                RemoteEncoder(address, api_key_env="TERN_KEY", truncate_dim=3)
            assert secret not in f"{refused.value!r} {encoder.fingerprint} {vars(encoder)}"


def test_both_keep_the_protocols(url: str, ranking_url: str) -> None:
    with RemoteEncoder(url) as encoder, RemoteReranker(ranking_url) as reranker:
        one: Encoder = encoder
        other: CrossEncoder = reranker
        assert one.name == "encoder.gguf"
        assert other.name == "reranker.gguf"
        assert one.fingerprint != other.fingerprint
        with pytest.raises(TypeError, match="put it in a list"):
            one.encode("the sea")
        with pytest.raises(ValueError, match="kind must be"):
            one.encode(["the sea"], kind="both")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="item 0 is"):
            other.score(["the sea"])  # type: ignore[list-item]


def test_an_index_is_built_and_searched_and_documents_are_ranked_by_servers(
    url: str, ranking_url: str, reranker_file: Path, tmp_path: Path
) -> None:
    documents = [Document(f"d{number}", f"{number}", (text,)) for number, text in enumerate(TEXTS) if text]
    documents.append(Document("long", "Long", (LONG * 20,)))
    with RemoteEncoder(url) as encoder, RemoteReranker(ranking_url) as reranker:
        with IndexWriter(tmp_path / "index", encoder, create=True) as writer:
            writer.add(documents)
            writer.commit()
        index = PassageIndex(tmp_path / "index")
        assert len(HopSearch(index, encoder).search(["where is the tern?"], 3)[0].rows) == 3
        with (
            RemoteEncoder(url, prompts={"query": "on "}) as other,
            pytest.raises(StoreError, match="was made with encoder"),
        ):
            HopSearch(index, other)
        [ranked] = rank_by_cross_encoder(reranker)([QUESTIONS[0]], [documents], 2)
        run = in_process(reranker_file, 1)
        scores = {each.id: float(run(QUESTIONS[0], f"{each.title}. {each.text}")[0]) for each in documents[:-1]}
        assert next(each.id for each in ranked if each.id != "long") == max(scores, key=lambda key: scores[key])
