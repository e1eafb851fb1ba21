"""``pytrace certify``: whether the steps of responses are facts of a knowledge graph, hang together and lead to the answer.

``certify generate`` first has a model reason about questions, and certifies what it wrote.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click
import msgspec

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.certify_discriminate import Discriminate
from pytrace.cli.certify_paths import Paths
from pytrace.cli.certify_table import Table
from pytrace.cli.commands import Command, Output, click_group, option
from pytrace.cli.shared_options import (
    ATOMIC,
    CHECKER,
    DISTINCT,
    GOLD_DATA,
    GRAPH,
    GRAPH_FORMAT,
    LIMIT,
    MAX_HOPS,
    MIN_HOPS,
    MODELS,
    SETTINGS,
)
from pytrace.engine.loading import Engine
from pytrace.errors import StoreError

if TYPE_CHECKING:
    from pytrace.certify.certification_scores import CertificationScores, Interval, Quality
    from pytrace.certify.generative import GenerationSettings
    from pytrace.certify.grounding import GroundingSettings
    from pytrace.check_records import Certificate, GoldQuestion, Response
    from pytrace.kg import KnowledgeBase
    from pytrace.records import Usage

_MARKS = {"supported": "+", "unsupported": "-", "undecided": "?"}
_Samples = Literal["majority", "best", "all"]
_Steps = Literal["auto", "numbered", "sentences"]
_Prompting = Literal["cot", "cot-plan", "cot-sc"]
_PROMPTINGS: tuple[_Prompting, ...] = get_args(_Prompting)


class Certify(Command):
    """Check the reasoning of responses, of any model, against a knowledge graph or texts.

    Against texts (--docs, --index, or contexts in the rows as in RAGAS and DeepEval) each claim of a response is supported, contradicted
    or not there. Its words and the small model decide together, or --checker does.

    Against a graph, each line of the responses has `question`, `response` (or several as `responses`), and if known `answers` and
    `gold_paths`. A step is a fact if a triple of the graph says the same; a response is faithful if all steps are facts, follow
    from each other and lead to a gold answer. --set changes what counts as a fact: rule=paper, threshold=0.7,
    entity_threshold=0.8, relation_margin=0.2, top=10.
    """

    kg: str | None = option(
        "Graph: TSV, JSONL, N-Triples, Turtle, the directory that 'kg build' or 'kg index' made, or the address of a SPARQL "
        "endpoint, from which the facts around the responses' entities are read.",
        metavar="KB|URL",
    )
    kg_format: str | None = GRAPH_FORMAT
    docs: tuple[Path, ...] = option("Documents to check against: a file or a folder. May be repeated.")
    index: Path | None = option("Index to check against; each claim gets its own passages.", metavar="DIR")
    responses: Path | None = option("JSON Lines with question, response and gold answers, or with contexts.")
    checker: str | None = CHECKER
    atomic: bool = ATOMIC
    fail_under: float | None = option(
        "Against texts: exit with status 3 if the mean share of supported claims is lower.", ge=0, le=1
    )
    steps: _Steps = option(
        "What a step is: a numbered line, a sentence, or the first that a response has of numbered lines, lists, tables and sentences.",
        default="auto",
    )
    samples: _Samples = option(
        "Responses to certify if a question has several: the first of the majority, the best, or each.",
        default="majority",
    )
    limit: int | None = option("Maximum number of responses.", ge=1)
    out: Path | None = option("File for all certificates.", metavar="FILE.jsonl")
    page: Path | None = option("File for a page that shows them.", metavar="FILE.html")
    plots: Path | None = option("Draw errors and gap as PNG and SVG.", metavar="DIR")
    explain: bool = option("Show every response with its steps.")
    settings: tuple[str, ...] = SETTINGS
    models: Engine = MODELS

    def check(self) -> None:
        if self.kg is not None and (self.docs or self.atomic or {self.index, self.fail_under, self.checker} != {None}):
            raise click.UsageError(
                "--docs, --index, --checker, --atomic and --fail-under are for texts; leave out --kg"
            )
        if self.docs and self.index is not None:
            raise click.UsageError("give --docs or --index, not both")
        if self.kg is None and (self.plots is not None or self.settings):
            raise click.UsageError("--plots and --set are for a graph; give --kg PATH")

    def run(self) -> Output | None:
        if click.get_current_context().invoked_subcommand is not None:  # click calls the group itself in any case
            return None
        kg, responses, models = self.kg, self.responses, self.models
        if responses is None:
            raise click.UsageError(
                "give --kg PATH and --responses FILE, or --responses FILE with --docs, --index or contexts in its rows, or one of "
                "the commands discriminate, generate, paths and table"
            )
        if kg is None:
            from pytrace.cli.certify_claims import certify_claims

            return certify_claims(
                responses,
                self.docs,
                self.index,
                models,
                limit=self.limit,
                out=self.out,
                page=self.page,
                checker=self.checker,
                atomic=self.atomic,
                explain=self.explain,
                fail_under=self.fail_under,
            )
        from pytrace.certify.grounding import GroundingSettings
        from pytrace.certify.response_files import read_responses
        from pytrace.methods.base import changed

        settings = changed(GroundingSettings(), self.settings, what="certify")
        rows = list(read_responses(responses, limit=self.limit))
        base = self._base(kg, rows)
        words = {"graph": Path(kg).name, "steps": self.steps, "samples": self.samples, "encoder": models.encoder.name}
        title = f"Responses of {responses.name}"
        certificates = _certify(base, models, rows, settings, self.steps, self.samples)
        scores = _write(certificates, base, settings, out=self.out, page=self.page, title=title, words=words)
        if self.plots is not None:
            from pytrace.report.certificates.certificate_charts import save_plots

            save_plots(scores, self.plots)

        def show_text() -> None:
            if self.explain:
                for certificate in certificates:
                    print_certificate(certificate)
                common.print_text()
            print_scores(scores)

        return Output({"scores": scores, "settings": settings, "certificates": certificates}, show_text)

    def _base(self, kg: str, rows: Sequence[Response]) -> KnowledgeBase:
        """Read the graph, or what an endpoint has of it around the responses."""
        from pytrace.kg import KnowledgeBase

        if not kg.lower().startswith(("http://", "https://")):
            return KnowledgeBase.load(kg, self.models.encoder, format=self.kg_format)
        from pytrace.certify.endpoint_facts import base_of_endpoint
        from pytrace.engine.knowledge import open_store

        with open_store(kg, format=self.kg_format) as store:
            return base_of_endpoint(store, self.models.encoder, rows)


class Generate(Command):
    """Let the language model answer questions in numbered steps, from memory, and certify its reasoning.

    For each way of asking, DIR holds the responses (which `pytrace certify --responses` reads, too), the certificates and a
    page. --set changes how responses are written (temperature=0.7, top_p=0.9,
    samples=4, demonstrations=5, structured=true, facts=0) and what counts as a fact (see `pytrace certify --help`).
    """

    kg: Path = GRAPH
    kg_format: str | None = GRAPH_FORMAT
    data: Path = GOLD_DATA
    min_hops: int | None = MIN_HOPS
    max_hops: int | None = MAX_HOPS
    promptings: tuple[_Prompting, ...] = option(
        "How the model is asked: few-shot chain of thought, after a plan, or several samples. May be repeated.  [default: all]",
        "--prompting",
    )
    limit: int | None = LIMIT
    distinct: bool = DISTINCT
    samples: _Samples = option(
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

    def run(self) -> Output:
        from pytrace.certify.generative import GenerationSettings
        from pytrace.certify.gold_paths import first_of_each_path, of_hops, read_questions
        from pytrace.certify.grounding import GroundingSettings
        from pytrace.kg import KnowledgeBase
        from pytrace.methods.base import changed, setting_name

        models, out, samples = self.models, self.out, self.samples
        # What neither of the two has, the first refuses.
        checks = [each for each in self.settings if setting_name(each) in GroundingSettings.__struct_fields__]
        others = [each for each in self.settings if each not in checks]
        generation = changed(GenerationSettings(), others, what="certify generate")
        grounding = changed(GroundingSettings(), checks, what="certify")
        questions = of_hops(read_questions(self.data), self.min_hops, self.max_hops)
        if self.distinct:
            questions = first_of_each_path(questions)
        questions = questions[: self.limit]
        base = KnowledgeBase.load(self.kg, models.encoder, format=self.kg_format)
        results = {}
        for prompting in dict.fromkeys(self.promptings or _PROMPTINGS):
            responses, usage = self._respond(base, questions, prompting, generation)
            words = {"graph": self.kg.name, "prompting": prompting, "samples": samples, "model": models.model.name}
            file, page = out / f"certificates-{prompting}.jsonl", out / f"{prompting}.html"
            title = f"{prompting}: {self.data.name}"
            certificates = _certify(base, models, responses, grounding, "numbered", samples)
            scores = _write(certificates, base, grounding, out=file, page=page, title=title, words=words)
            results[prompting] = {"scores": scores, "usage": usage}
            if not self.as_json:  # at once, for the next way of asking may take hours
                common.print_styled(f"{prompting}: {len(questions)} questions of {self.data.name}, {models.model.name}")
                print_scores(scores)
                common.print_text(
                    f"tokens of this run: {usage.prompt_tokens:,} asked for, {usage.evaluated_tokens:,} evaluated, "
                    f"{usage.generated_tokens:,} generated\n"
                )
        document = {"generation": generation, "grounding": grounding, "promptings": results}
        return Output(document, f"{out}: responses, certificates and pages")

    def _respond(
        self,
        base: KnowledgeBase,
        questions: Sequence[GoldQuestion],
        prompting: _Prompting,
        settings: GenerationSettings,
    ) -> tuple[list[Response], Usage]:
        """Ask what the file has no response to yet, and return all responses with what this run spent."""
        from pytrace.certify.generative import FactFinder, Reasoner
        from pytrace.certify.response_files import ResponseFile, read_responses

        models, path = self.models, self.out / f"responses-{prompting}.jsonl"
        reasoner = Reasoner(models.model, settings)
        recipe = {
            **msgspec.to_builtins(settings),
            "prompting": prompting,
            "model": models.model.fingerprint,
            "prompt": reasoner.prompt_hash(prompting),
            # A response depends on the graph only where its facts stand in the prompt.
            "facts": zlib.crc32(base.columns.triples.tobytes()) if settings.facts else None,
        }
        before = models.model.usage
        processes.last_words("the same command goes on with what is stored")
        with ResponseFile(path, recipe) as file:
            missing = [question for question in questions if question.id not in file.known]
            with common.progress(f"reasoning ({prompting})", len(missing)) as advance:

                def done(responses: list[Response]) -> None:
                    file.add(responses)
                    advance()

                finder = FactFinder(base, models.encoder)
                facts = finder.find([question.question for question in missing], settings.facts)
                reasoner.respond(missing, prompting, facts=facts, done=done)
        # In the questions' order; the file has that in which they were answered, by this run and earlier ones.
        ranks = {question.id: rank for rank, question in enumerate(questions)}
        responses = [response for response in read_responses(path) if response.id in ranks]
        for response in responses:
            if response.question != questions[ranks[response.id]].question:
                raise StoreError(
                    f"{path} holds a response to another question of the id {response.id!r}; name another --out"
                )
        return sorted(responses, key=lambda response: ranks[response.id]), models.model.usage - before


def _certify(
    base: KnowledgeBase,
    models: Engine,
    responses: Sequence[Response],
    settings: GroundingSettings,
    steps: _Steps,
    samples: _Samples,
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


def _write(
    certificates: Sequence[Certificate],
    base: KnowledgeBase,
    settings: GroundingSettings,
    *,
    out: Path | None,
    page: Path | None,
    title: str,
    words: Mapping[str, str],
) -> CertificationScores:
    """Score certificates, and write them and their page, each in one step; `words` are options that the page names."""
    from pytrace.certify.certification_scores import score_certificates
    from pytrace.report.certificates import certificate_page
    from pytrace.report.html_page import write_page
    from pytrace.storage.files import atomic_output
    from pytrace.storage.text import dump_json

    scores = score_certificates(certificates)
    if out is not None:
        with atomic_output(out) as stream:
            stream.writelines(dump_json(certificate).encode() + b"\n" for certificate in certificates)
    if page is not None:
        # `least_ratio` is what the setting of the entities' threshold comes to, which by default depends on the rule.
        chosen = {**msgspec.to_builtins(settings), "entity_threshold": settings.least_ratio, **words}
        shown = {name: str(value) for name, value in chosen.items()}
        write_page(page, certificate_page(certificates, scores, base, title=title, settings=shown))
    return scores


def print_scores(scores: CertificationScores) -> None:
    """Print what certificates say together."""
    common.print_text(f"{scores.n} responses: {_counts(scores.kinds)}")
    common.print_text(f"errors: {_counts(scores.errors)}")
    common.print_text(f"steps: {_counts(scores.steps)}")
    rows = [] if scores.answer is None else [("answer", *_quality(scores.answer))]
    common.print_table(("", "PRECISION", "RECALL", "F1"), [*rows, ("reasoning", *_quality(scores.reasoning))])
    undecided, share = scores.kinds["undecided"], scores.faithful_share
    if undecided and share.low is not None and share.high is not None:
        common.print_text(
            f"the graph cannot decide {undecided} of {scores.n}: they count for answers, not for reasoning and gap; "
            f"{100 * share.low:.1f} to {100 * share.high:.1f} % of structured responses are faithful"
        )
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
    error = ""
    if certificate.error is not None:
        error = " (incoherent)" if certificate.error == "incoherent" else f" ({certificate.error} error)"
    common.print_text()
    common.print_styled(common.printable(f"{certificate.id}: {certificate.question}"))
    common.print_text(f"{certificate.kind}{error}: {common.printable(certificate.reason)}")
    for number, step in enumerate(certificate.steps, 1):
        common.print_text(f"  {_MARKS[step.status]} {number}. {common.printable(step.text)}")
        common.print_text(f"       {common.printable(step.reason)}")
        if step.source:
            common.print_text(f"       from {common.printable(step.source)}")
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


certify = click_group(Certify, Discriminate, Generate, Paths, Table)
