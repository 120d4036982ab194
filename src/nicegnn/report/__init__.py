"""The report: claims with verdicts, tables, figures and molecules on one page."""

from nicegnn.report.gallery import GalleryConfig
from nicegnn.report.page import Report, ReportConfig, make_report

__all__ = ["GalleryConfig", "Report", "ReportConfig", "make_report"]
