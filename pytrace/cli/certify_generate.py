"""``pytrace certify generate``: let a model reason about questions, and certify what it wrote."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click
import msgspec

from pytrace.cli import common
from pytrace.cli.certifying import certify_responses, print_scores, settings_in_words, write_certificates
from pytrace.cli.options import Options, Result, option, takes
from pytrace.cli.shared_options import DISTINCT, GOLD_DATA, GRAPH, GRAPH_FORMAT, LIMIT, MODELS, SETTINGS
from pytrace.engine.loading import Engine
from pytrace.errors import StoreError

if TYPE_CHECKING:
    from pytrace.certify.certificate_records import GoldQuestion, Response
    from pytrace.certify.generative import GenerationSettings
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.kg import KnowledgeBase
    from pytrace.records import Usage

_Prompting = Literal["cot", "cot-plan", "cot-sc"]
_PROMPTINGS: tuple[_Prompting, ...] = get_args(_Prompting)


class _Options(Options):
    kg: Path = GRAPH
    kg_format: str | None = GRAPH_FORMAT
    data: Path = GOLD_DATA
    promptings: tuple[_Prompting, ...] = option(
        "How the model is asked: few-shot chain of thought, after a plan, or several samples. May be repeated.  [default: all]",
        "--prompting",
    )
    limit: int | None = LIMIT
    distinct: bool = DISTINCT
    samples: Literal["majority", "best", "all"] = option(
        "Of cot-sc's responses to a question: the first of the majority, the best (as the paper reports), or each.",
        default="majority",
    )
    out: Path = option(
        "Responses are kept here as they are written, and a killed run goes on; then the certificates and a page.",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
    )
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS
    as_json: bool


@click.command()
@takes(_Options)
def generate(options: _Options) -> Result:
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
    from pytrace.report.certificates import write_page

    models, out, samples = options.models, options.out, options.samples
    generation, grounding = _split(options.settings, GenerationSettings(), GroundingSettings())
    questions = read_questions(options.data)
    if options.distinct:
        questions = first_of_each_path(questions)
    questions = questions[: options.limit]
    base = KnowledgeBase.load(options.kg, models.encoder, format=options.kg_format)
    results = {}
    for prompting in dict.fromkeys(options.promptings or _PROMPTINGS):
        path = out / f"responses-{prompting}.jsonl"
        responses, usage = _respond(base, questions, prompting, generation, models, path)
        certificates = certify_responses(base, models, responses, grounding, samples=samples)
        scores = score_certificates(certificates)
        write_certificates(out / f"certificates-{prompting}.jsonl", certificates)
        words = settings_in_words(
            grounding, graph=options.kg.name, prompting=prompting, samples=samples, model=models.model.name
        )
        title = f"{prompting}: {options.data.name}"
        write_page(out / f"{prompting}.html", certificates, scores, base, title=title, settings=words)
        results[prompting] = {"scores": scores, "usage": usage}
        if not options.as_json:  # at once, for the next way of asking may take hours
            common.print_styled(f"{prompting}: {len(questions)} questions of {options.data.name}, {models.model.name}")
            print_scores(scores)
            common.print_text(
                f"tokens of this run: {usage.prompt_tokens:,} asked for, {usage.evaluated_tokens:,} evaluated, "
                f"{usage.generated_tokens:,} generated\n"
            )
    document = {"generation": generation, "grounding": grounding, "promptings": results}
    return Result(document, f"{out}: responses, certificates and pages")


def _respond(
    base: KnowledgeBase,
    questions: Sequence[GoldQuestion],
    prompting: _Prompting,
    settings: GenerationSettings,
    models: Engine,
    path: Path,
) -> tuple[list[Response], Usage]:
    """Ask what the file has no response to yet, and return all responses with what this run spent."""
    from pytrace.certify.facts import FactFinder
    from pytrace.certify.generative import Reasoner
    from pytrace.certify.response_files import ResponseFile, read_responses

    reasoner = Reasoner(models.model, settings)
    recipe = {
        **msgspec.to_builtins(settings),
        "prompting": prompting,
        "model": models.model.fingerprint,
        "prompt": reasoner.prompt_hash(prompting),
        "facts": zlib.crc32(base.columns.triples.tobytes()) if settings.facts else None,
    }
    before = models.model.usage
    with ResponseFile(path, recipe) as file:
        missing = [question for question in questions if question.id not in file.known]
        with common.progress(f"reasoning ({prompting})", len(missing)) as advance:

            def done(responses: list[Response]) -> None:
                file.add(responses)
                advance()

            finder = FactFinder(base, models.encoder)
            facts = finder.find([question.question for question in missing], settings.facts)
            reasoner.respond(missing, prompting, facts=facts, done=done)
    ranks = {question.id: rank for rank, question in enumerate(questions)}
    responses = [response for response in read_responses(path) if response.id in ranks]
    for response in responses:
        if response.question != questions[ranks[response.id]].question:
            raise StoreError(
                f"{path} holds a response to another question of the id {response.id!r}; name another --out"
            )
    return sorted(responses, key=lambda response: ranks[response.id]), models.model.usage - before


def _split(
    overrides: Sequence[str], generation: GenerationSettings, grounding: GroundingSettings
) -> tuple[GenerationSettings, GroundingSettings]:
    """Give each of the two the settings that it has; what neither has, the first refuses."""
    from pytrace.methods.base import changed, setting_name

    of_grounding = [each for each in overrides if setting_name(each) in grounding.__struct_fields__]
    others = [each for each in overrides if each not in of_grounding]
    return changed(generation, others, what="certify generate"), changed(grounding, of_grounding, what="certify")
