"""The paper's figures, in one ``style``; each is registered under the name that draws it.

A module of figures is added to the imports below, which give the order in the paper.
"""

from s4d_torch.paper.figures.style import FIGURES, FORMATS, check_format, save_figure

# isort: off
from s4d_torch.paper.figures import overview
from s4d_torch.paper.figures import starts
from s4d_torch.paper.figures import legs
from s4d_torch.paper.figures import eigenvalues
from s4d_torch.paper.figures import low_rank
# isort: on

__all__ = ["FIGURES", "FORMATS", "check_format", "save_figure"]
__all__ += ["eigenvalues", "legs", "low_rank", "overview", "starts"]
