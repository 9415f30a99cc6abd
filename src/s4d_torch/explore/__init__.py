"""Looking at models: what trained layers listen to, a page to explore them, models side by side.

:mod:`.timescales` has step sizes, time constants and frequencies, and draws them;
:mod:`.interactive` writes the page of ``s4d explore``; :mod:`.side_by_side` trains two small models
on spoken digits, :mod:`.live_words` streams some to one of them, and :mod:`.demo_page` reports on
both, as ``s4d demo`` does.
"""

from s4d_torch.explore.demo_page import demo_page
from s4d_torch.explore.interactive import describe_run, explore_page
from s4d_torch.explore.live_words import LiveWord, listen
from s4d_torch.explore.side_by_side import Trial, compare, spoken_models
from s4d_torch.explore.timescales import Timescales, layer_timescales, save_timescales

__all__ = ["layer_timescales", "Timescales", "save_timescales", "describe_run", "explore_page"]
__all__ += ["spoken_models", "compare", "Trial", "listen", "LiveWord", "demo_page"]
