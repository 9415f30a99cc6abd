"""The paper's figures as functions."""

from s4d_torch.paper.figures.draw import FIGURES, save_figure

__all__ = ["FIGURES", "save_figure"]
