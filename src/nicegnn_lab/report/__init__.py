"""The report: what of the paper holds, tables and figures on one page."""
