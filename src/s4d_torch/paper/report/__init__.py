"""The report: tables with ours beside the paper's, curves, figures and verdicts, as a page.

``page`` and ``chart`` make pages of any content, ``paper_report`` that of the paper.
"""

from s4d_torch.paper.report.chart import Line
from s4d_torch.paper.report.page import (
    Chart,
    Code,
    Heading,
    Page,
    Paragraph,
    Picture,
    Sound,
    Table,
)
from s4d_torch.paper.report.paper_report import make_report, write_report

__all__ = ["Chart", "Code", "Heading", "Line", "Page", "Paragraph", "Picture", "Sound", "Table"]
__all__ += ["make_report", "write_report"]
