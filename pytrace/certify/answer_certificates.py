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
from pytrace.records import Answer, Triple


def certify_answer(
    base: KnowledgeBase,
    encoder: Encoder,
    answer: Answer,
    settings: GroundingSettings | None = None,
    *,
    answers: Sequence[str] = (),
) -> list[Certificate]:
    """Certify what an answer rests on.

    Parameters
    ----------
    base
        The knowledge base: any graph, or the triples that the chains were made of. With those every triple is a fact, and
        what the certificate tells is whether the chain hangs together and leads to the answer.
    encoder
        The one that made its vectors.
    answer
        Of TRACE, whose chains are certified one by one, or of a method whose evidence has a rationale.
    settings
        When a step counts as a fact.
    answers
        Gold answers; without them the steps must lead to the answer's own text.

    Returns
    -------
    list of Certificate
        One a chain, best first, or one of the rationale. Their ids are "chain 1", … or "thoughts".

    Raises
    ------
    InputError
        The answer has neither chains nor a rationale.

    Notes
    -----
    A triple becomes the step "head relation tail.", a sentence or a document of a chain the step "title: sentence", so that
    its "it" and "the company" are named.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Chain, Evidence
    >>> path = (Triple("Corfu", "part of", "Greece"), Triple("Greece", "speaks", "Greek"))
    >>> chain = Chain(path, (-0.1, -0.2), -0.3, False)
    >>> answer = Answer("What is spoken on Corfu?", "Greek", "trace", Evidence("triples", (), (), chains=(chain,)))
    >>> encoder = HashEncoder()
    >>> certify_answer(KnowledgeBase.in_memory(path, encoder), encoder, answer)[0].kind
    'faithful'
    """
    evidence = answer.evidence
    if evidence.chains:
        paths = [tuple(map(_step, chain.triples)) for chain in evidence.chains]
        names = [f"chain {number}" for number in range(1, len(paths) + 1)]
    elif evidence.rationale:
        paths, names = [evidence.rationale], ["thoughts"]
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


def _step(triple: Triple) -> str:
    return verbalise(triple.head, triple.relation, triple.tail) if triple.relation else f"{triple.head}: {triple.tail}"
