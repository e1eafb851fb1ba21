"""Certificates of answers: the chains that TRACE answered from, or the thoughts of a method that thinks, as steps."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.certificate_records import Certificate, Response
from pytrace.certify.certifier import Certifier
from pytrace.certify.grounding import GroundingSettings
from pytrace.certify.response_parsing import ParsedResponse
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase, verbalise
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Answer, TextUnit, Unit


def certify_answer(
    base: KnowledgeBase,
    encoder: Encoder,
    answer: Answer,
    settings: GroundingSettings | None = None,
    *,
    answers: Sequence[str] = (),
) -> list[Certificate]:
    """Certify what an answer rests on."""
    # A triple becomes the step "head relation tail.", a sentence or a document of a chain the step "title: sentence",
    # so that its "it" and "the company" are named.
    evidence = answer.evidence
    if evidence.chains:
        paths = [tuple(map(_step, chain.units)) for chain in evidence.chains]
        names = [f"chain {number}" for number in range(1, len(paths) + 1)]
    elif evidence.reasoning.rationale:
        paths, names = [evidence.reasoning.rationale], ["thoughts"]
    else:
        raise InputError(
            f"{answer.method} answers from no chain and without thoughts, so there is nothing to certify; use trace, "
            "trace-doc, cot, cot-sc or verify-and-edit"
        )
    responses = [
        Response(name, answer.question, "\n".join(path), tuple(answers))
        for name, path in zip(names, paths, strict=True)
    ]
    parsed = [ParsedResponse("structured" if path else "unstructured", path, answer.text) for path in paths]
    return Certifier(base, encoder, settings).certify_parsed(responses, parsed)


def _step(unit: Unit) -> str:
    if isinstance(unit, TextUnit):
        return f"{unit.title}: {unit.body}"
    return verbalise(unit.head, unit.relation, unit.tail)
