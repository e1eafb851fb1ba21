"""Claims beside texts: who decides about them, and the passages that they are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytrace.models.edge.edge_model import shipped_edge
from pytrace.records import Answer, Document, Evidence

if TYPE_CHECKING:
    from pytrace.certify.claims.claim_writing import ClaimWriter
    from pytrace.certify.claims.entailment import EntailmentModel
    from pytrace.check_records import CheckedClaim
    from pytrace.engine.corpus import IndexedCorpus
    from pytrace.engine.loading import Engine

# Passages of an index that a claim is compared with.
_PASSAGES = 10

METHOD = "checker"
"""What answers to claims name as their method where texts were asked, and no language model."""


def open_checker(checker: str | None, models: Engine) -> EntailmentModel | None:
    """Open the model that decides about claims: by default the small one, where it is installed; "lm" is the language model.

    None, as of "words", leaves the claims to their words.
    """
    if checker == "words" or (checker is None and shipped_edge() is None):
        return None
    if checker is None:
        from pytrace.certify.claims.entailment_edge import EdgeEntailment

        return EdgeEntailment(models.edge_model())
    if checker == "lm":
        from pytrace.certify.claims.entailment_prompts import PromptedEntailment

        return PromptedEntailment(models.model)
    from pytrace.certify.claims.entailment_onnx import open_entailment

    return open_entailment(checker, device="cuda" if models.device == "cuda" else "cpu", threads=models.threads)


def open_writer(atomic: bool, models: Engine) -> ClaimWriter | None:
    """Return the language model as what writes claims as single facts, if that is wanted."""
    if not atomic:
        return None
    from pytrace.certify.claims.claim_writing import ClaimWriter

    return ClaimWriter(models.model)


def passages_of(response: str, corpus: IndexedCorpus, models: Engine, where: Sequence[str] = ()) -> list[Document]:
    """Return the passages of an index that are nearest to a response's claims, by vectors and by words."""
    from pytrace.certify.claims.splitting import claim_places

    claims = [response[start:end] for start, end in claim_places(response)]
    found = corpus.find(claims, models, "rrf", _PASSAGES, where=where) if claims else []
    return list({passage.id: passage for of_claim in found for passage in of_claim}.values())


def judge_by_texts(
    claims: Sequence[str], documents: Sequence[Document], entailment: EntailmentModel | None = None
) -> list[tuple[Answer, tuple[CheckedClaim, ...]]]:
    """Say whether texts support each of some claims: answers of FEVER's labels, and what was found of each part of a claim."""
    from pytrace.certify.claims import ClaimChecker
    from pytrace.certify.claims.answer_claims import verdict
    from pytrace.certify.claims.entailment_edge import EdgeEntailment

    method = METHOD if entailment is None else f"{METHOD} ({entailment.name})"
    repeatable = entailment is None or isinstance(entailment, EdgeEntailment)
    judged = []
    for checked in ClaimChecker(entailment=entailment).check_all(claims, documents):
        seen = dict.fromkeys((each.document, each.text) for one in checked.claims for each in one.evidence)
        evidence = Evidence(
            kind="sentences",
            context=tuple(text for _, text in seen),
            document_ids=tuple(dict.fromkeys(document for document, _ in seen)),
        )
        answer = Answer(checked.text, verdict(checked.claims), method, evidence, deterministic=repeatable)
        judged.append((answer, checked.claims))
    return judged
