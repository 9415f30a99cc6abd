"""The grid of experiments: what is run, what it costs, where it runs, and what is shown meanwhile.

``experiment`` is one run and its result, ``cost`` its time and memory; ``watch`` shows a grid,
``local_workers`` and ``engines`` run it, ``grid`` puts them together.
"""

from s4d_torch.paper.experiments.cost import Durations, needed_memory, seconds_per_mode_step
from s4d_torch.paper.experiments.engines import ENGINES_OF_GRID, run_one
from s4d_torch.paper.experiments.experiment import (
    MEASURES,
    Experiment,
    Result,
    read_result,
    run_experiment,
    write_result,
)
from s4d_torch.paper.experiments.grid import run_grid
from s4d_torch.paper.experiments.watch import Watch, grid_view

__all__ = ["ENGINES_OF_GRID", "MEASURES", "Durations", "Experiment", "Result", "Watch"]
__all__ += ["grid_view", "needed_memory", "read_result", "run_experiment", "run_grid", "run_one"]
__all__ += ["seconds_per_mode_step", "write_result"]
