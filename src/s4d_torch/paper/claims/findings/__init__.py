"""The findings of the paper's experiments: what only trained models can decide.

Each stands with the rows it is about, the rule that decides it, and its place in the paper.
"""

from s4d_torch._registry import Registry
from s4d_torch.paper.claims.claim import Finding
from s4d_torch.paper.claims.findings import ablations, benchmarks, in_words

FINDINGS: Registry[Finding] = Registry("finding")
for _finding in (*ablations.FINDINGS, *benchmarks.FINDINGS, *in_words.FINDINGS):
    FINDINGS.register(_finding.name, _finding)

__all__ = ["FINDINGS", "ablations", "benchmarks", "in_words"]
