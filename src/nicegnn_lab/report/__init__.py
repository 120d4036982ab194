"""The report: what of the paper holds, tables and figures on one page."""

from nicegnn_lab.report.page import Report, make_report

__all__ = ["Report", "make_report"]
