"""The rules by which results decide a finding of the paper's experiments.

A finding is a statement about pairs of rows, and each pair is compared in each column, as
:mod:`s4d_torch.paper.claims.comparison` says. A comparison *supports* the statement or
*contradicts* it only beyond noise. That rows are alike is supported where the whole interval of
their difference lies within ``MARGIN``: two points, or 10 % of an RMSE, about what the paper's own
choices differ by; that one is far better, where it is by more than that. The statement fails where
one comparison contradicts it; among many, one does so by chance, and the noise it has to exceed
grows with their number. It holds where all comparisons support it. One that speaks of many
("often") holds where so many support it, and fails where more contradict it; one that speaks of
every dataset waits for all of them. Others leave aside what cannot tell: an open comparison whose
test cases would hide a difference of the margin, whatever the number of seeds. Anything between is
not decided; then the verdict says how many seeds would decide it, if they spread as those at hand
do.
"""

from s4d_torch.paper.claims.rules.grouped import (
    AboveChance,
    AllOf,
    BestCompetitive,
    BestWins,
    BetterOnAverage,
    LosesLittle,
)
from s4d_torch.paper.claims.rules.pairwise import (
    ALMOST_ALL,
    MARGIN,
    MAYBE,
    OFTEN,
    Alike,
    Better,
    Competitive,
    FarBetter,
    LosesMost,
    Pairwise,
)

__all__ = [
    "ALMOST_ALL", "MARGIN", "MAYBE", "OFTEN",
    "Pairwise", "Better", "FarBetter", "Alike", "Competitive", "LosesMost",
    "AllOf", "BetterOnAverage", "BestWins", "BestCompetitive", "AboveChance", "LosesLittle",
]  # fmt: skip
