"""How results are shown on a terminal: the answer with its confidence and numbered sources, or the passages that were found."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from pytrace.cli import common
from pytrace.reader.spans.words import content_stems, words
from pytrace.records import Coverage, FeatureCover, KnowledgeQuery, Reasoning, WrittenTriples
from pytrace.results import EvidenceChain, Findings, Result, Source, Step, confidence_words

# Characters of a passage where the width of a terminal does not say it, and lines of one.
_EXCERPT, _LINES = 200, 2
_INDENT = 5
# A query may give as many values as it may give rows; more than these would bury the rest.
_MAX_VALUES = 20
# Documents that are listed by title.
_MAX_SOURCES = 8
_COLORS = {"high": "bold green", "medium": "bold yellow", "low": "bold bright_black", "unknown": "bold"}
_FILE = re.compile(r"^(?P<path>.*?)(?P<line>:\d+)?(?P<rest>, .*| \(untitled\).*)?$")


def print_result(result: Result, *, explain: bool = False) -> None:
    """Print an answer with its confidence and sources; with `explain` everything that led to it."""
    console = common.output()
    if result.abstained:
        _print_abstention(console, result)
    else:
        common.print_rich(console, Text(f"Answer: {result.answer or '(none)'}", style=_COLORS[result.certainty]))
        if result.confidence is not None:
            common.print_rich(console, Text(f"Confidence: {confidence_words(result)}"))
        _print_sources(console, result)
    for note in result.notes:
        common.print_styled(f"Note: {note}", "dim")
    if explain:
        _print_details(result)


def print_search(result: Result) -> None:
    """Print the passages that a search found, best first, two lines of each with the words of the question in bold."""
    console = common.output()
    if result.read_as and result.read_as != result.question:
        common.print_styled(f"Searched for: {result.read_as}", "dim")
    # Passages of chains that the ranking does not list have no relevance.
    ranked = [source for source in result.evidence.sources if source.relevance is not None]
    if not ranked:
        common.print_text("No passage found.")
    _print_passages(console, ranked, result.read_as or result.question)


def _print_abstention(console: Console, result: Result) -> None:
    closest = result.evidence.sources
    common.print_rich(console, Text(f"{result.reason}{' Closest passages:' if closest else ''}", style="bold"))
    _print_passages(console, closest, result.question)


def _print_passages(console: Console, sources: Sequence[Source], question: str) -> None:
    asked = content_stems(words(question))
    for number, source in enumerate(sources, 1):
        _print_heading(console, number, source.title, source.location)
        spans = [(word.start, word.end) for word in words(source.text) if word.stem in asked and word.kind != "mark"]
        _print_excerpt(console, source.text, spans)


def _print_sources(console: Console, result: Result) -> None:
    """Print the first chain: each step's passage and sentence, the answer and the linking names in bold."""
    evidence = result.evidence
    if not evidence.chains:
        _print_read(evidence)
        return
    common.print_text()
    steps = evidence.chains[0].steps
    for number, step in enumerate(steps, 1):
        title = evidence.sources[step.source].title if step.source >= 0 else ""
        _print_heading(console, number, title, step.location)
        _print_excerpt(console, step_text(step), _bold_spans(step, steps))


def _bold_spans(step: Step, steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return what is bold in a step: the answer, and the names that link it to others."""
    if step.answer is not None:
        return [step.answer]
    place = steps.index(step) + 1
    links = [other.link for other in steps if other.after == place and other.link]
    text = step_text(step).casefold()
    starts = [(text.find(link.casefold()), len(link)) for link in links]
    return [(start, start + length) for start, length in starts if start >= 0]


def step_text(step: Step) -> str:
    """Return what a step says: its sentence, or its triple where no sentence is known."""
    if step.sentence:
        return step.sentence
    return "; ".join(step.triple) if step.triple is not None else ""


def _print_heading(console: Console, number: int, title: str, location: str) -> None:
    """Print a title with the place of its file, which is a link where the terminal shows links."""
    line = Text(f"{number:>3}. ")
    line.append(common.printable(title))
    if location:
        shown, link = _relative(location)
        line.append("  ")
        line.append(common.printable(shown), style=f"dim link {link}" if link and console.is_terminal else "dim")
    common.print_rich(console, line)


def _relative(location: str) -> tuple[str, str]:
    """Return a location with its path relative to the working folder, and an address of the file if it is there."""
    match = _FILE.match(location)
    if match is None:
        return location, ""
    path = Path(match["path"])
    link = f"file://{quote(str(path.absolute()))}" if path.exists() else ""
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f"{path}{match['line'] or ''}{match['rest'] or ''}", link


def _print_excerpt(console: Console, text: str, bold: Iterable[tuple[int, int]]) -> None:
    """Print two lines of a text, around the first bold part."""
    width = _LINES * (console.width - _INDENT) - 2 if console.is_terminal else _EXCERPT
    spans = sorted(bold)
    shown, spans = _cut(text, spans, width)
    line = Text(common.printable(shown))
    for start, end in spans:
        line.stylize("bold", start, end)
    if console.is_terminal:
        for wrapped in line.wrap(console, console.width - _INDENT):
            common.print_rich(console, Text(" " * _INDENT) + wrapped)
    else:
        common.print_rich(console, Text(" " * _INDENT) + line)


def _cut(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[str, list[tuple[int, int]]]:
    """Cut a text to a width around the spans, at the borders of words."""
    if len(text) <= width:
        return text, list(spans)
    first = spans[0][0] if spans else 0
    start = max(0, min(first - width // 3, len(text) - width))
    if start:
        start = text.rfind(" ", 0, start) + 1
    end = min(len(text), start + width - 2)
    if end < len(text):
        end = max(text.rfind(" ", start, end), start + 1)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    moved = [
        (max(a, start) - start + len(before), min(b, end) - start + len(before))
        for a, b in spans
        if b > start and a < end
    ]
    return f"{before}{text[start:end]}{after}", moved


def _print_read(evidence: Findings) -> None:
    """Print what was read where there is no chain."""
    for entry in evidence.context:
        common.print_text(f"  {common.printable(_cut(entry, (), _EXCERPT)[0])}")
    if isinstance(evidence.details, Reasoning) and evidence.kind == "facts":
        stores = dict.fromkeys(q.store for q in evidence.details.queries if q.facts or q.statement)
        common.print_text(f"Facts from {', '.join(map(common.printable, stores))}.")
        return
    titles = list(dict.fromkeys(source.title for source in evidence.sources if source.read))
    more = f" and {len(titles) - _MAX_SOURCES} more" if len(titles) > _MAX_SOURCES else ""
    if titles:
        common.print_text(common.printable(f"Read: {', '.join(titles[:_MAX_SOURCES])}{more}"))


# ---- what --explain adds


def _print_details(result: Result) -> None:
    evidence = result.evidence
    if result.withheld:
        common.print_text(
            "\n" + common.printable(f"Not given: {result.withheld!r}, confidence {confidence_words(result)}")
        )
    for number, chain in enumerate(evidence.chains, 1):
        _print_chain(number, chain, evidence)
    details = evidence.details
    if isinstance(details, FeatureCover) and details.coverage:
        _print_coverage(details, evidence)
    if isinstance(details, WrittenTriples):
        _print_section("Triples written from the question", [f"  {triple.text}" for triple in details.triples])
    if isinstance(details, Reasoning):
        _print_section("Thoughts", [f"  {number}. {text}" for number, text in enumerate(details.rationale, 1)])
        lines = [line for number, query in enumerate(details.queries, 1) for line in _query_lines(number, query)]
        _print_section("Queries to the knowledge base", lines)
    voted = sorted((source for source in evidence.sources if source.votes), key=lambda source: -source.votes)
    if voted:
        common.print_styled("\nVotes")
        common.print_table(("VOTES", "DOCUMENT"), [(source.votes, source.title) for source in voted])
    _print_costs(result)


def _print_chain(number: int, chain: EvidenceChain, evidence: Findings) -> None:
    score = "" if chain.score is None else f" (probability {math.exp(chain.score):.3f})"
    common.print_styled(f"\nChain {number}{score}")
    for place, step in enumerate(chain.steps, 1):
        title = evidence.sources[step.source].title if step.source >= 0 else ""
        led = f" (by {step.link!r}{f' of {step.after}' if step.after != place - 1 else ''})" if step.link else ""
        triple = f"<{'; '.join(step.triple)}> " if step.triple is not None else ""
        probability = "" if step.probability is None else f"  p={step.probability:.3f}"
        common.print_text(common.printable(f'  {place}. {title}{led}: {triple}"{step.sentence}"{probability}'))
        if step.location:
            common.print_styled(common.printable(f"     {_relative(step.location)[0]}"), "dim")


def _print_section(title: str, lines: Sequence[str]) -> None:
    """Print lines under a title; nothing if there are none."""
    if lines:
        common.print_styled(f"\n{title}")
        for line in lines:
            common.print_text(common.printable(line))


def _print_coverage(cover: FeatureCover, evidence: Findings) -> None:
    """Print which snippets cover which feature of the question."""
    titles = {source.id: source.title for source in evidence.sources}

    def snippet(rank: int, probability: float | None) -> str:
        document_id, sentence = cover.pool[rank]
        where = "" if sentence < 0 else f" (sentence {sentence + 1})"
        certainty = "undecided" if probability is None else f"p={probability:.2f}"
        return f"{titles.get(document_id, document_id)}{where} {certainty}"

    def covered(coverage: Coverage) -> str:
        return ", ".join(snippet(rank, coverage.probabilities[rank]) for rank in coverage.covered_by)

    common.print_styled("\nFeatures")
    common.print_records(
        cover.coverage,
        (
            ("KIND", lambda coverage: coverage.feature.kind),
            ("FEATURE", lambda coverage: coverage.feature.statement),
            ("COVERED BY", lambda coverage: covered(coverage) or "no snippet"),
        ),
    )


def _query_lines(number: int, query: KnowledgeQuery) -> Iterator[str]:
    """Yield what a knowledge base was asked, how, and what it answered."""
    asker = "the question itself" if query.place < 0 else f"thought {query.place + 1}"
    yield f"  {number}. {query.question} ({asker})"
    for label, text in _query_details(query):
        yield f"     {label}: {text}"


def _query_details(query: KnowledgeQuery) -> Iterator[tuple[str, str]]:
    for written, reason in query.refused:
        yield "refused", f"{written or '(nothing)'}: {reason}"
    if query.written:
        yield "written", query.written
    for mention, key, score in query.links:
        yield "linked", f"{mention} to {key} ({score:.2f})"
    if query.sparql:
        yield "run", f"{query.sparql} on {query.store}"
    values = ", ".join(query.values[:_MAX_VALUES])
    more = f" and {len(query.values) - _MAX_VALUES} more" if len(query.values) > _MAX_VALUES else ""
    outcome = f"{query.outcome}: {values}{more}" if values else query.outcome
    yield "outcome", f"{outcome} ({query.reason})" if query.reason else outcome
    if query.statement:
        yield "in words", query.statement
    for fact in query.facts:
        yield "fact", f"{fact.text}  {fact.triple.text}"


def _print_costs(result: Result) -> None:
    common.print_styled("\nCost")
    common.print_records(
        result.seconds,
        (
            ("STAGE", lambda stage: stage),
            ("SECONDS", lambda stage: f"{result.seconds[stage]:.3f}"),
            ("CALLS", lambda stage: result.usage[stage].calls if stage in result.usage else 0),
            ("TOKENS COMPUTED", lambda stage: result.usage[stage].evaluated_tokens if stage in result.usage else 0),
            ("TOKENS GENERATED", lambda stage: result.usage[stage].generated_tokens if stage in result.usage else 0),
        ),
    )
    common.print_text(f"Method: {result.method}")
