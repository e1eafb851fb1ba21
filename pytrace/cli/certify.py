"""``pytrace certify``: whether the steps of responses are facts of a knowledge graph, hang together and lead to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
from pytrace.cli.loading import encoder_options, graph_option, settings_option
from pytrace.engine.loading import EncoderLoader

if TYPE_CHECKING:
    from pytrace.certify.generative import Choice
    from pytrace.certify.response_parsing import StepForm


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@graph_option(required=False)
@click.option(
    "--responses", type=click.Path(path_type=Path), help="JSON Lines with question, response and gold answers."
)
@click.option(
    "--steps",
    type=click.Choice(["numbered", "sentences"]),
    default="numbered",
    show_default=True,
    help="What a step is: a numbered line, or a sentence before the conclusion.",
)
@click.option(
    "--samples",
    type=click.Choice(["majority", "best", "all"]),
    default="majority",
    show_default=True,
    help="Of several responses to a question: the first of the majority, the best, or each.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many responses.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.jsonl", help="Write every certificate here.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE.html", help="Write one page to look at them.")
@click.option("--plots", type=click.Path(path_type=Path), metavar="DIR", help="Draw errors and gap as PNG and SVG.")
@click.option("--explain", is_flag=True, help="Show every response with its steps.")
@settings_option
@encoder_options
@common.json_option
@click.pass_context
def certify(
    context: click.Context,
    *,
    kg: Path | None,
    kg_format: str | None,
    responses: Path | None,
    steps: StepForm,
    samples: Choice,
    limit: int | None,
    out: Path | None,
    page: Path | None,
    plots: Path | None,
    explain: bool,
    settings: tuple[str, ...],
    models: EncoderLoader,
    as_json: bool,
) -> None:
    """Check the reasoning of responses, of any model, against a knowledge graph.

    Each line of the responses has `question`, `response` (or several as `responses`), and where they are known `answers` and
    `gold_paths`. A step is a fact if a triple of the graph says the same; a response is faithful if all steps are facts, go
    on from each other and lead to a gold answer. --set changes what counts as a fact: rule=paper, threshold=0.7,
    entity_threshold=0.8, relation_margin=0.2, top=10.
    """
    if context.invoked_subcommand is not None:
        return
    if kg is None or responses is None:
        raise click.UsageError(
            "give --kg PATH and --responses FILE, or one of the commands discriminate, generate and paths"
        )
    from pytrace.certify.certification_scores import score_certificates
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.certify.response_files import read_responses
    from pytrace.kg import KnowledgeBase
    from pytrace.methods.base import changed

    chosen = changed(GroundingSettings(), settings, what="certify")
    rows = list(read_responses(responses, limit=limit))
    base = KnowledgeBase.load(kg, models.encoder, format=kg_format)
    certificates = certify_responses(base, models, rows, chosen, steps=steps, samples=samples)
    scores = score_certificates(certificates)
    if out is not None:
        write_certificates(out, certificates)
    if page is not None:
        from pytrace.report.certificates import certificate_page
        from pytrace.report.html_page import write_page

        told = settings_in_words(chosen, graph=kg.name, steps=steps, samples=samples, encoder=models.encoder.name)
        title = f"Responses of {responses.name}"
        write_page(page, certificate_page(certificates, scores, base, title=title, settings=told))
    if plots is not None:
        from pytrace.report.certificate_plots import save_plots

        save_plots(scores, plots)
    if as_json:
        common.print_json({"scores": scores, "settings": chosen, "certificates": certificates})
        return
    if explain:
        for one in certificates:
            print_certificate(one)
        common.print_text()
    print_scores(scores)


certify.add_command(discriminate)
certify.add_command(generate)
certify.add_command(paths)
