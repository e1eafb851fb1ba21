"""``pytrace certify``: whether the steps of responses are facts of a knowledge graph, hang together and lead to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from pytrace.cli import common
from pytrace.cli.certify_discriminate import discriminate
from pytrace.cli.certify_generate import generate
from pytrace.cli.certify_paths import paths
from pytrace.cli.certifying import (
    certify_responses,
    print_certificate,
    print_scores,
    settings_in_words,
    write_certificates,
)
from pytrace.cli.options import Options, Result, option, takes
from pytrace.cli.shared_options import ENCODER, GRAPH, GRAPH_FORMAT, SETTINGS
from pytrace.engine.loading import EncoderLoader


class _Options(Options):
    kg: Path | None = GRAPH
    kg_format: str | None = GRAPH_FORMAT
    responses: Path | None = option("JSON Lines with question, response and gold answers.")
    steps: Literal["numbered", "sentences"] = option(
        "What a step is: a numbered line, or a sentence before the conclusion.", default="numbered"
    )
    samples: Literal["majority", "best", "all"] = option(
        "Of several responses to a question: the first of the majority, the best, or each.", default="majority"
    )
    limit: int | None = option("Only the first so many responses.", ge=1)
    out: Path | None = option("Write every certificate here.", metavar="FILE.jsonl")
    page: Path | None = option("Write one page to look at them.", metavar="FILE.html")
    plots: Path | None = option("Draw errors and gap as PNG and SVG.", metavar="DIR")
    explain: bool = option("Show every response with its steps.")
    settings: tuple[str, ...] = SETTINGS
    models: EncoderLoader = ENCODER


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@takes(_Options)
def certify(options: _Options) -> Result | None:
    """Check the reasoning of responses, of any model, against a knowledge graph.

    Each line of the responses has `question`, `response` (or several as `responses`), and where they are known `answers` and
    `gold_paths`. A step is a fact if a triple of the graph says the same; a response is faithful if all steps are facts, go
    on from each other and lead to a gold answer. --set changes what counts as a fact: rule=paper, threshold=0.7,
    entity_threshold=0.8, relation_margin=0.2, top=10.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return None
    kg, responses, models = options.kg, options.responses, options.models
    if kg is None or responses is None:
        raise click.UsageError(
            "give --kg PATH and --responses FILE, or one of the commands discriminate, generate and paths"
        )
    from pytrace.certify.certification_scores import score_certificates
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.certify.response_files import read_responses
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.base import changed

    settings = changed(GroundingSettings(), options.settings, what="certify")
    rows = list(read_responses(responses, limit=options.limit))
    base = KnowledgeBase.load(kg, models.encoder, format=options.kg_format)
    certificates = certify_responses(base, models, rows, settings, steps=options.steps, samples=options.samples)
    scores = score_certificates(certificates)
    if options.out is not None:
        write_certificates(options.out, certificates)
    if options.page is not None:
        from pytrace.report.certificates import write_page

        words = settings_in_words(
            settings, graph=kg.name, steps=options.steps, samples=options.samples, encoder=models.encoder.name
        )
        write_page(options.page, certificates, scores, base, title=f"Responses of {responses.name}", settings=words)
    if options.plots is not None:
        from pytrace.report.certificate_plots import save_plots

        save_plots(scores, options.plots)

    def show_text() -> None:
        if options.explain:
            for certificate in certificates:
                print_certificate(certificate)
            common.print_text()
        print_scores(scores)

    return Result({"scores": scores, "settings": settings, "certificates": certificates}, show_text)


certify.add_command(discriminate)
certify.add_command(generate)
certify.add_command(paths)
