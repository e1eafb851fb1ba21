"""``pytrace ask``: answer a question from documents, with the chains and sentences it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytrace.cli import common
from pytrace.cli.answer_text import answer_document, print_answer
from pytrace.cli.certify import print_certificate
from pytrace.cli.commands import Command, Result, argument, option
from pytrace.cli.shared_options import CHECKER, KNOWLEDGE, MODELS, READING, SETTINGS, MethodType
from pytrace.documents.reader import ReadOptions
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.documents import ReadReport
    from pytrace.engine.corpus import Corpus
    from pytrace.methods.catalog import MethodName

# Of skipped documents; more would bury the answer.
_NAMED = 10


class Ask(Command):
    """Answer QUESTION, or those of --questions, from documents, with the reasoning chains and the sentences they came from.

    Give --docs or --index, --kg, or both: with --kg the units are the graph's triples, and no document is read by the model again. The
    variants of ks-llm and the chains of thought answer without documents, too. The method cok asks the knowledge base of --kb
    where its thoughts disagree. With --claim the answer is SUPPORTS, REFUTES or NOT ENOUGH INFO: by the texts of --docs or --index,
    each part of the claim beside the sentences that speak of it, unless --method or --kb names another judge.
    """

    question: str | None = argument(required=False)
    questions: Path | None = option(
        "Answer many in one batch: a question a line, or JSON Lines with a field of this name.", metavar="FILE"
    )
    claim: bool = option("QUESTION is a claim: say whether it holds.")
    docs: Path | None = option("Documents: a file or a folder.")
    reading: ReadOptions = READING
    kg: Path | None = option("A knowledge graph made by 'pytrace kg build'.")
    method: MethodName | None = option(
        "How to answer: trace, trace-doc, ks-llm, scope-coe, rag, dense, bm25, rrf, cross-encoder, cot, cot-sc, verify-and-edit, "
        "cok and others.  [default: trace; for a claim cok with --kb, the texts of --docs, --kg or --index, else standard]",
        type=MethodType(),
        metavar="NAME[:SETTING=VALUE,…]",
    )
    retrieve: int = option("From a larger corpus, use this many documents nearest to the question.", ge=1, default=20)
    index: Path | None = option(
        "An index that 'pytrace index build' made, in place of --docs: the passages are found across all of it.",
        metavar="DIR",
    )
    sentence_index: Path | None = option(
        "For ks-llm, ks-s and ks-q: select sentences from all of --docs, kept with their vectors in DIR for later questions.",
        metavar="DIR",
    )
    certify: bool = option(
        "Check what the answer says against the documents, claim by claim, and its chains or thoughts against a graph, where there is "
        "one: are the steps facts, do they lead to the answer?"
    )
    facts: Path | None = option(
        "For --certify: the graph to check against, as for 'pytrace certify'.  [default: the chains' own triples, if they have any]",
        metavar="KG",
    )
    checker: str | None = CHECKER
    min_confidence: float | None = option(
        "Answer only what is right with this probability; else that the evidence does not say. It takes a reader that chooses of the "
        "evidence: '--set reading=span', the tiny profile's way.",
        ge=0,
        le=1,
        metavar="P",
    )
    explain: bool = option("Show all chains, votes, tokens and seconds.")
    knowledge: KnowledgeOptions = KNOWLEDGE
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def check(self) -> None:
        if (self.question is None) == (self.questions is None):
            raise InputError("there must be one QUESTION, or --questions FILE with several; give either")
        if self.question is not None and not self.question.strip():
            raise InputError("the question is empty; ask something")
        if self.index is not None and self.docs is not None:
            raise InputError("--index has its documents already; leave out --docs, or index them: 'pytrace index add'")
        if self.facts is not None and not self.certify:
            raise InputError("--facts is the graph that --certify checks against; give both")
        if self.claim and self.certify:
            raise InputError(
                "--certify checks how an answer was reached, and a claim is judged at once; leave out either"
            )
        if self.claim and self.min_confidence is not None:
            raise InputError(
                "--min-confidence is how likely an answer must be right, and a claim is judged; leave out either"
            )
        if self.settings and self._judged_by_texts():
            raise InputError(
                "--set changes a method, and the claim is judged by texts; name one with --method, or leave out --set"
            )
        if self.checker is not None and not self.certify and not self._judged_by_texts():
            raise InputError(
                "--checker decides about claims beside texts; give --certify, or --claim with --docs or --index and no other judge"
            )

    def run(self) -> Result:
        from pytrace.cli.certify_claims import print_claims
        from pytrace.documents import ReadReport
        from pytrace.engine.asking import answer_all, judge_all, read_questions
        from pytrace.methods.baselines import GOLD
        from pytrace.methods.catalog import parse_method

        method = self.method
        if method is None:
            method = parse_method("trace" if not self.claim else "standard" if self.knowledge.kb is None else "cok")
        if method.name == GOLD:
            raise InputError(
                "gold reads the documents that a data set says are right, which 'pytrace eval' alone knows; use rag"
            )
        self.knowledge.check([method])
        questions = [self.question] if self.questions is None else read_questions(self.questions)
        asked_for = [question for question in questions if question is not None]
        report = ReadReport()
        by_texts, least = self._judged_by_texts(), self.min_confidence
        local = not by_texts and not self.models.asks_servers
        corpus = self._corpus(method, report, at_first=self.models.preload if local else lambda: None)
        common.print_skipped(report, _NAMED)
        asked = (
            judge_all(asked_for, corpus, models=self.models, checker=self.checker, where=self.reading.get("where", ()))
            if by_texts
            else answer_all(
                asked_for,
                corpus,
                kg=self.kg,
                method=method,
                retrieve=self.retrieve,
                sentence_index=self.sentence_index,
                where=self.reading.get("where", ()),
                settings=self.settings if least is None else (*self.settings, f"min_confidence={least}"),
                models=self.models,
                claim=self.claim,
                knowledge=self.knowledge,
                certify=self.certify,
                facts=self.facts,
                checker=self.checker,
                progress=common.progress,
            )
        )

        def show_text() -> None:
            for number, one in enumerate(asked):
                if self.questions is not None:
                    common.print_styled(f"{chr(10) if number else ''}Question: {one.answer.question}", "bold")
                print_answer(one.answer, one.documents, explain=self.explain)
                for certificate in one.certificates:
                    print_certificate(certificate)
                print_claims(one.claims)

        documents = []
        for one in asked:
            document = answer_document(one.answer, one.documents, explain=self.explain)
            if self.certify:
                document["certificates"] = one.certificates
            if self.certify or by_texts:
                document["claims"] = one.claims
            documents.append(document)
        return Result(documents[0] if self.questions is None else {"answers": documents}, show_text)

    def _judged_by_texts(self) -> bool:
        """Whether a claim is judged by texts, and not by a language model."""
        has_texts = self.docs is not None or self.index is not None or self.kg is not None
        others = (self.method, self.knowledge.kb, self.sentence_index)
        return self.claim and has_texts and others == (None, None, None)

    def _corpus(self, method: MethodName, report: ReadReport, *, at_first: Callable[[], None]) -> Corpus:
        """Return what is asked: an index, or the documents that are read now; `at_first` is called once there is something."""
        from pytrace.engine.asking import read_corpus
        from pytrace.engine.corpus import Corpus

        if self.index is not None:
            corpus = Corpus.open(self.index)
            at_first()
            return corpus
        # An index of sentences that is there already needs no documents.
        if self.docs is None and self.sentence_index is not None:
            return Corpus(())
        return Corpus(read_corpus(self.docs, self.kg, needed=method, report=report, at_first=at_first, **self.reading))
