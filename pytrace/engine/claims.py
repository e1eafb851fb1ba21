"""Claims beside texts: who decides about them, and the passages that they are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    """Open the model that decides about claims: the language model if it is called "lm", None without a name."""
    if checker is None:
        return None
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

    method = METHOD if entailment is None else f"{METHOD} ({entailment.name})"
    judged = []
    for checked in ClaimChecker(entailment=entailment).check_all(claims, documents):
        seen = dict.fromkeys((each.document, each.text) for one in checked.claims for each in one.evidence)
        evidence = Evidence(
            kind="sentences",
            context=tuple(text for _, text in seen),
            document_ids=tuple(dict.fromkeys(document for document, _ in seen)),
        )
        answer = Answer(checked.text, verdict(checked.claims), method, evidence, deterministic=entailment is None)
        judged.append((answer, checked.claims))
    return judged
