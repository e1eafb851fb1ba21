"""Claims beside texts: what a text says of each sentence of a response, without a model."""

from pytrace.certify.claims.checker import CheckedClaim, CheckedResponse, ClaimChecker, ClaimEvidence, ClaimLabel

__all__ = ["CheckedClaim", "CheckedResponse", "ClaimChecker", "ClaimEvidence", "ClaimLabel"]
