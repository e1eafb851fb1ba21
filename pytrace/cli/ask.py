"""``pytrace ask``: answer a question from documents, with the chains and sentences it rests on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.answer_text import answer_document, print_answer
from pytrace.cli.certifying import print_certificate
from pytrace.cli.knowledge import KnowledgeOptions, knowledge_options
from pytrace.cli.loading import MethodType, ModelOptions, model_options, settings_option
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import Certificate
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Answer, Document, Triple
    from pytrace.retrieval import SentenceIndex

# More would bury the answer.
_NAMED = 10


@click.command()
@click.argument("question")
@click.option("--claim", is_flag=True, help="QUESTION is a claim: say whether it holds.")
@click.option("--docs", type=click.Path(path_type=Path), help="Documents: a file or a folder.")
@click.option("--kg", type=click.Path(path_type=Path), help="A knowledge graph made by 'pytrace kg build'.")
@click.option(
    "--method",
    type=MethodType(),
    metavar="NAME[:SETTING=VALUE,…]",
    help="How to answer: trace, trace-doc, ks-llm, scope-coe, rag, dense, bm25, rrf, cross-encoder, cot, cot-sc, verify-and-edit, "
    "cok and others.  [default: trace; for a claim cok with --kb, else standard]",
)
@click.option(
    "--retrieve",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="From a larger corpus, use this many documents nearest to the question.",
)
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="For ks-llm, ks-s and ks-q: select sentences from all of --docs, kept with their vectors in DIR for later questions.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Check each chain (or the thoughts) against a knowledge graph: are the steps facts, do they lead to the answer?",
)
@click.option(
    "--facts",
    type=click.Path(path_type=Path),
    metavar="KG",
    help="For --certify: the graph to check against, as for 'pytrace certify'.  [default: the chains' own triples, else "
    "triples that the language model finds in their documents]",
)
@click.option("--explain", is_flag=True, help="Show all chains, votes, tokens and seconds.")
@knowledge_options
@settings_option
@model_options
@common.json_option
def ask(
    *,
    question: str,
    claim: bool,
    docs: Path | None,
    kg: Path | None,
    method: MethodName | None,
    retrieve: int,
    index: Path | None,
    certify: bool,
    facts: Path | None,
    explain: bool,
    knowledge: KnowledgeOptions,
    settings: tuple[str, ...],
    models: ModelOptions,
    as_json: bool,
) -> None:
    """Answer QUESTION from documents, with the reasoning chains and the sentences they came from.

    Give --docs, --kg, or both: with --kg the units are the graph's triples, and no document is read by the model again. The
    variants of ks-llm and the chains of thought answer without documents, too. The method cok asks the knowledge base of --kb
    where its thoughts disagree. With --claim the answer is SUPPORTS, REFUTES or NOT ENOUGH INFO.
    """
    from pytrace.methods.catalog import GOLD, parse_method

    if not question.strip():
        raise InputError("the question is empty; ask something")
    if facts is not None and not certify:
        raise InputError("--facts is the graph that --certify checks against; give both")
    if claim and certify:
        raise InputError("--certify checks how an answer was reached, and a claim is judged at once; leave out either")
    if method is None:
        method = parse_method("trace" if not claim else "standard" if knowledge.kb is None else "cok")
    if method.name == GOLD:
        raise InputError(
            "gold reads the documents that a data set says are right, which 'pytrace eval' alone knows; use rag"
        )
    knowledge.check([method])
    documents = [] if docs is None and index is not None else read_corpus(docs, kg, needed=method)
    certificates: list[Certificate] = []

    def check(answerer: object, answer: Answer, chosen: list[Document]) -> None:
        if certify:
            certificates.extend(certify_chains(answerer, answer, chosen, facts, models))

    chosen, answer = answer_one(
        question,
        documents,
        kg=kg,
        method=method,
        retrieve=retrieve,
        index=index,
        settings=settings,
        models=models,
        claim=claim,
        knowledge=knowledge,
        check=check,
    )
    if as_json:
        told = answer_document(answer, chosen, explain=explain)
        common.print_json({**told, "certificates": certificates} if certify else told)
        return
    print_answer(answer, chosen, explain=explain)
    for one in certificates:
        print_certificate(one)


def certify_chains(
    answerer: object, answer: Answer, documents: list[Document], facts: Path | None, models: ModelOptions
) -> list[Certificate]:
    """Certify what an answer rests on: by a given graph, by the one that its chains were made of, or by its documents'."""
    from pytrace.certify.answer_certificates import certify_answer
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.trace.top_triples import TopTriples
    from pytrace.methods.trace.trace import Trace

    if facts is not None:
        return certify_answer(KnowledgeBase.load(facts, models.encoder), models.encoder, answer)
    graph = answerer.graph.iterate_triples() if isinstance(answerer, Trace | TopTriples) else ()
    triples = [triple for triple in graph if triple.relation] or extract_triples(answer, documents, models)
    if not triples:
        raise InputError(
            f"there is no triple to certify the answer of {answer.method} by, neither its own nor in its "
            f"{len(documents)} documents; give --facts KG"
        )
    return certify_answer(KnowledgeBase.in_memory(triples, models.encoder), models.encoder, answer)


def extract_triples(answer: Answer, documents: list[Document], models: ModelOptions) -> list[Triple]:
    """Let the language model find triples in the documents that an answer rests on."""
    from pytrace.methods.profiles import trace_settings
    from pytrace.methods.trace.trace import make_extractor
    from pytrace.triples.extraction import build_graph
    from pytrace.triples.graph import KnowledgeGraph

    used = [document for document in documents if document.id in answer.evidence.document_ids] or documents
    if not used:
        return []
    extractor = make_extractor(models.model, models.encoder, trace_settings("trace", models.llm, ["unit=triple"]))
    with (
        common.progress("extracting triples to certify by", len(used)) as advance,
        KnowledgeGraph(recipe=extractor.recipe) as graph,
    ):
        build_graph(graph, extractor, used, done=lambda _: advance())
        return [triple for triple in graph.iterate_triples() if triple.relation]


def read_corpus(docs: Path | None, kg: Path | None, *, needed: MethodName) -> list[Document]:
    """Read the documents that a method needs, and name what was passed over on stderr."""
    from pytrace.documents import ReadReport, read_documents
    from pytrace.methods.catalog import NEEDS_NO_DOCUMENTS
    from pytrace.triples.graph import KnowledgeGraph

    if docs is not None:
        report = ReadReport()
        documents = list(read_documents(docs, report=report))
        for skipped in report.skipped[:_NAMED]:
            click.echo(f"pytrace: skipped {skipped.source} ({skipped.title}): {skipped.reason}", err=True)
        more = report.empty + report.duplicates + report.other_files - _NAMED
        if more > 0:
            click.echo(f"pytrace: skipped {more} more", err=True)
        return documents
    if kg is not None:
        with KnowledgeGraph.open(kg, mode="read") as graph:
            return list(graph.documents())
    if needed.name in NEEDS_NO_DOCUMENTS:
        return []
    raise InputError(f"there is nothing that {needed.name} could answer from; give --docs FILE|FOLDER or --kg DIR")


def answer_one(
    question: str,
    documents: list[Document],
    *,
    kg: Path | None,
    method: MethodName,
    retrieve: int,
    index: Path | None,
    settings: tuple[str, ...],
    models: ModelOptions,
    claim: bool = False,
    knowledge: KnowledgeOptions,
    check: Callable[[object, Answer, list[Document]], object] = lambda *_: None,
) -> tuple[list[Document], Answer]:
    """Retrieve, answer, and show on stderr how far it is; `check` sees the method while its graph is open, the answer, and what it was given."""
    from pytrace.methods.catalog import check_overrides, make_method
    from pytrace.methods.cok.fact_checking import ClaimMethod
    from pytrace.retrieval import nearest_documents
    from pytrace.triples.graph import KnowledgeGraph

    own = check_overrides([method], models.llm, settings)[method.name]
    chosen = documents
    if index is None and len(documents) > retrieve:
        chosen = nearest_documents(question, documents, models.encoder, retrieve)
    with (
        common.progress("extracting triples", len(chosen)) as advance,
        KnowledgeGraph.open(kg, mode="read") if kg is not None else nullcontext() as graph,
        open_index(index, documents, models) if index is not None else nullcontext() as sentences,
    ):
        answerer = make_method(
            method,
            models.model,
            lambda: models.encoder,
            models.llm,
            own,
            graph=graph,
            extracted=lambda _: advance(),
            index=sentences,
            knowledge=knowledge.opener(models),
            cross_encoder=lambda: models.cross_encoder,
        )
        if not claim:
            answer = answerer.answer([question], [chosen])[0]
        elif isinstance(answerer, ClaimMethod):
            answer = answerer.judge([question], [chosen])[0]
        else:
            raise InputError(f"{method.label} cannot judge claims; use standard or cok")
        check(answerer, answer, chosen)
    if len(chosen) < len(documents):
        note = f"used the {len(chosen)} documents nearest to the question, of {len(documents)}"
        answer = msgspec.structs.replace(answer, notes=(*answer.notes, note))
    return chosen, answer


def open_index(directory: Path, documents: list[Document], models: ModelOptions) -> SentenceIndex:
    """Open an index of sentences, or build it if it is not there, and add the documents that it lacks."""
    from pytrace.retrieval import SentenceIndex

    if not documents:
        return SentenceIndex.open(directory, models.encoder)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        index = SentenceIndex.build(directory, (), models.encoder)
    else:
        index = SentenceIndex.open(directory, models.encoder, mode="write")
    try:
        index.add_documents(documents)
    except BaseException:
        index.close()
        raise
    return index
