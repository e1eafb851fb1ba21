"""``pytrace ask``: answer a question from documents, with the chains and sentences it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.answer_text import answer_document, print_answer
from pytrace.cli.certifying import print_certificate
from pytrace.cli.knowledge import knowledge_options
from pytrace.cli.loading import MethodType, model_options, settings_option
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import Certificate
    from pytrace.documents import ReadReport
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Answer, Document

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
    models: Engine,
    as_json: bool,
) -> None:
    """Answer QUESTION from documents, with the reasoning chains and the sentences they came from.

    Give --docs, --kg, or both: with --kg the units are the graph's triples, and no document is read by the model again. The
    variants of ks-llm and the chains of thought answer without documents, too. The method cok asks the knowledge base of --kb
    where its thoughts disagree. With --claim the answer is SUPPORTS, REFUTES or NOT ENOUGH INFO.
    """
    from pytrace.documents import ReadReport as Report
    from pytrace.engine.asking import answer_one, certify_chains, read_corpus
    from pytrace.methods.baselines import GOLD
    from pytrace.methods.catalog import parse_method

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
    report = Report()
    documents = [] if docs is None and index is not None else read_corpus(docs, kg, needed=method, report=report)
    print_skipped(report)
    certificates: list[Certificate] = []

    def check(answerer: object, answer: Answer, chosen: list[Document]) -> None:
        if certify:
            certificates.extend(certify_chains(answerer, answer, chosen, facts, models, common.progress))

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
        progress=common.progress,
    )
    if as_json:
        told = answer_document(answer, chosen, explain=explain)
        common.print_json({**told, "certificates": certificates} if certify else told)
        return
    print_answer(answer, chosen, explain=explain)
    for one in certificates:
        print_certificate(one)


def print_skipped(report: ReadReport) -> None:
    """Name on stderr what was passed over while documents were read."""
    for skipped in report.skipped[:_NAMED]:
        click.echo(f"pytrace: skipped {skipped.source} ({skipped.title}): {skipped.reason}", err=True)
    more = report.empty + report.duplicates + report.other_files - _NAMED
    if more > 0:
        click.echo(f"pytrace: skipped {more} more", err=True)
