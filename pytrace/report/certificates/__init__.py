"""Certificates as one HTML file: figures, plots, and every response with its steps and its corner of the graph."""

from pytrace.report.certificates.certificate_page import certificate_page, write_page
from pytrace.report.certificates.page_summary import PageSummary, Scores
from pytrace.report.figures import Estimate

__all__ = ["Estimate", "PageSummary", "Scores", "certificate_page", "write_page"]
