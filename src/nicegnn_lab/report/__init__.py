"""The report: claims with verdicts, tables, figures and molecules on one page."""

from nicegnn_lab.report.benchmark_report import Report, ReportConfig, make_report
from nicegnn_lab.report.gallery import GalleryConfig

__all__ = ["GalleryConfig", "Report", "ReportConfig", "make_report"]
