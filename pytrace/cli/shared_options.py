"""Options that several commands share: the models, the method, its settings and the knowledge bases that they ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from pytrace.cli.commands import group, option
from pytrace.cli.completion import complete_model
from pytrace.documents.passages import WORDS
from pytrace.documents.reader import ReadOptions
from pytrace.engine.knowledge import FEW_SHOT, KnowledgeOptions
from pytrace.engine.loading import Engine, profile_encoder
from pytrace.errors import DataError, InputError
from pytrace.storage.foreign_json import read_json
from pytrace.triples.graph.exchange import FORMATS

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName

LIMIT = option("Maximum number of questions.", ge=1)
DISTINCT = option("Use only the first of questions with the same gold path.")
SEED = option("Random seed.", default=0)
ROWS_OUT = option("Output file of the rows.", metavar="FILE.jsonl")
GOLD_DATA = option("Questions with answers and gold paths.")
MIN_HOPS = option("Minimum number of triples in the shortest gold path of a question (the paper: 2).", ge=1)
MAX_HOPS = option("Maximum number of triples in the shortest gold path of a question.", ge=1)
GRAPH = option(
    "The graph: TSV, JSONL, N-Triples, Turtle, or the directory that 'kg build' or 'kg index' made.", metavar="KB"
)
GRAPH_FORMAT = option("Format of the graph.  [default: by suffix]", choices=FORMATS)
KNOWLEDGE_FORMAT = option("Format of the knowledge base.  [default: by suffix]", choices=FORMATS)

ATOMIC = option(
    "Against texts: the language model (--llm) splits each claim into single facts, which are checked instead."
)
CHECKER = option(
    "Against texts: model that judges claims, in ONNX (natural language inference, MiniCheck, LettuceDetect, or made by 'pytrace "
    "train checker'); words: their words alone; or lm: the language model of --llm.  [default: the small model together with the words]",
    metavar="NAME|DIR|words|lm",
)

_DEVICE = option("Device of models and vector search; fails if there is none.", choices=("cpu", "cuda"))
_THREADS = option("Threads of the models.", ge=1, le=1024)
_VECTOR_CACHE = option(
    "Keep the embedding model's vectors here for later runs; processes can share it.",
    metavar="DIR",
    envvar="PYTRACE_VECTOR_CACHE",
    show_envvar=True,
)
_ENCODER_SETTINGS = option(
    "Set a property of the embedding model that its files lack: query_prompt, passage_prompt, pooling, normalize, truncate_dim, dtype, "
    "output, model. May be repeated.",
    "--encoder-set",
    metavar="NAME=VALUE",
)
_READING = {
    "language": option(
        "Language of the documents, by ISO 639-1 (de, fr, ja); decides where sentences end.  [default: detected for each]",
        metavar="CODE",
    ),
    "words": option("Maximum number of words per passage.", "--passage-words", ge=1, default=WORDS),
    "overlap": option(
        "Number of sentences that a passage repeats from the one before.", "--passage-overlap", ge=0, default=0
    ),
    "where": option(
        "Only documents whose metadata matches, such as author=Venn or date>=2020. May be repeated.",
        metavar="FILTER",
    ),
    "ocr": option(
        "Recognise pages of PDF files that are images alone: {} stands for the image, and the command prints its text, "
        "such as 'tesseract {} -'.",
        metavar="COMMAND",
        default="",
        show_default=False,
    ),
}
# By the fields of the records that they make.
_ENCODER = {
    "encoder_name": option("Embedding model.", "--encoder", metavar="NAME|DIR|FILE|URL", shell_complete=complete_model),
    "encoder_settings": _ENCODER_SETTINGS,
    "device": _DEVICE,
    "threads": _THREADS,
    "vector_cache": _VECTOR_CACHE,
}
_MODELS = {
    "llm": option("Language model.", metavar="NAME|FILE|URL", shell_complete=complete_model),
    # Without a default here, so that the profile decides, and an encoder that was named stays even if it is the tiny one.
    "encoder_name": option(
        "Embedding model.  [default: that of the profile in --llm, else tiny]",
        "--encoder",
        metavar="NAME|DIR|FILE|URL",
        default=None,
        shell_complete=complete_model,
    ),
    "encoder_settings": _ENCODER_SETTINGS,
    "device": _DEVICE,
    "gpu_layers": option("Layers of the language model on the GPU (-1: all)."),
    "threads": _THREADS,
    "context": option("Maximum length of prompt and answer together, in tokens.", ge=64),
    "llm_style": option(
        "Write prompts with the model's chat template or as plain text.  [default: auto; plain below a billion parameters]"
    ),
    "llm_model": option("Model to use on a server that has several.", metavar="NAME"),
    "api_key_env": option("Environment variable with a server's API key.", metavar="VARIABLE"),
    "concurrency": option("Maximum number of concurrent requests to a server.", ge=1, le=1024),
    "timeout": option("Timeout for an answer of a server with all retries, in seconds.", gt=0, le=86_400),
    "vector_cache": _VECTOR_CACHE,
    "deterministic": option("Fix the shape and order of batches, so calls repeat bit for bit; slower."),
    "cross_encoder_name": option(
        "A model that reads question and passage together: for the method cross-encoder, ranker=cross-encoder and "
        "judge=entailment.",
        "--cross-encoder",
        metavar="NAME|DIR|FILE|URL",
        default=None,
        shell_complete=complete_model,
    ),
    "cross_encoder_settings": option(
        "Set a property of the cross-encoder that its files lack: dtype, positive, instruction, model. May be repeated.",
        "--cross-encoder-set",
        metavar="NAME=VALUE",
    ),
    "reader_llm": option(
        "Read answers with another language model than --llm.", metavar="NAME|FILE|URL", shell_complete=complete_model
    ),
}
_KNOWLEDGE = {
    "kb": option(
        "For cok: the knowledge base to ask: TSV, JSONL, N-Triples, Turtle, the directory that 'kg build' or 'kg index' made, "
        "or the address of a SPARQL endpoint.",
        metavar="FILE|URL",
    ),
    "kb_format": KNOWLEDGE_FORMAT,
    "kb_labels": option("More names of entities, one per line: key TAB name.", metavar="FILE"),
    "kb_predicates": option("Relations to use, one per line: key TAB name; for large endpoints.", metavar="FILE"),
    "kb_cache": option("Keep an endpoint's answers here for later runs.", metavar="DIR"),
    "kb_timeout": option("Timeout for an answer of an endpoint, in seconds.  [default: 60]", gt=0, le=86_400),
    "user_agent": option("User agent for an endpoint, such as a contact address; some require one.", metavar="TEXT"),
    "query_generator": option(
        "Writer of queries: the language model, or a model that 'pytrace train' made.  [default: few-shot]",
        metavar=f"{FEW_SHOT}|DIR|FILE.gguf",
    ),
    "query_grammar": option(
        "Constrained decoding of queries: by the knowledge base's relations and the question's words, by relations only, or "
        "off.  [default: words for few-shot; for a trained model, what did best after its training]"
    ),
    "query_form": option(
        "For few-shot: triplets, for single facts, or SPARQL, for counts, yes or no and questions of several hops.  [default: that of "
        "--query-examples, else triplet]"
    ),
    "query_examples": option(
        'For few-shot: the queries that the model is shown, a line each: {"form": "sparql", "question": …, "relations": […], "query": …}. '
        " [default: five of our own]",
        metavar="FILE.jsonl",
    ),
}


def _engine(**chosen: Any) -> Engine:
    if chosen["encoder_name"] is None:
        chosen["encoder_name"] = profile_encoder(chosen["llm"])
    engine = Engine(**chosen)
    # Before anything is read: a missing card must not be found after an hour of preparing what it was to compute.
    # Commands without a language model need none that runs there.
    engine.check_device(language_model="llm" in chosen)
    return engine


def _knowledge_options(**chosen: Any) -> KnowledgeOptions:
    # What they open is closed when the command ends, however it ends.
    knowledge = KnowledgeOptions(**chosen)
    click.get_current_context().call_on_close(knowledge.close)
    return knowledge


SKIP_BAD = option(
    "Go on where a file or a row of it cannot be read: the rest of that file is left out, it is named at the end, and the exit "
    "status is 3."
)
READING = group(ReadOptions, ReadOptions, _READING)
ENCODER = group(_engine, Engine, _ENCODER)
MODELS = group(_engine, Engine, _MODELS)
KNOWLEDGE = group(_knowledge_options, KnowledgeOptions, _KNOWLEDGE)


class MethodType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A method, with settings of its own behind a colon: ``ks-llm:sentences=3``."""

    name = "method"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MethodName:
        """Read a method's name."""
        from pytrace.methods.catalog import MethodName, parse_method

        if isinstance(value, MethodName):  # click converts what it has converted once more
            return value
        try:
            return parse_method(value)
        except InputError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the methods whose names begin so."""
        from pytrace.methods.catalog import METHODS

        del ctx, param
        return [CompletionItem(name, help=row.summary) for name, row in METHODS.items() if name.startswith(incomplete)]


class _SettingsFile(msgspec.Struct):
    settings: tuple[str, ...]


def _settings_of(value: str) -> Sequence[str]:
    """Return a setting, or those in a file that 'pytrace tune' wrote, for which ``@FILE`` stands."""
    if not value.startswith("@"):
        return [value]
    path = Path(value[1:])
    try:
        return read_json(path, _SettingsFile).settings
    except (OSError, ValueError) as error:
        raise DataError(
            f"no settings can be read ({error}); give the settings.json that 'pytrace tune' wrote", path=path
        ) from None


SETTINGS = option(
    "Change a setting of the method, such as chains=3 or top=10; @FILE has settings from 'tune'. May be repeated.",
    "--set",
    metavar="NAME=VALUE|@FILE",
    # Read while the line is parsed, so that a missing file is refused before models are loaded.
    callback=lambda _, __, values: tuple(setting for value in values for setting in _settings_of(value)),
)
