"""The paper's tables, figures and claims.

``recipes`` holds the tables as data, ``experiments`` runs them, ``results`` reads what came of it
for ``claims`` to judge and ``report`` to show; ``figures`` need no training, and share their
mathematics with the claims in ``bases``.
"""

from s4d_torch.paper.figures import FIGURES, save_figure

__all__ = ["FIGURES", "save_figure"]
