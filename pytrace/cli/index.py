"""``pytrace index``: documents are indexed once, and searched by every question."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, click_group, option
from pytrace.cli.shared_options import ENCODER, READING, SKIP_BAD
from pytrace.documents.reader import ReadOptions
from pytrace.engine.loading import Engine
from pytrace.errors import InputError
from pytrace.retrieval.passages.manifest import VectorType
from pytrace.storage.files import real_path

if TYPE_CHECKING:
    from pytrace.documents import ReadReport
    from pytrace.records import Document
    from pytrace.retrieval.passages import Changes, IndexWriter, PassageIndex

# Said where a signal ends a command that stores as it goes.
_GOES_ON = "the same command goes on with what is stored"
_DOCS = "A file or a folder of documents. May be repeated."
_KG = "A graph of the same documents, made by 'pytrace kg build'; the heads of its triples become names of passages."


class Build(Command):
    """Index documents in DIR: passages, vectors, words, names and links.

    Run an interrupted build again to continue it. A finished build that is run again does what 'index sync' does; the index stores how
    its documents were read.
    With --processes, each process builds a part in DIR.parts, which all machines must see, and the parts are merged. With --part
    you start the processes yourself and merge the parts by 'index merge'.
    """

    directory: Path = argument("DIR")
    docs: tuple[Path, ...] = option(_DOCS, required=True)
    vectors: VectorType | None = option(
        "Type of stored vectors: float16 takes half the disk, int8 a quarter, with nearly the same results.  [default: float32]"
    )
    kg: Path | None = option(_KG)
    part: str | None = option("Build only the K-th of N parts of the documents.", metavar="K/N")
    processes: int = option(
        "Number of processes that read and embed, each with its own embedding model. They share the CPUs unless --threads sets a "
        "number for each.",
        ge=1,
        le=1024,
        default=1,
    )
    engine: Literal["local", "ray"] = option("Who starts the processes: this program, or Ray.", default="local")
    ray_address: str | None = option("A Ray cluster, such as auto.  [default: one on this machine]", metavar="ADDRESS")
    reading: ReadOptions = READING
    skip_bad: bool = SKIP_BAD
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.retrieval.passages import IndexWriter

        if self.ray_address is not None and self.engine != "ray":
            raise InputError(f"--ray-address {self.ray_address} is of --engine ray; give that too")
        several = self.processes > 1 or self.engine == "ray"
        if self.part is not None and several:
            raise InputError(
                "--part is for one process among several that something else starts; leave out --processes"
            )
        docs = _absolute(self.docs)
        kg = None if self.kg is None else real_path(self.kg)
        kept = {**self.reading, "docs": [str(path) for path in docs], **({} if kg is None else {"kg": str(kg)})}
        encoder = self.models.encoder
        with IndexWriter(self.directory, encoder, create=True, vectors=self.vectors, reading=kept) as writer:
            if writer.documents and _kept_reading(writer) != (self.reading, docs, kg):
                raise InputError(
                    f"{self.directory} holds {writer.documents:,} documents already, of other files or read otherwise; bring them up "
                    f"to date with 'pytrace index sync {self.directory}', or add others with 'pytrace index add'"
                )
            if several:
                return self._several(writer, docs, kg)
            return self._here(writer, docs, kg)

    def _here(self, writer: IndexWriter, docs: tuple[Path, ...], kg: Path | None) -> Output:
        # Of another part nothing may leave.
        again, part = writer.documents > 0 and self.part is None, _part(self.part)
        return _write(self.directory, writer, docs, self.reading, kg, again=again, part=part, skip_bad=self.skip_bad)

    def _several(self, writer: IndexWriter, docs: tuple[Path, ...], kg: Path | None) -> Output:
        from pytrace.engine import shards

        place = real_path(self.directory)
        processes.last_words(_GOES_ON)
        built = shards.Shards(
            place.with_name(f"{place.name}.parts"),
            docs,
            self.reading,
            self.vectors,
            # A copy, since what is loaded cannot be sent to other processes.
            replace(self.models, threads=self.models.threads or max(1, len(os.sched_getaffinity(0)) // self.processes)),
            self.processes,
            kg,
            self.skip_bad,
        )
        if writer.documents:
            result = self._here(writer, docs, kg)
            built.clear()
            return result
        if self.engine == "ray":
            building = shards.build_with_ray(built, address=self.ray_address)
        else:
            building = shards.build_in_processes(built)
        parts = []
        with common.progress("building parts", self.processes) as advance:
            for part in building:
                parts.append(part)
                advance()
        report = shards.joined([part.report for part in parts])
        if not report.documents:
            raise InputError(f"no document was found in {', '.join(map(str, docs))}; 'pytrace docs show' says why")
        writer.changes.encoded = sum(part.encoded for part in parts)
        built.merge(writer)
        common.print_skipped(report)
        result = _result(self.directory, writer.commit(), report, skip_bad=self.skip_bad)
        built.clear()
        return result


class Merge(Command):
    """Add the documents of other indexes to the index in DIR without embedding them again; DIR is created if needed.

    The indexes must have the same embedding model and vector type, as those of 'index build --part' have. If several have a document
    with the same id, the last one wins.
    """

    directory: Path = argument("DIR")
    others: tuple[Path, ...] = argument("OTHER…", required=True)
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.retrieval.passages import IndexWriter
        from pytrace.retrieval.passages.manifest import read_manifest

        first = read_manifest(self.others[0])
        with IndexWriter(
            self.directory, self.models.encoder, create=True, vectors=first.vectors, reading=first.reading
        ) as writer:
            for other in self.others:
                writer.merge(other)
            return _result(self.directory, writer.commit())


class Sync(Command):
    """Bring the index in DIR up to date: embed new and changed documents, remove deleted ones.

    Documents are read with the options of the build, from the same location, unless --docs names another.
    """

    directory: Path = argument("DIR")
    docs: tuple[Path, ...] = option(_DOCS)
    skip_bad: bool = SKIP_BAD
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.retrieval.passages import IndexWriter

        with IndexWriter(self.directory, self.models.encoder) as writer:
            reading, known, kg = _kept_reading(writer)
            docs = _absolute(self.docs) or known
            if not docs:
                raise InputError(f"{self.directory} does not know where its documents are; give --docs FILE|FOLDER")
            return _write(self.directory, writer, docs, reading, kg, again=True, skip_bad=self.skip_bad)


class Add(Command):
    """Add documents to the index in DIR; they replace documents with the same ids."""

    directory: Path = argument("DIR")
    docs: tuple[Path, ...] = option(_DOCS, required=True)
    skip_bad: bool = SKIP_BAD
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.retrieval.passages import IndexWriter

        with IndexWriter(self.directory, self.models.encoder) as writer:
            reading, _, kg = _kept_reading(writer)
            return _write(self.directory, writer, _absolute(self.docs), reading, kg, skip_bad=self.skip_bad)


class Remove(Command):
    """Remove documents from the index in DIR, by the ids that 'index show' lists; none of their text stays on disk."""

    directory: Path = argument("DIR")
    ids: tuple[str, ...] = argument("ID…", required=True)
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.retrieval.passages import IndexWriter

        with IndexWriter(self.directory, self.models.encoder) as writer:
            writer.remove(self.ids)
            return _result(self.directory, writer.commit())


class Learn(Command):
    """Learn search weights for the index in DIR, from questions whose supporting documents are known.

    Training starts from the shipped weights. Cross-validation measures the recall of supporting documents, each question by weights
    that never saw it. Weights that beat the shipped ones are stored in DIR and used from then on.
    """

    directory: Path = argument("DIR")
    data: Path = option("Questions with the ids of their supporting documents, as for 'eval --index'.")
    data_format: str = option("Format of the data, as for 'eval'.", "--format", default="auto")
    models: Engine = ENCODER

    def run(self) -> Output:
        from pytrace.evaluation.data.beir import is_beir
        from pytrace.evaluation.data.datasets import read_questions
        from pytrace.retrieval.hops import HopSearch
        from pytrace.retrieval.hops.own_weights import Asked, learn_own
        from pytrace.retrieval.hops.weights import save_weights
        from pytrace.retrieval.passages import PassageIndex

        pool = 1 if is_beir(self.data) else None
        asked = [
            Asked(question.question, frozenset(question.supporting_documents))
            for question in read_questions(self.data, format=self.data_format, pool=pool)  # type: ignore[arg-type]
            if question.supporting_documents
        ]
        encoder = self.models.encoder
        with PassageIndex.open(self.directory, encoder) as index:
            learned = learn_own(
                HopSearch(index, encoder), asked, made_by=f"pytrace index learn, {len(asked)} questions"
            )
        better = sum(learned.own) > sum(learned.shipped)
        if better:
            save_weights(self.directory, learned.weights, [question.text for question in asked])
        document = {"questions": len(asked), "shipped": learned.shipped, "own": learned.own, "kept": better}

        def show() -> None:
            for name, recall in (("shipped weights", learned.shipped), ("weights of its own", learned.own)):
                shares = "  ".join(f"{100 * share:5.1f}" for share in recall)
                common.print_text(f"{name:<20} recall at 2, 5, 10: {shares}")
            kept = f"kept in {self.directory}" if better else "no better, so the shipped ones stay"
            common.print_text(f"{len(asked)} questions, each judged by weights that never saw it; {kept}")

        return Output(document, show)


class Show(Command):
    """Show what the index in DIR holds."""

    directory: Path = argument("DIR")
    ids: bool = option("Also list the documents: ids, passages and locations.")

    def run(self) -> Output:
        from pytrace.retrieval.passages import PassageIndex

        with PassageIndex(self.directory) as index:
            summary = _summary(index)
            entries = list(index.entries()) if self.ids else []
        document = {**summary, "entries": entries} if self.ids else summary

        def show() -> None:
            for name, value in summary.items():
                common.print_text(common.printable(f"{name}: {value}"))
            if entries:
                common.print_records(
                    entries,
                    (
                        ("ID", lambda entry: common.printable(entry.id)),
                        ("PASSAGES", lambda entry: entry.passages),
                        ("READ FROM", lambda entry: common.printable(entry.source)),
                    ),
                )

        return Output(document, show)


class Verify(Command):
    """Compare all files of the index in DIR with their checksums; one of sentences (--sentence-index of 'ask'), too."""

    directory: Path = argument("DIR")

    def run(self) -> Output:
        from pytrace.retrieval import index_files
        from pytrace.retrieval.hops.weights import learned_questions, load_weights
        from pytrace.retrieval.passages import PassageIndex

        if (self.directory / index_files.MANIFEST).exists():
            files = index_files.IndexFiles(self.directory, None, writable=False)
            with closing(files):
                files.verify()
            document = {"index": self.directory, "sentences": files.count, "intact": True}
            return Output(document, f"{self.directory}: {files.count:,} sentences, all intact")
        # Of its own, if it has any.
        load_weights(self.directory)
        learned_questions(self.directory)
        with PassageIndex(self.directory) as index:
            index.verify()
            summary = _summary(index)
        return Output({**summary, "intact": True}, f"{self.directory}: {summary['passages']:,} passages, all intact")


def _part(text: str | None) -> tuple[int, int]:
    """Read K/N."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text or "1/1")
    if match is None:
        raise InputError(f"--part {text} is not K/N, such as 2/8")
    return int(match[1]), int(match[2])


def _absolute(docs: Sequence[Path]) -> tuple[Path, ...]:
    """Return where documents are, whatever directory a later sync is called in."""
    return tuple(map(real_path, docs))


def _kept_reading(writer: IndexWriter) -> tuple[ReadOptions, tuple[Path, ...], Path | None]:
    """Return how the documents of an index are read, where they were, and the graph that names their passages."""
    kept = dict(writer.reading)
    docs = tuple(map(Path, kept.pop("docs", ())))
    kg = kept.pop("kg", None)
    return msgspec.convert(kept, ReadOptions), docs, None if kg is None else Path(kg)


def _write(
    directory: Path,
    writer: IndexWriter,
    docs: Sequence[Path],
    reading: ReadOptions,
    kg: Path | None,
    *,
    again: bool = False,
    part: tuple[int, int] = (1, 1),
    skip_bad: bool = False,
) -> Output:
    """Read documents into an index; nothing of it is changed if one of them cannot be read, unless those are skipped."""
    from pytrace.documents import ReadReport, read_documents
    from pytrace.engine.named_passages import name_passages

    report = ReadReport()
    processes.last_words(_GOES_ON)
    with common.progress("indexing passages", None) as advance:

        def counted() -> Iterator[Document]:
            documents = read_documents(docs, report=report, part=part, skip_bad=skip_bad, **reading)
            for passage in name_passages(documents, kg):
                yield passage
                advance()

        writer.add(counted())
        if again and skip_bad and report.bad:
            common.remark("nothing is removed, since what cannot be read now may still be there")
        elif again:
            writer.remove_unseen()
        common.print_skipped(report)
        changes = writer.commit()  # embeds what is left
    return _result(directory, changes, report, skip_bad=skip_bad)


def _result(directory: Path, changes: Changes, report: ReadReport | None = None, *, skip_bad: bool = False) -> Output:
    from pytrace.retrieval.passages import PassageIndex

    with PassageIndex(directory) as index:
        summary = _summary(index)
    document = {**summary, "changes": changes}
    if report is not None:
        document |= {"skipped": report.skipped, "warnings": report.warnings, "bad": report.bad}
    text = (
        f"{directory}: {summary['passages']:,} passages of {summary['documents']:,} documents; {changes.added:,} added, "
        f"{changes.replaced:,} replaced, {changes.removed:,} removed, {changes.unchanged:,} as before; {changes.encoded:,} passages "
        "encoded"
    )
    return Output(document, text, report.bad if report is not None and skip_bad else ())


def _summary(index: PassageIndex) -> dict[str, Any]:
    manifest = index.manifest
    return {
        "index": index.directory,
        "documents": index.documents,
        "passages": len(index),
        "names": 0 if index.graph is None else len(index.graph.table),
        "mentions": 0 if index.graph is None else len(index.graph["mentions"]),
        "encoder": manifest.encoder,
        "vectors": manifest.vectors,
        "bytes": sum(entry.bytes for entry in index.files),
    }


index = click_group(
    "Index documents once, and search them across hops.", Build, Sync, Add, Remove, Merge, Learn, Show, Verify
)
