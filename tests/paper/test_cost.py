"""Guesses of how long experiments take follow their sizes, and give way to what was seen."""

from dataclasses import replace

import pytest

from s4d_torch._progress import duration
from s4d_torch.paper.experiments import cost
from s4d_torch.paper.experiments.cost import Durations
from s4d_torch.paper.experiments.experiment import Experiment, Result
from s4d_torch.paper.recipes import RECIPES, SCALES, ablation, large
from s4d_torch.training.config import Config


def _changed(config: Config, **training: int) -> Config:
    return replace(config, training=replace(config.training, **training))


def test_work_grows_with_what_there_is_to_do() -> None:
    config = ablation("scifar", "tiny")
    work = cost.mode_steps(config)
    assert cost.mode_steps(_changed(config, epochs=6)) == 2 * work
    assert cost.mode_steps(_changed(config, train_size=1500)) == work / 2
    causal = replace(config, method=config.method.replace(bidirectional=False))
    assert cost.mode_steps(causal) == work  # one transform serves both directions
    config, causal = (replace(c, model=replace(c.model, d_state=8)) for c in (config, causal))
    few = cost.mode_steps(config)
    assert few / 2 < cost.mode_steps(causal) < few < work  # few modes are scanned


@pytest.mark.parametrize("scale", SCALES)
def test_every_experiment_of_the_paper_has_an_estimate(scale: str) -> None:
    for recipe in RECIPES.values():
        for experiment in recipe.experiments(scale, (0,)):
            assert cost.mode_steps(experiment.config) > 1e6


def test_scales_are_in_order() -> None:
    for task in ("scifar", "sc35", "text", "pathx"):
        tiny, small, full = (cost.mode_steps(large(task, s)) for s in ("tiny", "small", "full"))
        assert tiny < small < full


def test_the_machine_is_measured() -> None:
    assert 1e-11 < cost.seconds_per_mode_step(length=64, batch=2) < 1e-4


def _result(config: Config, seconds: float) -> Result:
    return Result("key", config.to_json(), {"seconds": seconds})


def test_runs_of_the_same_size_count_before_the_guess() -> None:
    config = ablation("scifar", "tiny")
    longer = _changed(config, epochs=6)
    past = Durations([_result(config, seconds) for seconds in (40.0, 50.0, 900.0)])
    assert past.of(Experiment(config)) == 50.0
    assert past.of(Experiment(_changed(config, seed=7))) == 50.0
    assert past.of(Experiment(longer)) == pytest.approx(100.0)


def test_without_results_a_rate_is_needed() -> None:
    experiment = Experiment(ablation("scifar", "tiny"))
    assert not Durations([])
    with pytest.raises(ValueError, match="no result and no rate"):
        Durations([]).of(experiment)
    steps = cost.mode_steps(experiment.config)
    assert Durations([], 2e-9).of(experiment) == pytest.approx(2e-9 * steps)


def test_long_times_are_days_and_years() -> None:
    assert duration(3 * 86400) == "3 days"
    assert duration(3 * 365 * 86400) == "3.0 years"
