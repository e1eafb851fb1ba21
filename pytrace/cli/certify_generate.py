"""``pytrace certify generate``: let a model reason about questions, and certify what it wrote."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.certifying import certify_responses, print_scores, settings_in_words, write_certificates
from pytrace.cli.loading import graph_option, model_options, settings_option
from pytrace.engine.loading import Engine
from pytrace.errors import StoreError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import GoldQuestion, Response
    from pytrace.certify.generative import Choice, GenerationSettings, Prompting
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.kg import KnowledgeBase
    from pytrace.records import Usage

_PROMPTINGS: tuple[Prompting, ...] = ("cot", "cot-plan", "cot-sc")


@click.command()
@graph_option(required=True)
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Questions with answers and gold paths.")
@click.option(
    "--prompting",
    "promptings",
    type=click.Choice(_PROMPTINGS),
    multiple=True,
    help="How the model is asked: few-shot chain of thought, after a plan, or several samples. May be repeated.  "
    "[default: all]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many questions.")
@click.option("--distinct", is_flag=True, help="Of questions with the same gold path, only the first.")
@click.option(
    "--samples",
    type=click.Choice(["majority", "best", "all"]),
    default="majority",
    show_default=True,
    help="Of cot-sc's responses to a question: the first of the majority, the best (as the paper reports), or each.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Responses are kept here as they are written, and a killed run goes on; then the certificates and a page.",
)
@settings_option
@model_options
@common.json_option
def generate(
    *,
    kg: Path,
    kg_format: str | None,
    data: Path,
    promptings: tuple[Prompting, ...],
    limit: int | None,
    distinct: bool,
    samples: Choice,
    out: Path,
    settings: tuple[str, ...],
    models: Engine,
    as_json: bool,
) -> None:
    """Let the language model answer questions in numbered steps, from memory, and certify its reasoning.

    For each way of asking, DIR holds the responses (which `pytrace certify --responses` reads, too), the certificates and a
    page. --set changes how responses are written (temperature=0.7, top_p=0.9,
    samples=4, demonstrations=5, structured=true, facts=0) and what counts as a fact (see `pytrace certify --help`).
    """
    from pytrace.certify.certification_scores import score_certificates
    from pytrace.certify.generative import GenerationSettings
    from pytrace.certify.gold_paths import first_of_each_path, read_questions
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.kg import KnowledgeBase
    from pytrace.report.certificates import certificate_page
    from pytrace.report.html_page import write_page

    own, checks = _split(settings, GenerationSettings(), GroundingSettings())
    questions = read_questions(data)
    if distinct:
        questions = first_of_each_path(questions)
    questions = questions[:limit]
    base = KnowledgeBase.load(kg, models.encoder, format=kg_format)
    results = {}
    for prompting in dict.fromkeys(promptings or _PROMPTINGS):
        responses, usage = _respond(base, questions, prompting, own, models, out / f"responses-{prompting}.jsonl")
        certificates = certify_responses(base, models, responses, checks, samples=samples)
        scores = score_certificates(certificates)
        write_certificates(out / f"certificates-{prompting}.jsonl", certificates)
        told = settings_in_words(checks, graph=kg.name, prompting=prompting, samples=samples, model=models.model.name)
        page = certificate_page(certificates, scores, base, title=f"{prompting}: {data.name}", settings=told)
        write_page(out / f"{prompting}.html", page)
        results[prompting] = {"scores": scores, "usage": usage}
        if not as_json:
            common.print_styled(f"{prompting}: {len(questions)} questions of {data.name}, {models.model.name}", "bold")
            print_scores(scores)
            common.print_text(
                f"tokens of this run: {usage.prompt_tokens:,} asked for, {usage.evaluated_tokens:,} evaluated, "
                f"{usage.generated_tokens:,} generated"
            )
            common.print_text()
    if as_json:
        common.print_json({"generation": own, "grounding": checks, "promptings": results})
    else:
        common.print_text(f"{out}: responses, certificates and pages")


def _respond(
    base: KnowledgeBase,
    questions: Sequence[GoldQuestion],
    prompting: Prompting,
    settings: GenerationSettings,
    models: Engine,
    path: Path,
) -> tuple[list[Response], Usage]:
    """Ask what the file has no response to yet, and return all responses with what this run spent."""
    from pytrace.certify.generative import FactFinder, Reasoner
    from pytrace.certify.response_files import ResponseFile, read_responses

    reasoner = Reasoner(models.model, settings)
    kept = {
        **msgspec.to_builtins(settings),
        "prompting": prompting,
        "model": models.model.fingerprint,
        "prompt": reasoner.prompt_hash(prompting),
        "facts": zlib.crc32(base.columns.triples.tobytes()) if settings.facts else None,
    }
    before = models.model.usage
    with ResponseFile(path, kept) as file:
        missing = [one for one in questions if one.id not in file.known]
        with common.progress(f"reasoning ({prompting})", len(missing)) as advance:

            def done(responses: list[Response]) -> None:
                file.add(responses)
                advance()

            finder = FactFinder(base, models.encoder)
            facts = finder.find([one.question for one in missing], settings.facts)
            reasoner.respond(missing, prompting, facts=facts, done=done)
    places = {one.id: place for place, one in enumerate(questions)}
    responses = [one for one in read_responses(path) if one.id in places]
    for one in responses:
        if one.question != questions[places[one.id]].question:
            raise StoreError(f"{path} holds a response to another question of the id {one.id!r}; name another --out")
    return sorted(responses, key=lambda one: places[one.id]), models.model.usage - before


def _split(
    overrides: Sequence[str], generation: GenerationSettings, grounding: GroundingSettings
) -> tuple[GenerationSettings, GroundingSettings]:
    """Give each of the two the settings that it has; what neither has, the first refuses."""
    from pytrace.methods.base import changed, setting_name

    checks = [one for one in overrides if setting_name(one) in grounding.__struct_fields__]
    rest = [one for one in overrides if one not in checks]
    return changed(generation, rest, what="certify generate"), changed(grounding, checks, what="certify")
