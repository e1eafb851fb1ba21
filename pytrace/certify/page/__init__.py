"""Certificates as one HTML file: figures, plots, and every response with its steps and its corner of the graph."""

from pytrace.certify.page.document import certificate_page, write_page
from pytrace.certify.page.summary import PageSummary, Scores
from pytrace.pages.figures import Estimate

__all__ = ["Estimate", "PageSummary", "Scores", "certificate_page", "write_page"]
