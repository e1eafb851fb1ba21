"""The readers of foreign text and bytes: how each is called, and what it reads well."""

from __future__ import annotations

import bz2
import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from safetensors.numpy import save
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit

from pytrace.certify import gold_paths, response_files
from pytrace.certify.claims.entailment_onnx import open_entailment
from pytrace.certify.claims.evaluation import read_labelled
from pytrace.certify.claims.rows import read_response_rows
from pytrace.certify.response_parsing import parse_response
from pytrace.certify.run_tables import read_run_tables
from pytrace.chain_of_evidence.feature_extraction import read_features
from pytrace.cli import configuration, program
from pytrace.cli.shared_options import _settings_of
from pytrace.documents import ReadReport, content_phrases, read_documents, sentence_subject, split_sentences
from pytrace.documents.filters import parse_filters
from pytrace.documents.foreign import SUFFIXES, ForeignReader
from pytrace.documents.languages import detect_language
from pytrace.engine.questions import read_questions as read_plain_questions
from pytrace.errors import PytraceError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.summary import score_run
from pytrace.kg.endpoint_queries import read_rows
from pytrace.kg.fact_store import read_pairs
from pytrace.kg.graph_sources import read_source
from pytrace.kg.queries.notation import parse_query
from pytrace.kg.sparql import rewrite
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.methods.abilities import CAPABLE
from pytrace.methods.catalog import method_settings, parse_method
from pytrace.models.edge.packing import Packer
from pytrace.models.encoders.encoder_files import EncoderFiles
from pytrace.models.encoders.late_interaction_files import LateInteractionFiles
from pytrace.models.encoders.onnx_graph import OnnxGraph, weight_files
from pytrace.models.encoders.safetensors_file import read_tensors
from pytrace.models.encoders.static_encoder import StaticEncoder
from pytrace.models.registry import known_models, rewritten
from pytrace.models.registry.model_files import _RECORD, _read_record
from pytrace.reader import prompts
from pytrace.reader.prompts import reasoning
from pytrace.reader.response_places import blanked
from pytrace.records import Question
from pytrace.retrieval.hops.weights import OWN_WEIGHTS, load_weights
from pytrace.storage import sqlite
from pytrace.storage.question_hashes import load_question_hashes, save_question_hashes
from pytrace.triples.from_questions import read_triples as read_written_triples
from pytrace.triples.graph import TripleStore
from pytrace.triples.graph.exchange import read_triples
from pytrace.triples.parsing import parse_triples
from tests.attack import _supplies
from tests.documents.test_books_and_mail import MAIL, write_epub
from tests.documents.test_formats import WRITERS, sections
from tests.models.test_encoder import make
from tests.small_entailment import write_model

_EVAL_ROWS = (
    ('{"question": "Where?", "answers": ["Ghana"], "id": "1", "documents": [{"title": "A", "text": "It is.", "supporting": true}], '
    '"supporting_facts": [["A", 0]], "type": "bridge", "triples": [["A", "in", "B"]]}\n'),
    ('{"_id": "h", "question": "Q?", "answer": "yes", "type": "comparison", "supporting_facts": [["A", 0]], '
    '"context": [["A", ["One.", "Two."]], ["B", ["Three."]]]}\n'),
    ('{"id": "2hop__1", "question": "Q?", "answer": "B", "answer_aliases": ["b"], "paragraphs": [{"idx": 0, "title": "A", '
    '"paragraph_text": "B is.", "is_supporting": true}], "question_decomposition": [{"id": 1, "question": "q", "answer": "B"}]}\n'),
    '{"id": "n", "question": "Q?", "golden_answers": ["A"], "metadata": {"x": 1}}\n',
    '{"Question": "Q?", "QuestionId": "t", "Answer": {"Value": "A", "Aliases": ["a"]}, "EntityPages": [], "SearchResults": []}\n',
)  # fmt: skip
_MARKDOWN = (
    "---\ntitle: Ships\ntags: [a, b]\n---\n# Ships\n\n| Ship | Built |\n|---|---|\n| Tern | 1998 |\n\n- One\n\n```\ncode\n```\n",
    "+++\ntitle = 'A'\n[b]\nc = [1, 2.5]\n+++\n# A\n\n1. x\n   - y\n\n> q\n\n![i](j) [^1] <b>x</b>\n",
)
_CSV = 'title,text,year\nAda Foah,"It is a town, in ""Ghana"".",1783\nTern,It sails.,1998\n'
_ROWS = (
    '{"title": "Ada Foah", "text": "It is a town.", "metadata": {"year": 1783}}\n'
    '{"title": "B", "sentences": ["One.", "Two."]}\n'
)
_FOREIGN: dict[str, Callable[[Path], object]] = {
    "epub": write_epub,
    "eml": lambda path: path.write_bytes(MAIL),
    **{kind: lambda path, kind=kind: WRITERS[kind](path, sections()[:4]) for kind in ("pdf", "docx", "pptx", "html")},
}
_RESPONSE_ROWS = (
    '{"id": "1", "response": "Ada is in Ghana.", "retrieved_contexts": ["Ada is a town in Ghana.", ""]}\n{"text": "B."}\n',
    '[{"actual_output": "Ada is a town.", "retrieval_context": "Ada is a town in Ghana.\\n\\nIt is old."}]',
)
_LABELLED = '{"id": 3, "claim": "A.", "evidence": ["A.", "B."], "title": "C", "label": "REFUTES", "kind": "x"}\n'
_GOLD_ROW = json.dumps(_supplies._ROW) + "\n"
_BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "A", "text": "It is.", "metadata": {}}\n{"_id": "d2", "text": "B."}\n',
    "queries.jsonl": '{"_id": "q1", "text": "Who?", "metadata": {"answers": ["A"]}}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}
_PATHS = "Where is Ada?\tghana(ghana/)\tada#in#ghana#<end>#ghana\n"
_NT = (
    '<urn:a> <urn:b> <urn:c> .\n_:x <http://www.w3.org/2000/01/rdf-schema#label> "An \\"X\\""@en . # <<( \n',
    "<urn:a> <urn:b> <<( <urn:s> <urn:p> <urn:o> )>> .\n",
)
_TTL = '@prefix e: <urn:e:> .\n@base <http://x/> .\ne:a e:b "text"@de, 3, true, "x"^^e:t ; a [ e:c ( e:d <f> ) ] .\n'
_GRAPH_LINES = (
    (
        '{"pytrace_graph": 1, "recipe": {"extractor": "sentence"}}\n{"id": "1", "title": "A", "sentences": ["A is."], '
        '"triples": [{"head": "A", "relation": "is", "tail": "B", "sentence": 0, "support": 0.5}], "edited": true}\n'
    ),
    '{"head": "A", "relation": "is", "tail": "B"}\n',
)
_SPARQL = (
    (
        'PREFIX e: <urn:e:> SELECT DISTINCT ?x (COUNT(?y) AS ?n) WHERE { e:a e:p/^e:q ?x . ?x e:r* [ e:s "v"@en ] . '
        "OPTIONAL { ?x e:t ?y } FILTER(?y > 3 && !BOUND(?z)) } GROUP BY ?x ORDER BY ?n LIMIT 5"
    ),
    'ASK { { ?a ?b "c" } UNION { ?a ?b ( 1 2 ) } MINUS { ?a e:b ?c } VALUES ?a { <urn:a> } }',
)
_ANSWER = (
    '{"head": {"vars": ["s"]}, "results": {"bindings": [{"s": {"type": "uri", "value": "urn:a"}, '
    '"o": {"type": "literal", "value": "x", "xml:lang": "en", "datatype": "urn:t"}}]}}'
)
_FEATURES = (
    '{"intent": "find", "nodes": ["Ada", "Ghana"], "relations": [{"nodes": ["Ada", "Ghana"], "relation": "is in"}]}'
)
_RESPONSE = (
    "1. Ada is in Ghana.\n2. Ghana speaks English.\nSo the answer is (English).",
    "Step 1: A.\nStep 2) B\nThe final answer is: **C**",
    "I cannot say.",
    "<think>?</think>### Facts\n- **Ada** is [1]\n\n| a | b |\n|---|---|\n| 1 | `c` |\n\n$\\boxed{\\text{d}}$",
    '```json\n{"steps": ["Ada is in Ghana.", {"step": 2}], "answer": "Ghana"}\n```',
)


_CERTIFICATE = (
    '{"id": "1", "question": "Where?", "text": "1. A is in B. So the answer is (B).", "kind": "faithful", "error": null, "steps": ['
    '{"text": "A is in B.", "status": "supported", "match": null, "runner_up": null, "entities": ["A"], "follows": true, "reason": ""}], '
    '"answer": "B", "answers": ["B"], "answer_correct": true, "reached": "B", "edit_distance": 0, "edit_rate": 0.0, '
    '"gold_path": [{"head": "A", "relation": "in", "tail": "B"}], "reason": "", "sample": 0}\n'
)


class Target(NamedTuple):
    """A reader: what it is called with, a file; what it reads well; the ending of that file's name."""

    read: Callable[[Path], object]
    well: Callable[[Path], Sequence[bytes]]
    suffix: str = ""
    within: str = ""  # the file's name in a folder of its own, where the reader is given a folder

    def seeds(self, folder: Path) -> list[bytes]:
        folder.mkdir(parents=True, exist_ok=True)
        return [seed for seed in self.well(folder) if seed]

    def place(self, folder: Path, name: str) -> Path:
        return folder / (self.within or f"{name}{self.suffix}")


def _texts(*texts: str) -> Callable[[Path], Sequence[bytes]]:
    return lambda _: [text.encode() for text in texts]


def _of_text(read: Callable[[str], object], *texts: str) -> Target:
    """A reader of a text that has been decoded, with lone surrogates where its bytes are no UTF-8, as options have them."""
    return Target(lambda path: read(path.read_bytes().decode("utf-8", "surrogateescape")), _texts(*texts), ".txt")


def _all(read: Callable[[Path], Any]) -> Callable[[Path], object]:
    return lambda path: list(read(path))


def _made(write: Callable[[Path], object]) -> Callable[[Path], Sequence[bytes]]:
    def well(folder: Path) -> Sequence[bytes]:
        path = folder / "seed"
        write(path)
        return [path.read_bytes()]

    return well


@cache
def _foreign() -> ForeignReader:
    return ForeignReader(seconds=15.0)  # less than a trial's


def _read_apart(path: Path, suffix: str) -> None:
    """Read a file as the process that does so reads it, which none should end or hold."""
    try:
        _foreign().read(path, SUFFIXES[f".{suffix}"])
    except PytraceError as error:
        if any(words in str(error) for words in ("ended the process", "took more than", "nonsense")):
            raise AssertionError(str(error)) from error
        raise


def _import(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, TripleStore.open(Path(folder) / "graph", mode="create") as graph:
        graph.import_(path)


def _every_demonstration(path: Path) -> None:
    """Read a file as each kind of demonstration; one of them may take it."""
    refused: list[PytraceError] = []
    kinds = [kind for module in (prompts, reasoning) for kind in vars(module).values() if _is_demonstration(kind)]
    for kind in kinds:
        try:
            kind.load(path=path)
        except PytraceError as error:
            refused.append(error)
    if len(refused) == len(kinds):
        raise refused[0]


def _is_demonstration(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, prompts.Demonstration) and kind is not prompts.Demonstration


def _demonstrations(_: Path) -> Sequence[bytes]:
    kinds = (
        prompts.ChainDemonstration,
        prompts.ReaderDemonstration,
        prompts.TripleDemonstration,
        reasoning.QueryDemonstration,
    )
    return [msgspec.json.encode(kind.load()[0]) for kind in kinds]


def _run_of(path: Path) -> None:
    with RunStore(path) as store:
        store.open_run({"model": "tiny", "top": 3}, notes={"data": "questions.jsonl"})
        store.keep_questions([Question("q1", "Where?", ("Ghana",))])
        store.save("bm25", "q1", RunRow("bm25", "q1", "Where?", ("Ghana",), error="none"))
    sqlite3.connect(path).execute("PRAGMA journal_mode = DELETE").connection.close()


def _scored(path: Path) -> None:
    try:
        with RunStore(path) as store:
            score_run(store)
    finally:
        for log in path.parent.glob(f"{path.name}-*"):
            log.unlink()


def _in_run(table: str, column: str, text: str) -> Target:
    """Put a text into the cells of a run, with a checksum that fits."""

    def read(path: Path) -> None:
        run = path.with_name("run.sqlite")
        run.unlink(missing_ok=True)
        _run_of(run)
        with sqlite.connect(str(run)) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", (path.read_bytes().decode("utf-8", "replace"),))
        connection.close()
        _scored(run)

    return Target(read, _texts(text), ".json")


def _discriminated(path: Path) -> None:
    import_module("pytrace.certify.discriminative")._load_runs(path, {"paths": 1}, resume=True)


def _encoder_files(name: str) -> Target:
    def read(path: Path) -> None:
        files = EncoderFiles(path.parent)
        for rules in (files.rules("query", {}), files.rules("passage", {})):
            files.token_ids(["Ada Foah is a town in Ghana.", "a" * 2_000, ""], rules.length)
        files.modules.read_heads()

    def well(folder: Path) -> Sequence[bytes]:
        place = make(folder) / name
        return [place.read_bytes() if place.exists() else b'{"model_max_length": 512}']

    return Target(read, well, within=name)


def _packed(path: Path) -> None:
    packer = Packer(path)
    packer.windows("Where is Ada?", ["[Ada Foah] Ada Foah is a town in Ghana. " * 100, ""])


def _small_tokenizer(_: Path) -> Sequence[bytes]:
    pieces = {
        piece: number for number, piece in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "ada", "is", "##s", "[", "]"))
    }
    tokenizer = Tokenizer(WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return [tokenizer.to_str().encode()]


def _entailment(path: Path) -> None:
    open_entailment(path.parent, threads=1).judge([("Geese fly.", "Geese fly south."), ("", "")])


def _static_encoder(name: str) -> Target:
    def read(path: Path) -> None:
        StaticEncoder(path.parent, cache_bytes=0).encode(["the red house", "a" * 2_000, ""])

    def well(folder: Path) -> Sequence[bytes]:
        tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "the": 1, "red": 2}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.save(str(folder / "tokenizer.json"))
        table = np.arange(8, dtype=np.float16).reshape(2, 4)
        stored = {"embeddings": table, "weights": np.ones(3), "mapping": np.array([0, 1, 1])}
        files = {
            "model.safetensors": save(stored),
            "config.json": b'{"normalize": true, "max_length": 5}',
            "modules.json": b'[{"idx": 0, "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]',
            "config_sentence_transformers.json": b'{"prompts": {"query": "a: "}, "truncate_dim": 3}',
        }
        for each, content in files.items():
            (folder / each).write_bytes(content)
        return [files[name]]

    return Target(read, well, within=name)


def _late_interaction(name: str) -> Target:
    def read(path: Path) -> None:
        files = LateInteractionFiles(path.parent)
        for rules in files.rules.values():
            files.token_ids(["the red house", "a" * 2_000, ""], rules)
        files.read_heads(4, "last_hidden_state")

    def well(folder: Path) -> Sequence[bytes]:
        make(folder)
        (folder / "modules.json").unlink(missing_ok=True)
        (folder / "tokenizer_config.json").write_text('{"mask_token": "[PAD]"}', encoding="utf-8")
        stated = {
            "config_sentence_transformers.json": (
                b'{"query_prefix": "", "document_prefix": "", "query_length": 9, "document_length": 20, "skiplist_words": ["the"], '
                b'"do_query_expansion": false, "prompts": {"query": "a "}}'
            ),
            "artifact.metadata": b'{"query_token_id": "red", "doc_token_id": "red", "query_maxlen": 9, "mask_punctuation": false}',
        }
        (folder / "config_sentence_transformers.json").unlink(missing_ok=True)
        return [stated[name]]

    return Target(read, well, within=name)


def _beir(name: str) -> Target:
    def well(folder: Path) -> Sequence[bytes]:
        (folder / "qrels").mkdir(exist_ok=True)
        for each, text in _BEIR.items():
            (folder / each).write_text(text, encoding="utf-8")
        return [_BEIR[name].encode()]

    return Target(lambda path: list(read_questions(path.parents[name.count("/")])), well, within=name)


def _catalog(_: Path) -> Sequence[bytes]:
    model = msgspec.structs.replace(known_models.BUILT_IN.models[0], name="mine")
    return [msgspec.json.encode(known_models.Catalog((model,), ()))]


def _listed_questions(folder: Path) -> Sequence[bytes]:
    (folder / "weights.json").write_text("{}")
    return [save_question_hashes(folder / "weights.json", ["Where?", "Who?"], made_by="us").read_bytes()]


def _rewritten(_: Path) -> Sequence[bytes]:
    source = rewritten.Source("/models/a.gguf", 3, 5, "0" * 64)
    figures = rewritten.Figures("q4_0", 3, 1.5, {1: 2.5}, 0.5, 3, 4, 1.0)
    words = ["q4_0", "faster", (figures,), "f16", "letters", "cpu", 2, "0.3", "libraries", "2026-01-01"]
    return [msgspec.json.encode(rewritten.Record(source, *words))]  # type: ignore[arg-type]


def _graph(path: Path) -> None:
    weight_files(path)
    OnnxGraph(path).run([[1, 2, 3], [1]], 0)


def _onnx(folder: Path) -> Sequence[bytes]:
    make(folder / "model")
    return [next((folder / "model").glob("**/*.onnx")).read_bytes()]


def _safetensors(_: Path) -> Sequence[bytes]:
    return [save({"w": np.ones((3, 4), np.float16), "b": np.ones(4, np.float32)})]


TARGETS: dict[str, Target] = {
    **{
        f"documents {suffix}": Target(_all(read_documents), _texts(*texts), f".{suffix}")
        for suffix, texts in {
            "txt": ("A town.\n\nHeading\n\nIt lies there. Dr. X said “no”.\n", "三。四。\n"),
            "md": _MARKDOWN,
            "csv": (_CSV, "Name;Ort\nA;B\n"),
            "tsv": ("text\ttitle\nA\tB\n",),
            "jsonl": (_ROWS, *_EVAL_ROWS),
            "json": (f"[{_EVAL_ROWS[0]}, {_EVAL_ROWS[1]}]", '{"title": "A",\n"text": "B"}'),
        }.items()
    },
    **{
        f"documents {suffix}": Target(partial(_read_apart, suffix=suffix), _made(write), f".{suffix}")
        for suffix, write in _FOREIGN.items()
    },
    "documents jsonl.gz": Target(
        _all(read_documents), lambda _: [gzip.compress(_ROWS.encode() * 3, mtime=0)], ".jsonl.gz"
    ),
    "questions of data sets": Target(_all(read_questions), _texts(*_EVAL_ROWS), ".jsonl"),
    "questions of PathQuestion": Target(_all(partial(read_questions, format="pathquestion")), _texts(_PATHS), ".txt"),
    **{f"BEIR {name}": _beir(name) for name in _BEIR},
    "questions to ask": Target(read_plain_questions, _texts('{"question": "Who?"}\n'), ".jsonl"),
    "gold paths": Target(gold_paths.read_rows, _texts(_GOLD_ROW, _EVAL_ROWS[0]), ".jsonl"),
    "responses": Target(_all(response_files.read_responses), _texts(_GOLD_ROW), ".jsonl"),
    "responses with contexts": Target(_all(read_response_rows), _texts(*_RESPONSE_ROWS), ".jsonl"),
    "labelled claims": Target(_all(read_labelled), _texts(_LABELLED), ".jsonl"),
    "runs side by side": Target(
        lambda path: read_run_tables([path.parent]), _texts(_CERTIFICATE), within="certificates-cot.jsonl"
    ),
    "judgements": Target(
        _discriminated, _texts('{"pytrace_discriminate": 1, "settings": {"paths": 1}, "modes": {}}\n'), ".jsonl"
    ),
    **{
        f"{what} {suffix}": Target(read, _texts(*texts), f".{suffix}")
        for suffix, texts in {"nt": _NT, "ttl": (_TTL, *_NT), "tsv": ("a\tb\tc\\n\n",), "jsonl": _GRAPH_LINES}.items()
        for what, read in {
            "graph": lambda path: list(read_source(path).triples),
            "graph but for bad lines": lambda path: list(read_source(path, report=ReadReport()).triples),
            "SPARQL store": KnowledgeStore.load,
            "import": _import,
        }.items()
    },
    **{
        f"graph nt{suffix}": Target(
            lambda path: list(read_source(path).triples),
            lambda _, pack=pack: [pack(_NT[0].encode() * 3)],
            f".nt{suffix}",
        )
        for suffix, pack in {".gz": partial(gzip.compress, mtime=0), ".bz2": bz2.compress}.items()
    },
    "graph tsv.bz2": Target(
        lambda path: list(read_source(path).triples), lambda _: [bz2.compress(b'a\tb\tc\\"\n' * 9)], ".tsv.bz2"
    ),
    "edited triples": Target(read_triples, _texts("a\tb\tc\n"), ".tsv"),
    "labels": Target(_all(partial(read_pairs, what="entity")), _texts("urn:a\tAda\n"), ".tsv"),
    "SPARQL": _of_text(rewrite, *_SPARQL),
    "queries of models": _of_text(parse_query, "<Ghana; capital; ?>", "SELECT ?x WHERE { e:/Ghana/ r:/capital/ ?x }"),
    "answers of endpoints": Target(lambda path: read_rows(path.read_bytes(), "x"), _texts(_ANSWER), ".json"),
    "triples of models": _of_text(lambda text: parse_triples(text, "Ada"), "<Ada; is in; Ghana>\n<speaks; English>\n"),
    "triples of questions": _of_text(
        lambda text: read_written_triples(text, "Where is Ada?", most=5), "<Ada; is in; ?>\n(Ada, in, Ghana)\n"
    ),
    "features of models": _of_text(lambda text: read_features(text, "Is Ada in Ghana?"), _FEATURES),
    "responses of models": _of_text(
        lambda text: (parse_response(text), parse_response(text, form="sentences"), blanked(text)), *_RESPONSE
    ),
    "sentences": _of_text(
        lambda text: [split_sentences(text, language=None), detect_language(text)], *_RESPONSE, "三。「四」と。"
    ),
    "phrases": _of_text(
        lambda text: [content_phrases(text), sentence_subject(text)], 'Ada (A.F.) is a "Danish" fort of May 1, 1783.'
    ),
    "filters": _of_text(lambda text: parse_filters([text]), "date>=2020-01-01", "author=Venn"),
    "settings": _of_text(
        lambda text: method_settings(parse_method(text), CAPABLE), "trace:chains=3,link_weight=0.5", "dense:top=3"
    ),
    "files of settings": Target(lambda path: _settings_of(f"@{path}"), _texts('{"settings": ["top=3"]}'), ".json"),
    "configuration": Target(
        lambda path: list(configuration.check(program, configuration._read(path, found=True))),
        _texts('[defaults]\nthreads = 1\n[serve]\nport = 8765\nread-only = true\n[index.build]\ndocs = ["papers"]\n'),
        ".toml",
    ),
    "demonstrations": Target(_every_demonstration, _demonstrations, ".jsonl"),
    "catalog of models": Target(lambda path: known_models.load(path.parent), _catalog, within="catalog.json"),
    "record of pulled files": Target(
        lambda path: _read_record(path.parent), _texts('{"a.onnx": {"sha256": "00", "size": 3}}'), within=_RECORD
    ),
    "record of rewritten models": Target(lambda path: rewritten.read(path.parent), _rewritten, within=rewritten.RECORD),
    "weights of hops": Target(
        lambda path: load_weights(path.parent), lambda _: [msgspec.json.encode(load_weights())], within=OWN_WEIGHTS
    ),
    "questions of weights": Target(
        lambda path: load_question_hashes(path.with_name("weights.json")),
        _listed_questions,
        within="weights.questions.json",
    ),
    "tokenizers": _encoder_files("tokenizer.json"),
    "tokenizers of the small model": Target(_packed, _small_tokenizer, within="tokenizer.json"),
    "configurations of encoders": _encoder_files("tokenizer_config.json"),
    "modules of encoders": _encoder_files("modules.json"),
    "configurations of models of entailment": Target(
        _entailment, lambda folder: [(write_model(folder) / "config.json").read_bytes()], within="config.json"
    ),
    "static encoders": _static_encoder("model.safetensors"),
    "configurations of static encoders": _static_encoder("config.json"),
    "modules of static encoders": _static_encoder("modules.json"),
    "prompts of static encoders": _static_encoder("config_sentence_transformers.json"),
    "late interaction": _late_interaction("config_sentence_transformers.json"),
    "late interaction, Stanford's": _late_interaction("artifact.metadata"),
    "ONNX": Target(_graph, _onnx, ".onnx"),
    "safetensors": Target(read_tensors, _safetensors, ".safetensors"),
    "runs": Target(_scored, _made(_run_of), ".sqlite"),
    "settings of runs": _in_run("run", "settings", '{"model": "tiny"}'),
    "results of runs": _in_run(
        "result", "record", '{"method": "bm25", "question_id": "q1", "question": "?", "answers": ["A"]}'
    ),
    "questions of runs": _in_run("question", "record", '{"id": "q1", "question": "Where?", "answers": ["A"]}'),
}
