"""What the service takes and gives as JSON: a struct per body, with its bounds, from which the OpenAPI document is made.

The answer to a question is a `pytrace.results.Result`, here as everywhere.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pytrace.check_records import Certificate
from pytrace.results import Request

# At most some 2,000 words, more than an embedding model reads.
Question = Annotated[str, msgspec.Meta(min_length=1, max_length=8192, description="The question.")]
Text = Annotated[str, msgspec.Meta(max_length=200_000)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Filters = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=500)], ...],
    msgspec.Meta(max_length=16, description="Filters on document metadata, such as `date>=2020`."),
]


class Message(msgspec.Struct):
    """A body, in or out."""


class Body(Message, forbid_unknown_fields=True):
    """A body of our own interface; a field that it does not have is refused, since it was meant to do something."""


# ---- our own interface


class SearchRequest(Body, kw_only=True):
    """A question to search for across hops, without a language model."""

    question: Question
    passages: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of passages.")] = 10
    chains: Annotated[int, msgspec.Meta(ge=1, le=20, description="Maximum number of chains.")] = 3
    where: Filters = ()


class AskRequest(Body, kw_only=True):
    """A question to answer; with `stream` each stage sends the result so far as a server-sent event."""

    question: Question
    method: Annotated[
        str,
        msgspec.Meta(max_length=500, description="Method, such as `hops`. Default: the service's."),
    ] = ""
    settings: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=500)], ...],
        msgspec.Meta(max_length=64, description="`name=value` settings of the method."),
    ] = ()
    where: Filters = ()
    passages: Annotated[
        int,
        msgspec.Meta(ge=1, le=100, description="Number of passages for the method, nearest first."),
    ] = 20
    check: Annotated[bool, msgspec.Meta(description="Check the answer against its evidence.")] = False
    min_confidence: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, le=1, description="Confidence below which no answer is given. The default was measured."
            ),
        ]
        | None
    ) = None
    stream: bool = False


def request_of(body: SearchRequest | AskRequest) -> Request:
    """Return a body as the engine's request."""
    fields = {name: getattr(body, name) for name in body.__struct_fields__ if name in Request.__struct_fields__}
    return Request(task="search" if isinstance(body, SearchRequest) else "answer", **fields)


class GivenResponse(Body, kw_only=True):
    """A chain of thought to be certified; `answers` are the right ones, where they are known."""

    question: Question
    text: Text
    id: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    answers: Annotated[list[Annotated[str, msgspec.Meta(max_length=4096)]], msgspec.Meta(max_length=100)] = []


FactPart = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class CertifyRequest(Body, kw_only=True):
    """Responses, and the triples (head, relation, tail) to check them against; the server's graph where none are given."""

    responses: Annotated[list[GivenResponse], msgspec.Meta(min_length=1, max_length=64)]
    facts: Annotated[list[tuple[FactPart, FactPart, FactPart]], msgspec.Meta(max_length=5000)] | None = None


class CertifyResponse(Message, kw_only=True):
    """A certificate a response, in their order."""

    certificates: list[Certificate]


class GivenDocument(Body, kw_only=True):
    """A document to be indexed, in the place of the one with the same id; without an id, title and text make one."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    title: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    id: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    metadata: Annotated[
        dict[
            Annotated[str, msgspec.Meta(max_length=200)],
            Annotated[str, msgspec.Meta(max_length=10_000)] | int | float | bool,
        ],
        msgspec.Meta(max_length=64),
    ] = {}


class AddRequest(Body, kw_only=True):
    """Documents to be added or replaced."""

    documents: Annotated[list[GivenDocument], msgspec.Meta(min_length=1, max_length=10_000)]


class ChangeResponse(Message, kw_only=True):
    """What changed; the index is searched as it is now. `ids` are those of the documents that were given."""

    added: int
    replaced: int
    removed: int
    unchanged: int
    encoded: int
    ids: list[str]
    warnings: list[str] = []


class ListedDocument(Message, kw_only=True):
    """A document of the index; `pages` says that pictures of its pages can be had."""

    id: str
    title: str
    source: str
    passages: int
    metadata: dict[str, Any]
    pages: bool = False


class DocumentsResponse(Message, kw_only=True):
    """Some of the documents, of `total` that there are."""

    total: int
    offset: int
    documents: list[ListedDocument]


class ReadPassage(Message, kw_only=True):
    """A passage as it stands in its document: its sentences, where each begins there, and the page of each if it has pages."""

    id: str
    title: str
    headings: list[str]
    page: int | None
    start: int
    sentences: list[str]
    starts: list[int]
    pages: list[int]
    where: str


class DocumentResponse(ListedDocument, kw_only=True):
    """A document to be read."""

    text: list[ReadPassage]


class Neighbour(Message, kw_only=True):
    """A passage that a link leads to (`forth`), or that links back; both are weights. `name` is the name that makes the link."""

    id: str
    document: str
    title: str
    name: str
    forth: float
    back: float
    where: str


class NeighboursResponse(Message, kw_only=True):
    """The passages that one is linked with, the strongest links first."""

    id: str
    title: str
    neighbours: list[Neighbour]


class MethodInfo(Message, kw_only=True):
    """A method that questions may be answered with."""

    name: str
    summary: str


class InfoResponse(Message, kw_only=True):
    """What this service has."""

    version: str
    documents: int
    passages: int
    encoder: str
    language_model: str
    cross_encoder: str | None
    method: str
    methods: list[MethodInfo]
    read_only: bool
    facts: bool
    formats: list[str]
    max_body_bytes: int


class ErrorDetail(Message, kw_only=True):
    """What was wrong, in a sentence with the remedy."""

    message: str
    type: str
    request_id: str = ""


class ErrorResponse(Message, kw_only=True):
    """The body of every answer that is no success."""

    error: ErrorDetail


# ---- interfaces of others: what they send besides is passed over, as their own servers do


class RankedDocument(Message, kw_only=True):
    """A document as an object, of which the text is ranked."""

    text: Text


class RerankRequest(Message, kw_only=True):
    """A query and documents, as Jina's and Cohere's clients send them; `model` is one that `/v1/models` lists."""

    query: Question
    documents: Annotated[list[Text | RankedDocument], msgspec.Meta(min_length=1, max_length=1000)]
    model: str | None = None
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool | None = None


class RerankResult(Message, kw_only=True, omit_defaults=True):
    """A document by its place among those given."""

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None


class TokenUsage(Message, kw_only=True):
    """What a request was counted as."""

    total_tokens: int
    prompt_tokens: int = 0


class RerankResponse(Message, kw_only=True, omit_defaults=True):
    """Documents, the most relevant first; `meta` is where Cohere's clients look for what was counted."""

    id: str
    model: str
    results: list[RerankResult]
    usage: TokenUsage
    meta: dict[str, Any] = {}


class TeiRerankRequest(Message, kw_only=True):
    """A query and texts, as Text Embeddings Inference takes them."""

    query: Question
    texts: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=1000)]
    raw_scores: bool | None = None
    return_text: bool | None = None


class TeiRank(Message, kw_only=True, omit_defaults=True):
    """A text by its place among those given."""

    index: int
    score: float
    text: str | None = None


class EmbeddingsRequest(Message, kw_only=True):
    """Texts to be made vectors of, as OpenAI's clients send them; `input_type` "query" encodes questions."""

    input: (
        Annotated[str, msgspec.Meta(max_length=200_000)]
        | Annotated[list[Text], msgspec.Meta(min_length=1, max_length=2048)]
    )
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    input_type: Literal["query", "passage", "document", "search_query", "search_document"] | None = None


class Embedding(Message, kw_only=True):
    """One vector: numbers, or the base64 of float32 in little-endian order."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingsResponse(Message, kw_only=True):
    """A vector a text, in their order."""

    data: list[Embedding]
    model: str
    usage: TokenUsage
    object: str = "list"


class ContentPart(Message, kw_only=True):
    """A part of a message; pictures and others are passed over."""

    type: str = "text"
    text: str | None = None


class StreamOptions(Message, kw_only=True):
    """What a stream has besides."""

    include_usage: bool = False


class ChatMessage(Message, kw_only=True):
    """A message of a conversation; `content` is a text, or parts of which those of type "text" count."""

    role: str
    content: str | Annotated[list[ContentPart], msgspec.Meta(max_length=1000)] | None = None


class ChatRequest(Message, kw_only=True):
    """A conversation, of which the last message of the user is asked."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=1000)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ModelInfo(Message, kw_only=True):
    """A model that requests may name."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "pytrace"


class ModelsResponse(Message, kw_only=True):
    """The models that requests may name."""

    data: list[ModelInfo]
    object: str = "list"
