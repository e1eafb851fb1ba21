"""What the commands of ``pytrace certify`` share: the knowledge base, the certificates, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytrace.cli import common
from pytrace.engine.loading import EncoderLoader

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import Certificate, Response
    from pytrace.certify.certification_scores import CertificationScores, Interval, Quality
    from pytrace.certify.generative import Choice
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.certify.response_parsing import StepForm
    from pytrace.kg import KnowledgeBase

_MARKS = {"supported": "+", "unsupported": "-", "undecided": "?"}


def certify_responses(
    base: KnowledgeBase,
    models: EncoderLoader,
    responses: Sequence[Response],
    settings: GroundingSettings,
    *,
    steps: StepForm = "numbered",
    samples: Choice = "majority",
) -> list[Certificate]:
    """Certify responses and show on stderr how far it is."""
    from pytrace.certify.certifier import Certifier
    from pytrace.certify.generative import choose_samples

    certifier = Certifier(base, models.encoder, settings, steps=steps)
    certificates = []
    with common.progress("certifying", len(responses)) as advance:
        for certificate in certifier.certify(responses):
            certificates.append(certificate)
            advance()
    return list(choose_samples(certificates, how=samples))


def settings_in_words(settings: GroundingSettings, **more: object) -> dict[str, str]:
    """Return settings for people to read, with whatever else led to the certificates."""
    # `least_ratio` is what the setting of the entities' threshold comes to, which by default depends on the rule.
    words = {**msgspec.to_builtins(settings), "entity_threshold": settings.least_ratio, **more}
    return {name: str(value) for name, value in words.items()}


def write_certificates(path: Path, certificates: Sequence[Certificate]) -> None:
    """Write certificates as JSON Lines, in one step."""
    from pytrace.storage.files import atomic_output
    from pytrace.storage.text import dump_json

    with atomic_output(path) as stream:
        for certificate in certificates:
            stream.write(dump_json(certificate).encode() + b"\n")


def print_scores(scores: CertificationScores) -> None:
    """Print what certificates say together."""
    common.print_text(f"{scores.n} responses: {_counts(scores.kinds)}")
    common.print_text(f"errors: {_counts(scores.errors)}")
    common.print_text(f"steps: {_counts(scores.steps)}")
    rows = [] if scores.answer is None else [("answer", *_quality(scores.answer))]
    common.print_table(("", "PRECISION", "RECALL", "F1"), [*rows, ("reasoning", *_quality(scores.reasoning))])
    if scores.gap.value is not None:
        common.print_text(f"gap between answers and reasoning: {_interval(scores.gap)} points of F1")
    if scores.edit_rate.mean is not None and scores.edit_distance.mean is not None:
        common.print_text(
            f"edit distance to the nearest gold path: {scores.edit_distance.mean:.2f} steps, "
            f"{100 * scores.edit_rate.mean:.1f} % of an alignment ({scores.edit_rate.n} responses)"
        )
    common.print_text("percent with 95 % bootstrap intervals; precision is of structured responses, recall of all")


def print_certificate(certificate: Certificate) -> None:
    """Print one response with its steps and what is wrong with them."""
    error = (
        ""
        if certificate.error is None
        else f" ({certificate.error} error)"
        if certificate.error != "incoherent"
        else " (incoherent)"
    )
    common.print_text()
    common.print_styled(common.printable(f"{certificate.id}: {certificate.question}"))
    common.print_text(f"{certificate.kind}{error}: {common.printable(certificate.reason)}")
    for number, step in enumerate(certificate.steps, 1):
        common.print_text(f"  {_MARKS[step.status]} {number}. {common.printable(step.text)}")
        common.print_text(f"       {common.printable(step.reason)}")
    if certificate.answer:
        right = "" if certificate.answer_correct is None else " (right)" if certificate.answer_correct else " (wrong)"
        gold = f"; gold: {', '.join(certificate.answers)}" if certificate.answers else ""
        common.print_text(f"  answer: {common.printable(certificate.answer + right + gold)}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _quality(quality: Quality) -> tuple[str, str, str]:
    return _interval(quality.precision), _interval(quality.recall), _interval(quality.f1)


def _interval(interval: Interval) -> str:
    return common.percent_interval(interval.value, interval.low, interval.high)
