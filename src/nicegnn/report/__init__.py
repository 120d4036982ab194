"""The report: claims with verdicts, tables, figures and molecules on one page."""

from nicegnn.report.benchmark_report import Report, ReportConfig, make_report
from nicegnn.report.gallery import GalleryConfig

__all__ = ["GalleryConfig", "Report", "ReportConfig", "make_report"]
