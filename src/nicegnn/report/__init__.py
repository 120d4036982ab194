"""The report: claims with verdicts, tables, figures and molecules on one page."""

from nicegnn.report.claims import CLAIMS, judge_claims
from nicegnn.report.evidence import Evidence, read_evidence
from nicegnn.report.finding import Claim, Finding, Part, Verdict
from nicegnn.report.gallery import GalleryConfig
from nicegnn.report.page import Report, ReportConfig, make_report

__all__ = [
    "CLAIMS",
    "Claim",
    "Evidence",
    "Finding",
    "GalleryConfig",
    "Part",
    "Report",
    "ReportConfig",
    "Verdict",
    "judge_claims",
    "make_report",
    "read_evidence",
]
