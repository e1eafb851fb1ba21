"""``pytrace ask``: answer a question from documents, with the chains and sentences it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytrace.cli import common
from pytrace.cli.answer_text import answer_document, print_answer
from pytrace.cli.certifying import print_certificate
from pytrace.cli.options import Options, Result, argument, option, takes
from pytrace.cli.shared_options import KNOWLEDGE, MODELS, SETTINGS, MethodType
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import Certificate
    from pytrace.methods.catalog import MethodName
    from pytrace.records import Answer, Document

# More would bury the answer.
_NAMED = 10


class _Options(Options):
    question: str = argument()
    claim: bool = option("QUESTION is a claim: say whether it holds.")
    docs: Path | None = option("Documents: a file or a folder.")
    kg: Path | None = option("A knowledge graph made by 'pytrace kg build'.")
    method: MethodName | None = option(
        "How to answer: trace, trace-doc, ks-llm, scope-coe, rag, dense, bm25, rrf, cross-encoder, cot, cot-sc, verify-and-edit, "
        "cok and others.  [default: trace; for a claim cok with --kb, else standard]",
        type=MethodType(),
        metavar="NAME[:SETTING=VALUE,…]",
    )
    retrieve: int = option("From a larger corpus, use this many documents nearest to the question.", ge=1, default=20)
    index: Path | None = option(
        "For ks-llm, ks-s and ks-q: select sentences from all of --docs, kept with their vectors in DIR for later questions.",
        metavar="DIR",
    )
    certify: bool = option(
        "Check each chain (or the thoughts) against a knowledge graph: are the steps facts, do they lead to the answer?"
    )
    facts: Path | None = option(
        "For --certify: the graph to check against, as for 'pytrace certify'.  [default: the chains' own triples, else "
        "triples that the language model finds in their documents]",
        metavar="KG",
    )
    explain: bool = option("Show all chains, votes, tokens and seconds.")
    knowledge: KnowledgeOptions = KNOWLEDGE
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def check(self) -> None:
        if not self.question.strip():
            raise InputError("the question is empty; ask something")
        if self.facts is not None and not self.certify:
            raise InputError("--facts is the graph that --certify checks against; give both")
        if self.claim and self.certify:
            raise InputError(
                "--certify checks how an answer was reached, and a claim is judged at once; leave out either"
            )


@click.command()
@takes(_Options)
def ask(options: _Options) -> Result:
    """Answer QUESTION from documents, with the reasoning chains and the sentences they came from.

    Give --docs, --kg, or both: with --kg the units are the graph's triples, and no document is read by the model again. The
    variants of ks-llm and the chains of thought answer without documents, too. The method cok asks the knowledge base of --kb
    where its thoughts disagree. With --claim the answer is SUPPORTS, REFUTES or NOT ENOUGH INFO.
    """
    from pytrace.documents import ReadReport
    from pytrace.engine.asking import answer_one, certify_chains, read_corpus
    from pytrace.methods.baselines import GOLD
    from pytrace.methods.catalog import parse_method

    method = options.method
    if method is None:
        method = parse_method("trace" if not options.claim else "standard" if options.knowledge.kb is None else "cok")
    if method.name == GOLD:
        raise InputError(
            "gold reads the documents that a data set says are right, which 'pytrace eval' alone knows; use rag"
        )
    options.knowledge.check([method])
    report = ReadReport()
    # An index that is there already needs no documents.
    indexed = options.docs is None and options.index is not None
    documents = [] if indexed else read_corpus(options.docs, options.kg, needed=method, report=report)
    common.print_skipped(report, _NAMED)
    certificates: list[Certificate] = []

    def check(answerer: object, answer: Answer, chosen: list[Document]) -> None:
        if options.certify:
            certified = certify_chains(answerer, answer, chosen, options.facts, options.models, common.progress)
            certificates.extend(certified)

    chosen, answer = answer_one(
        options.question,
        documents,
        kg=options.kg,
        method=method,
        retrieve=options.retrieve,
        index=options.index,
        settings=options.settings,
        models=options.models,
        claim=options.claim,
        knowledge=options.knowledge,
        check=check,
        progress=common.progress,
    )

    def show_text() -> None:
        print_answer(answer, chosen, explain=options.explain)
        for certificate in certificates:
            print_certificate(certificate)

    document = answer_document(answer, chosen, explain=options.explain)
    return Result({**document, "certificates": certificates} if options.certify else document, show_text)
