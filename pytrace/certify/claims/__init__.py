"""Claims beside texts: what a text says of each sentence of a response, without a model."""

from pytrace.certify.claims.checker import CheckedResponse, ClaimChecker
from pytrace.check_records import CheckedClaim, ClaimEvidence, ClaimLabel

__all__ = ["CheckedClaim", "CheckedResponse", "ClaimChecker", "ClaimEvidence", "ClaimLabel"]
