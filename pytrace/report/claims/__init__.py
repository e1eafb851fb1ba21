"""Responses beside texts as one HTML file: each with its claims in colour, and the sentence behind every one."""

from pytrace.report.claims.claim_page import claim_page

__all__ = ["claim_page"]
