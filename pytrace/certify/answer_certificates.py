"""Certificates of answers: the chains that they were found along, or the thoughts of a method that thinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from pytrace.certify.certifier import Certifier
from pytrace.certify.grounding import GroundingSettings
from pytrace.certify.response_parsing import ParsedResponse
from pytrace.check_records import Certificate, Response
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase, verbalise
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Answer, Chain, Document, TextUnit, Unit


def certify_answer(
    base: KnowledgeBase,
    encoder: Encoder,
    answer: Answer,
    settings: GroundingSettings | None = None,
    *,
    answers: Sequence[str] = (),
    documents: Sequence[Document] = (),
) -> list[Certificate]:
    """Certify what an answer rests on: the chains that it was found along, or the thoughts of a method that thinks.

    Of `documents` the steps of a chain say where they stand.
    """
    # A triple becomes the step "head relation tail.", a sentence or a document of a chain the step "title: sentence",
    # so that its "it" and "the company" are named.
    evidence = answer.evidence
    if evidence.chains:
        paths = [tuple(map(_step, chain.units)) for chain in evidence.chains]
        names = [f"chain {number}" for number in range(1, len(paths) + 1)]
    elif evidence.reasoning.rationale:
        paths, names = [evidence.reasoning.rationale], ["thoughts"]
    else:
        used = answer.method.partition(":")[0]
        others = [method for method in ("trace", "trace-doc", "cot", "cot-sc", "verify-and-edit") if method != used]
        raise InputError(
            f"{answer.method} answered from no chain and without thoughts, so there is nothing to certify; use "
            f"{', '.join(others[:-1])} or {others[-1]}"
        )
    responses = [
        Response(name, answer.question, "\n".join(path), tuple(answers))
        for name, path in zip(names, paths, strict=True)
    ]
    parsed = [ParsedResponse("structured" if path else "unstructured", path, answer.text) for path in paths]
    certificates = Certifier(base, encoder, settings).certify_parsed(responses, parsed)
    by_id = {document.id: document for document in documents}
    return [
        _with_sources(certificate, chain, by_id) for certificate, chain in zip_longest(certificates, evidence.chains)
    ]


def _with_sources(certificate: Certificate, chain: Chain | None, documents: Mapping[str, Document]) -> Certificate:
    if chain is None or len(chain.units) != len(certificate.steps):
        return certificate
    steps = [
        msgspec.structs.replace(step, source=documents[unit.document_id].citation(unit.sentence))
        if unit.document_id in documents
        else step
        for step, unit in zip(certificate.steps, chain.units, strict=True)
    ]
    return msgspec.structs.replace(certificate, steps=tuple(steps))


def _step(unit: Unit) -> str:
    if isinstance(unit, TextUnit):
        return f"{unit.title}: {unit.body}"
    return verbalise(unit.head, unit.relation, unit.tail)
