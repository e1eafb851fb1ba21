"""The score and the reason that evaluators' metrics give for a response, of what `ClaimChecker` says of its claims."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.certify.claims import ClaimChecker
from pytrace.integrations.checks import documents_of, unsupported
from pytrace.records import Document


def faithfulness(checker: ClaimChecker, response: str, contexts: Sequence[str | Document]) -> tuple[float, str]:
    """Return the share of a response's claims that its contexts support, and why in words.

    A response that claims nothing scores 0, and so does one without contexts: nothing shows that either is faithful, and a
    gate that it passed would be open.
    """
    given = [context for context in contexts if (context if isinstance(context, str) else context.text).strip()]
    checked = checker.check(response, documents_of(given) if given else [])
    if not checked.claims:
        return 0.0, "the response claims nothing: it has no name, number or other content word"
    held = sum(claim.label == "supported" for claim in checked.claims)
    reason = f"{held} of {len(checked.claims)} claims {'is' if held == 1 else 'are'} supported by the contexts"
    if not given:
        reason += ", which hold no text"
    return checked.score, reason if held == len(checked.claims) else f"{reason}:\n{unsupported(checked)}"
