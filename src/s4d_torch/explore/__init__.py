"""Looking at models: what trained layers listen to, a page to explore them, models side by side.

:mod:`.timescales` has step sizes, time constants and frequencies, and draws them;
:mod:`.interactive` writes the page of ``s4d explore``; :mod:`.side_by_side` trains small models on
small data and reports on them, as ``s4d demo`` does.
"""

from s4d_torch.explore.interactive import describe_run, explore_page
from s4d_torch.explore.side_by_side import compare, digit_models, report
from s4d_torch.explore.timescales import Timescales, layer_timescales, save_timescales

__all__ = ["layer_timescales", "Timescales", "save_timescales", "describe_run", "explore_page"]
__all__ += ["digit_models", "compare", "report"]
