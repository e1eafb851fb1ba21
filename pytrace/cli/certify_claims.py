"""``pytrace certify --docs``, ``--index``, or rows with contexts: what texts say of each claim of responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytrace.cli import common
from pytrace.cli.commands import Output
from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.certify.claims import CheckedResponse
    from pytrace.certify.claims.claim_writing import ClaimWriter
    from pytrace.certify.claims.rows import ResponseRow
    from pytrace.check_records import CheckedClaim, ClaimEvidence
    from pytrace.engine.loading import Engine
    from pytrace.records import Document

TOO_LOW = 3
"""The exit status where the mean score is below ``--fail-under``."""

_MARKS = {"supported": "+", "contradicted": "-", "not there": "?"}


def certify_claims(
    responses: Path,
    docs: Sequence[Path],
    index: Path | None,
    models: Engine,
    *,
    limit: int | None,
    out: Path | None,
    page: Path | None,
    checker: str | None = None,
    atomic: bool = False,
    explain: bool,
    fail_under: float | None,
) -> Output:
    """Check the responses of a file, and say what texts say of them."""
    from pytrace.certify.claims.checker import judge_responses
    from pytrace.certify.claims.rows import read_response_rows
    from pytrace.engine.claims import open_checker, open_writer
    from pytrace.storage.files import atomic_output
    from pytrace.storage.text import dump_json

    rows = list(read_response_rows(responses, limit=limit))
    entailment = open_checker(checker, models)
    found = list(_checked(rows, docs, index, models, open_writer(atomic, models)))
    checked = [each for each, _ in found]
    if entailment is not None:
        checked = judge_responses(checked, entailment, [documents for _, documents in found])
    scores = [each.score for each in checked]
    mean = sum(scores) / len(scores)
    labels = Counter(claim.label for each in checked for claim in each.claims)
    verdicts = [
        {"id": row.id, "score": each.score, "response": each.text, "claims": each.claims}
        for row, each in zip(rows, checked, strict=True)
    ]
    if out is not None:
        with atomic_output(out) as stream:
            stream.writelines(dump_json(each).encode() + b"\n" for each in verdicts)

    if page is not None:
        from pytrace.report.claims import claim_page
        from pytrace.report.claims.claim_page import NamedResponse
        from pytrace.report.html_page import write_page

        against = ", ".join(map(str, docs)) or (str(index) if index is not None else "the rows' own contexts")
        named = [NamedResponse(row.id, each) for row, each in zip(rows, checked, strict=True)]
        write_page(
            page, claim_page(named, title=f"Responses of {responses.name}", settings={"checked against": against})
        )

    def show_text() -> None:
        if explain:
            for row, each in zip(rows, checked, strict=True):
                _print(row.id, each)
            common.print_text()
        common.print_text(
            f"{len(rows)} responses, {labels.total()} claims: "
            + ", ".join(f"{labels[label]} {label}" for label in _MARKS)  # type: ignore[index]
        )
        common.print_text(f"score: {mean:.3f} (the mean of each response's share of supported claims)")

    failed = fail_under is not None and mean < fail_under
    if failed:
        common.remark(f"the score is {mean:.3f}, below --fail-under {fail_under:g}")
    document = {"score": mean, "claims": {label: labels[label] for label in _MARKS}, "responses": verdicts}  # type: ignore[index]
    return Output(document, show_text, status=TOO_LOW if failed else 0)


def _checked(
    rows: Sequence[ResponseRow],
    docs: Sequence[Path],
    index: Path | None,
    models: Engine,
    writer: ClaimWriter | None,
) -> Iterator[tuple[CheckedResponse, Sequence[Document]]]:
    """Yield each response, checked by its words, with what it was checked against."""
    from pytrace.certify.claims import ClaimChecker
    from pytrace.documents import read_documents
    from pytrace.engine.claims import passages_of

    checker = ClaimChecker(writer=writer)
    if docs:
        documents = list(read_documents(docs))
        yield from ((each, documents) for each in checker.check_all([row.text for row in rows], documents))
        return
    if index is None:
        for number, row in enumerate(rows, 1):
            if row.documents is None:
                raise InputError(
                    f"response {number} ({row.id}) has no contexts, and neither --docs nor --index says what to check it against"
                )
            yield checker.check(row.text, row.documents), row.documents
        return
    from pytrace.engine.corpus import Corpus

    corpus = Corpus.open(index)
    try:
        for row in rows:
            passages = passages_of(row.text, corpus, models)
            yield checker.check(row.text, passages), passages
    finally:
        corpus.close()


def _print(name: str, checked: CheckedResponse) -> None:
    common.print_text()
    common.print_styled(common.printable(f"{name}: score {checked.score:.2f}"))
    if not checked.claims:
        common.print_text("  it claims nothing")
    print_claims(checked.claims)


def print_claims(claims: Sequence[CheckedClaim]) -> None:
    """Print claims, each with what texts say of it, why, and the nearest sentence."""
    for claim in claims:
        common.print_text(f"  {_MARKS[claim.label]} {common.printable(' '.join(claim.text.split()))}")
        common.print_text(f"       {claim.label} (support {claim.supported:.2f}): {common.printable(claim.reason)}")
        if claim.evidence:
            best = claim.evidence[0]
            dated = bool(claim.disagreeing)
            common.print_text(f"       from {_where(best, dated=dated)}: {common.printable(best.text)}")
        for other in claim.disagreeing:
            verb = "contradicts" if other.label == "contradicted" else "supports"
            common.print_text(
                f"       but {_where(other.evidence, dated=True)} {verb} it: {common.printable(other.evidence.text)}"
            )


def _where(sentence: ClaimEvidence, *, dated: bool) -> str:
    """Return where a sentence stands, with its document's date where that may tell which of two holds."""
    source = common.printable(sentence.source or sentence.document)
    return f"{source} ({common.printable(sentence.date)})" if dated and sentence.date else source
