"""Every claim of the paper: theorems and errata as checks, findings as decisions from results."""

from __future__ import annotations

from collections.abc import Iterator

from s4d_torch.paper.claims.claim import (
    CLAIMS,
    DECISIONS,
    FINDINGS,
    Claim,
    Finding,
    Holds,
    Results,
    Verdict,
)

__all__ = [
    "CLAIMS",
    "DECISIONS",
    "FINDINGS",
    "Claim",
    "Finding",
    "Holds",
    "Results",
    "Verdict",
    "judge",
]


def judge(results: Results | None = None) -> Iterator[tuple[Claim | Finding, Verdict]]:
    """All claims with their verdicts: what needs no training, the errata, then the findings."""
    for claim in sorted(CLAIMS.values(), key=lambda claim: bool(claim.right)):
        yield claim, claim.check()
    for finding in FINDINGS.values():
        yield finding, finding.decide(results or {})
