"""The training loop: it learns, it repeats itself, and it leaves the caller's world alone."""

import pytest
import torch

from s4d_torch import SequenceModel
from s4d_torch.data import Split
from s4d_torch.training import Progress, accuracy, fit
from s4d_torch.training.loop import learning_rate_factor


def rising_or_falling(n: int, seed: int) -> Split:
    """Noisy ramps (n, 20, 1), up or down."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (n,), generator=generator)
    ramps = torch.linspace(-1, 1, 20) * (2 * targets[:, None] - 1)
    noise = 0.3 * torch.randn(n, 20, generator=generator)
    return Split((ramps + noise)[..., None], targets)


def small_model(dropout: float = 0.1) -> SequenceModel:
    generator = torch.Generator().manual_seed(0)
    return SequenceModel(
        1, 2, 8, 1, d_state=4, pooling="last", dropout=dropout, generator=generator
    )


TRAIN, VALIDATION = rising_or_falling(128, 0), rising_or_falling(64, 1)


def test_fit_learns_and_reports_every_step() -> None:
    model, seen = small_model(), list[Progress]()
    before = accuracy(model, VALIDATION)
    score = fit(model, TRAIN, VALIDATION, epochs=5, batch_size=24, on_progress=seen.append)
    assert score > 0.9 > before
    assert score == seen[-1].accuracy == accuracy(model, VALIDATION)
    assert [now.step for now in seen] == list(range(1, 31))  # 128 / 24 makes six steps an epoch
    assert (seen[-1].steps, seen[-1].epoch, seen[-1].epochs) == (30, 5, 5)
    assert [now.accuracy is None for now in seen] == 5 * [True] + 25 * [False]
    assert seen[-1].loss < 0.5 * seen[0].loss


def test_the_seed_decides_everything_and_leaves_other_draws_alone() -> None:
    def weights(seed: int) -> torch.Tensor:
        model = small_model()
        fit(model, TRAIN, VALIDATION, epochs=1, seed=seed)
        return torch.nn.utils.parameters_to_vector(model.parameters())

    state = torch.get_rng_state()
    first = weights(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(weights(0), first)
    assert not torch.equal(weights(1), first)


def test_accuracy_counts_the_last_batch_and_keeps_the_mode() -> None:
    model = small_model(dropout=0.5).train()
    whole = accuracy(model, VALIDATION)
    assert accuracy(model, VALIDATION, batch_size=15) == whole
    assert model.training


def test_learning_rate_rises_then_falls_to_nothing() -> None:
    factors = [learning_rate_factor(step, 100) for step in range(101)]
    assert factors[:10] == [(step + 1) / 10 for step in range(10)]
    assert factors[10] == 1
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[100] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"epochs": 1, "batch_size": 0}])
def test_numbers_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        fit(small_model(), TRAIN, VALIDATION, **wrong)
