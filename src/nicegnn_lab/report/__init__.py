"""The report: tables and figures on one page."""
