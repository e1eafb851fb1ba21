"""A run as one HTML file: scores, plots, comparisons, and every question with each method's answer and evidence."""

from pytrace.report.runs.run_page import report_page

__all__ = ["report_page"]
