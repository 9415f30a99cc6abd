"""Every claim of the paper, and the verdict on it.

``claim`` says what a claim, a finding and a verdict are; ``theory`` holds the claims that a
computation checks, ``findings`` those that trained models decide, by the ``rules`` of what a
``comparison`` of two rows may say.
"""

from collections.abc import Iterator
from pathlib import Path

from s4d_torch.paper.claims import theory
from s4d_torch.paper.claims.claim import CLAIMS, Claim, Finding, Holds, Verdict
from s4d_torch.paper.claims.findings import FINDINGS
from s4d_torch.paper.results import Results

__all__ = ["CLAIMS", "FINDINGS", "Claim", "Finding", "Holds", "Verdict", "judge", "theory"]


def judge(
    results: Results | str | Path | None = None, scale: str = "tiny"
) -> Iterator[tuple[Claim | Finding, Verdict]]:
    """All claims with their verdicts: what needs no training, the errata, then the findings.

    ``results`` are those of the paper's tables, or their folder, of which all seeds at ``scale``
    are taken; without results the findings stay undecided.
    """
    if isinstance(results, str | Path):
        if not Path(results).is_dir():
            raise FileNotFoundError(f"{results} is no folder of results")
        results = Results.read(results, scale)
    results = Results({}) if results is None else results
    for claim in sorted(CLAIMS.values(), key=lambda claim: bool(claim.right)):
        yield claim, claim.check()
    for finding in FINDINGS.values():
        yield finding, finding.decide(results.scores, results.pools, results.scale)
