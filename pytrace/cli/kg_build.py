"""``pytrace kg build``: documents become a knowledge graph on disk, resumable after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, option
from pytrace.cli.shared_options import MODELS, READING, SETTINGS, SKIP_BAD
from pytrace.documents.reader import ReadOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError, StoreError

if TYPE_CHECKING:
    from pytrace.documents import ReadReport
    from pytrace.records import Document, Usage
    from pytrace.triples.extraction import Extraction, Extractor
    from pytrace.triples.graph import SyncReport, TripleStore
    from pytrace.triples.graph.graph_records import GraphStatistics

_SHOWN = 5  # troubled documents on a screen
_LISTED = 1_000  # and in a JSON document; `kg show --failures` lists any number
_TITLE = 200  # characters of a title in a list: some are texts by themselves


class Build(Command):
    """Extract the triples of documents into a graph (sentences or documents with --set unit=...).

    Every document is stored as soon as it is done; a killed build goes on with --resume and repeats none. With --resume a
    changed corpus is followed: new and changed documents are extracted, deleted ones leave the graph.
    """

    docs: tuple[Path, ...] = option("Documents: a file or a folder. May be repeated.", required=True)
    reading: ReadOptions = READING
    skip_bad: bool = SKIP_BAD
    out: Path = option("Directory of the graph.")
    resume: bool = option("Resume or update an existing graph.")
    retry: bool = option("Extract again from documents whose extraction failed.")
    demonstrations: Path | None = option(
        "Your own labeled texts to show the language model, one JSON object per line: title (optional), text and triples "
        "(lists of head, relation and tail).",
        metavar="FILE.jsonl",
    )
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def run(self) -> Output:
        from pytrace.documents import ReadReport, read_documents
        from pytrace.methods.catalog import method_settings
        from pytrace.methods.trace.triple_method import make_extractor
        from pytrace.triples.graph import TripleStore

        out, models = self.out, self.models
        report = ReadReport()
        # The store finds repeated documents, without keeping all that were read in memory.
        documents = read_documents(self.docs, report=report, distinct=False, skip_bad=self.skip_bad, **self.reading)
        shown = () if self.demonstrations is None else (f"triple_demonstrations_file={self.demonstrations}",)
        # The method that makes units and does nothing else with the language model. First, so that --set unit=... has the last word.
        settings = method_settings("top-triples", models.abilities, ("unit=triple", *shown, *self.settings))
        if shown and (settings.unit, settings.extraction) != ("triple", "written"):
            raise InputError(
                "--demonstrations is shown to a language model that writes triples, and none does here; leave it out, or "
                "add --set unit=triple --set extraction=written"
            )
        extractor = make_extractor(models.model, models.encoder, self._as_begun(settings))
        with TripleStore.open(out, recipe=extractor.recipe, mode="resume" if self.resume else "create") as graph:
            changes = self._sync(graph, documents, report)
            common.print_skipped(report)
            outcome = self._extract(graph, extractor)
            statistics = graph.statistics()
        usage = models.model.usage
        document = {
            "graph": out,
            **msgspec.structs.asdict(outcome),
            "changes": changes,
            "skipped": report.skipped,
            "bad": report.bad,
            "statistics": statistics,
            "usage": usage,
        }
        bad = report.bad if self.skip_bad else ()
        return Output(document, lambda: _print(out, outcome, changes, statistics, usage), bad)

    def _as_begun(self, settings: Any) -> Any:
        """Keep titles as heads in a graph that was begun so, before there were others, unless another choice was made."""
        from pytrace.triples.graph import TripleStore

        # What cannot be opened is told where the graph is opened to write.
        with suppress(StoreError):
            if self.resume and settings.heads == "auto":
                with TripleStore.open(self.out, mode="read") as graph:
                    if "heads" not in graph.recipe.options:
                        return msgspec.structs.replace(settings, heads="title")
        return settings

    def _sync(self, graph: TripleStore, documents: Iterator[Document], report: ReadReport) -> SyncReport:
        """Bring the graph's documents up to date, or leave all of them as they were."""

        def counted() -> Iterator[Document]:
            read = set[str]()
            for document in documents:
                if self.skip_bad:
                    read.add(document.id)
                yield document
                advance()
            # What cannot be read now may still be there: what was extracted of it stays.
            bad = {each.source for each in report.bad} if self.skip_bad else set[str]()
            for document in graph.documents() if bad else ():
                if document.id not in read and (document.source in bad or document.source.rpartition(":")[0] in bad):
                    yield document

        with common.progress("reading documents", None) as advance:
            try:
                return graph.sync(counted(), repeated=report.add_duplicate)
            except InputError as error:
                # One of 200,000 lines is wrong: whoever reads this must know that no half of them got in.
                count, out = len(graph), self.out
                state = f"the {count} documents in {out} stay as they were" if count else f"nothing was stored in {out}"
                raise InputError(f"{error}; {state}") from error

    def _extract(self, graph: TripleStore, extractor: Extractor) -> _Outcome:
        """Extract what waits; whatever ends it early, what is stored stays and is counted."""
        from pytrace.triples.extraction import build_graph

        outcome = _Outcome()
        model, before = self.models.model, self.models.model.usage.generated_tokens
        waiting = graph.count_pending(failed=self.retry)

        def done(extraction: Extraction) -> None:
            outcome.add(extraction)
            advance()

        def tokens() -> int:
            return model.usage.generated_tokens - before

        processes.last_words("what was extracted is stored, go on with --resume")
        try:
            with common.progress("extracting triples", waiting, tokens=tokens) as advance:
                build_graph(graph, extractor, done=done, retry=self.retry)
        except BaseException:  # Ctrl-C, too
            stored = f"stopped after {outcome.extracted} of {waiting} documents; they are stored, go on with --resume"
            if processes.received():
                processes.last_words(stored)
            else:
                common.remark(stored)
            raise
        return outcome


def _print(out: Path, outcome: _Outcome, changes: SyncReport, statistics: GraphStatistics, usage: Usage) -> None:
    common.print_text(
        f"{out}: {statistics.documents} documents, {statistics.triples} triples, {statistics.entities} entities; "
        f"{outcome.extracted} documents extracted now, {changes.unchanged} known before, {changes.removed} removed"
    )
    common.print_text(
        f"{statistics.lines} lines written: {statistics.parsed} kept, {statistics.dropped} dropped, "
        f"{statistics.repeated} repeated; {statistics.truncated} documents cut off"
    )
    for line in outcome.failures[:_SHOWN]:
        common.print_text(common.printable(f"failed: {line}"))
    if outcome.failed > _SHOWN:
        common.print_text(f"failed: {outcome.failed - _SHOWN} more")
    if statistics.failures or statistics.truncated:
        common.print_text(
            f"{statistics.failures} of {statistics.contents} texts failed, {statistics.truncated} were cut off: "
            f"'pytrace kg show {out} --failures' lists them"
        )
    if usage.seconds:
        common.print_text(
            f"{usage.prompt_tokens} prompt tokens asked for, {usage.evaluated_tokens} evaluated, "
            f"{usage.generated_tokens} generated in {usage.seconds:.1f} s"
        )


class _Outcome(msgspec.Struct):
    """What a build did: documents extracted now, those that failed or were cut off, and the first thousand of each."""

    extracted: int = 0
    failed: int = 0
    cut_off: int = 0
    failures: list[str] = []
    cut_off_documents: list[str] = []

    def add(self, extraction: Extraction) -> None:
        document, statistics = extraction.document, extraction.statistics
        self.extracted += 1
        if statistics.failure:
            self.failed += 1
            if len(self.failures) < _LISTED:  # counted all the same, above
                self.failures.append(f"{document.title[:_TITLE]}: {statistics.failure}")
        if statistics.truncated:
            self.cut_off += 1
            if len(self.cut_off_documents) < _LISTED:
                self.cut_off_documents.append(document.title[:_TITLE])
