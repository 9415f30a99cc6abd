"""What a grid shows: counts, time left, the best so far."""

import io

import pytest
from rich.console import Console

from s4d_torch._progress import duration
from s4d_torch.paper.experiments.experiment import Experiment, Result
from s4d_torch.paper.experiments.watch import GridLines, GridTable, GridTally, grid_view
from s4d_torch.training.reports.reporter import Progress
from tiny_experiments import tiny

# -- views -----------------------------------------------------------------------------------------


def made_up(experiment: Experiment, accuracy: float, seconds: float) -> Result:
    summary = {
        "task": experiment.config.task,
        "metric": "accuracy",
        "test": {"accuracy": accuracy},
        "seconds": seconds,
    }
    return Result(experiment.key, experiment.config.to_json(), summary)


def progress(step: int, seconds_left: float) -> Progress:
    return Progress(step, 10, 1, 2, 0.5, 0.01, 100.0, seconds_left, 0.25)


def test_the_ledger_counts_and_estimates() -> None:
    small, large = [tiny(seed) for seed in range(4)], tiny(d_model=8)
    ledger = GridTally()
    ledger.begin([*small, large], [])
    assert ledger.summary() == "0 done, 0 running, 0 failed, 5 left"
    for experiment in (small[0], large):
        ledger.started(experiment.key)
    ledger.ended(made_up(small[0], 0.5, 100))
    ledger.progress(large.key, progress(5, 60))
    # two at a time: the one that ended makes way for the next
    assert ledger.seconds_left() == pytest.approx((60 + 3 * 100) / 2)
    ledger.ended(made_up(large, 0.75, 500))
    assert ledger.seconds_left() == pytest.approx(300)  # three small ones, one at a time
    ledger.started(small[1].key)
    ledger.started(small[2].key)
    ledger.progress(small[1].key, progress(5, 40))
    assert ledger.seconds_left() == pytest.approx((40 + 100 + 100) / 2, rel=0.01)
    ledger.put_back(small[1].key, "gone")
    ledger.ended(Result(small[2].key, small[2].config.to_json(), error="too bad"))
    assert ledger.counts() == {"done": 2, "running": 0, "failed": 1, "left": 2}
    assert ledger.best()["digits"].key == large.key
    assert duration(8) == "8 s"
    assert duration(900) == "15 min"
    assert duration(9000) == "2.5 h"


def test_plain_lines_tell_of_every_end() -> None:
    out = io.StringIO()
    view = grid_view(Console(file=out, width=40))
    assert type(view) is GridLines
    view.begin([tiny(0), tiny(1)], [])
    view.started(tiny(0).key)
    view.ended(made_up(tiny(0), 0.5, 100))
    view.ended(Result(tiny(1).key, tiny(1).config.to_json(), error="ValueError: [no]\nmore"))
    view.close()
    assert out.getvalue().splitlines() == [
        "grid of 2 experiments: 0 done, 0 running, 0 failed, 2 left",
        "digits S4D-legs 4x1 seed 0: test accuracy 50.00% in 2 min; "
        "1 done, 0 running, 0 failed, 1 left, about 2 min to go",
        "digits S4D-legs 4x1 seed 1: failed: ValueError: [no]; 1 done, 0 running, 1 failed, 0 left",
        "1 done, 0 running, 1 failed, 0 left; best: digits 50.00%",
    ]


def test_the_live_view_shows_what_runs_and_what_is_best() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    view = grid_view(console)
    assert isinstance(view, GridTable)
    view.begin([tiny(0), tiny(1), tiny(2)], [made_up(tiny(0), 0.5, 100)])
    view.started(tiny(1).key)
    view.progress(tiny(1).key, progress(7, 30))
    console.print(view.draw())
    view.close()
    shown = out.getvalue()
    assert "1 done, 1 running, 0 failed, 1 left, about 2 min to go" in shown
    assert "7/10" in shown
    assert "30 s" in shown
    assert "best so far" in shown
    assert "50.00%" in shown
