"""Certificates as one HTML file: figures, plots, and every response with its steps and its corner of the graph."""

from pytrace.report.certificates.response_page import certificate_page

__all__ = ["certificate_page"]
