"""The report: tables, curves and verdicts as a page."""
