"""``pytrace ask``: answer a question from documents, with the sentences that lead to the answer."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, option
from pytrace.cli.result_text import print_result
from pytrace.cli.shared_options import CHECKER, KNOWLEDGE, MODELS, READING, SETTINGS, MethodType
from pytrace.documents.reader import ReadOptions
from pytrace.engine.corpus import Corpus, IndexedCorpus
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.engine.running import DEFAULT_METHOD, Resources
from pytrace.errors import InputError
from pytrace.results import Check, Request

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName

# Of skipped documents; more would bury the answer.
_NAMED = 10
# Passages from which an index is worth a remark: they take some seconds to embed.
_WORTH_INDEXING = 200
_STAGES = {"search": "reading", "evidence": "reading", "answer": "answering"}


class Ask(Command):
    """Answer QUESTION, or those of --questions, from documents, with the sentences that lead to the answer.

    Give --docs or --index, --kg, or both. With --kg the units are the graph's triples, and no language model extracts them again. The
    variants of ks-llm and the chains of thought also answer without documents. The method cok queries the knowledge base of --kb
    if its thoughts disagree. With --claim the answer is SUPPORTS, REFUTES or NOT ENOUGH INFO: each part of the claim is compared with
    the texts of --docs or --index, unless --method or --kb names another judge.
    """

    question: str | None = argument(required=False)
    questions: Path | None = option(
        "Answer many questions in one batch: one per line, or JSON Lines with the field `question`.", metavar="FILE"
    )
    claim: bool = option("QUESTION is a claim: say whether it holds.")
    docs: tuple[Path, ...] = option("Documents: a file or a folder. May be repeated.")
    reading: ReadOptions = READING
    kg: Path | None = option("A knowledge graph made by 'pytrace kg build'.")
    method: MethodName | None = option(
        "How to answer: hops, trace, trace-doc, ks-llm, scope-coe, rag, dense, bm25, rrf, cross-encoder, cot, cot-sc, verify-and-edit, "
        "cok and others.  [default: hops; for a claim cok with --kb, the texts of --docs, --kg or --index, else standard]",
        type=MethodType(),
        metavar="NAME[:SETTING=VALUE,…]",
    )
    retrieve: int = option("Number of passages for the method, those nearest to the question.", ge=1, default=20)
    index: Path | None = option(
        "An index that 'pytrace index build' made, instead of --docs; all of it is searched.",
        metavar="DIR",
    )
    sentence_index: Path | None = option(
        "For ks-llm, ks-s and ks-q: select sentences from all of --docs, and keep them with their vectors in DIR for later questions.",
        metavar="DIR",
    )
    certify: bool = option(
        "Check the answer: its claims against the documents, and the steps of its chains or thoughts against a graph, if there is one."
    )
    facts: Path | None = option(
        "For --certify: the graph to check against, as for 'pytrace certify'.  [default: the chains' own triples, if they have any]",
        metavar="KG",
    )
    checker: str | None = CHECKER
    min_confidence: float | None = option(
        "Confidence below which no answer is given. Answers that a language model writes ('--set reading=free') have no confidence.  "
        "[default: 0.15]",
        ge=0,
        le=1,
        metavar="P",
    )
    explain: bool = option("Show all chains, votes, tokens, seconds and replaced parts of the method.")
    knowledge: KnowledgeOptions = KNOWLEDGE
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def check(self) -> None:
        if (self.question is None) == (self.questions is None):
            raise InputError("there must be one QUESTION, or --questions FILE with several; give either")
        if self.question is not None and not self.question.strip():
            raise InputError("the question is empty; ask something")
        if self.index is not None and self.docs:
            raise InputError("--index has its documents already; leave out --docs, or index them: 'pytrace index add'")
        if self.facts is not None and not self.certify:
            raise InputError("--facts requires --certify; give both")
        if self.claim and self.certify:
            raise InputError(
                "--certify checks how an answer was reached, and --claim gives only a verdict; leave one of them out"
            )
        if self.claim and self.min_confidence is not None:
            raise InputError("--min-confidence applies to answers, not to verdicts on a --claim; leave one of them out")
        if self.settings and self._judged_by_texts():
            raise InputError(
                "--set changes a method, and texts judge this claim; name a method with --method, or leave out --set"
            )
        if self.checker is not None and not self.certify and not self._judged_by_texts():
            raise InputError(
                "--checker judges claims against texts; give --certify, or --claim with --docs or --index and no other judge"
            )

    def run(self) -> Output:
        from pytrace.engine.questions import read_questions
        from pytrace.methods.catalog import parse_method, substitutions

        by_texts = self._judged_by_texts()
        method = self.method
        if method is None and self.claim and not by_texts:
            method = parse_method("standard" if self.knowledge.kb is None else "cok")
        needed = parse_method(DEFAULT_METHOD) if method is None else method
        self.knowledge.check([needed])
        questions = [self.question or ""] if self.questions is None else read_questions(self.questions)
        requests = [
            Request(
                question=question,
                task="judge" if self.claim else "answer",
                method="" if method is None else method.label,
                settings=self.settings,
                where=tuple(self.reading.get("where", ())),
                passages=self.retrieve,
                check=self.certify,
                min_confidence=self.min_confidence,
            )
            for question in questions
        ]
        with ExitStack() as opened:
            status = opened.enter_context(common.spinner("reading documents"))
            corpus = self._corpus(needed)
            if isinstance(corpus, Corpus) and not isinstance(corpus, IndexedCorpus) and len(corpus) > _WORTH_INDEXING:
                common.remark(
                    f"embedding {len(corpus):,} passages for this call; run 'pytrace index build' to embed them once"
                )
            resources = self._resources(corpus, opened)
            status("searching")
            results = self.models.run(
                requests, corpus, resources=resources, on_event=lambda stage, *_: status(_STAGES.get(stage, ""))
            )
        for result in results:
            if self.certify and not result.abstained and result.check == Check():
                raise InputError(
                    f"there is nothing to certify the answer of {result.method} by: it has no triples, and no claims to compare with "
                    "documents; give --facts KG"
                )

        def show_text() -> None:
            for number, result in enumerate(results):
                if self.questions is not None:
                    common.print_styled(f"{chr(10) if number else ''}Question: {result.question}", "bold")
                print_result(result, explain=self.explain)
                if result.check is not None:
                    from pytrace.cli.certify import print_certificate
                    from pytrace.cli.certify_claims import print_claims

                    for certificate in result.check.certificates:
                        print_certificate(certificate)
                    print_claims(result.check.claims)
            if self.explain and not by_texts:
                for note in substitutions(needed, self.models.abilities.known(), self.settings):
                    common.print_text(f"Replaced for this language model: {note}")

        return Output(results[0] if self.questions is None else {"results": results}, show_text)

    def _resources(self, corpus: Corpus, opened: ExitStack) -> Resources:
        """Open what methods and checks use besides models and documents; it is closed with the stack."""
        index = graph = facts = checker = None
        if self.sentence_index is not None:
            from pytrace.engine.inputs import open_sentence_index

            index = opened.enter_context(open_sentence_index(self.sentence_index, list(corpus), self.models))
        if self.kg is not None:
            from pytrace.triples.graph import TripleStore

            graph = opened.enter_context(TripleStore.open(self.kg, mode="read"))
        if self.facts is not None:
            from pytrace.kg import KnowledgeBase

            facts = KnowledgeBase.load(self.facts, self.models.encoder)
        if self.certify or self._judged_by_texts():
            from pytrace.engine.claims import open_checker

            checker = open_checker(self.checker, self.models)
        return Resources(
            graph=graph, index=index, knowledge=self.knowledge.opener(self.models), facts=facts, checker=checker
        )

    def _judged_by_texts(self) -> bool:
        """Whether a claim is judged by texts, and not by a language model."""
        has_texts = bool(self.docs) or self.index is not None or self.kg is not None
        others = (self.method, self.knowledge.kb, self.sentence_index)
        return self.claim and has_texts and others == (None, None, None)

    def _corpus(self, method: MethodName) -> Corpus:
        """Return the corpus: an index, or the documents, which are read now while the models load."""
        from pytrace.documents import ReadReport
        from pytrace.engine.inputs import read_corpus

        local = not self._judged_by_texts() and not self.models.asks_servers

        def at_first() -> None:
            if local:
                # The default method asks no language model, or loads it when it does.
                self.models.preload(language_model=method.name != DEFAULT_METHOD)

        if self.index is not None:
            corpus = Corpus.open(self.index)
            at_first()
            return corpus
        # An index of sentences that is there already needs no documents.
        if not self.docs and self.sentence_index is not None:
            return Corpus(())
        report = ReadReport()
        read = Corpus(read_corpus(self.docs, self.kg, needed=method, report=report, at_first=at_first, **self.reading))
        common.print_skipped(report, _NAMED)
        return read
