"""The options of a forecaster, judged when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from s4d_torch.data.missing_values import Missing
from s4d_torch.nn import validate
from s4d_torch.training.option_types import check_types

Strategy = Literal["direct", "recursive"]


def check_options(options: Any) -> None:
    """scikit-learn's rule: options are stored as they come and judged when they are used."""
    skipped = ("verbose", "quantiles", "past_only")
    check_types(options, [name for name in options.get_params(deep=False) if name not in skipped])
    for name in ("horizon", "window", "n_layers", "d_model", "d_state", "batch_size", "patience"):
        value = getattr(options, name)
        if value is not None and value < (2 if name == "window" else 1):
            least = 2 if name == "window" else 1
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
    if options.epochs is not None and options.epochs < 0:
        raise ValueError(
            f"epochs must be 0, for the linear map alone, or more, got {options.epochs!r}"
        )
    if not isinstance(options.verbose, int):
        raise ValueError(f"verbose must be a whole number, got {options.verbose!r}")
    validate.one_of("strategy", options.strategy, get_args(Strategy))
    validate.one_of("missing", options.missing, get_args(Missing))
    levels = options.quantiles
    if not isinstance(levels, tuple | list) or not all(
        isinstance(level, int | float) and 0 < level < 1 for level in levels
    ):
        raise ValueError(f"quantiles must be numbers between 0 and 1, got {levels!r}")
    if list(levels) != sorted(set(levels)):
        raise ValueError(f"quantiles must ascend, got {levels!r}")
    if not isinstance(options.past_only, tuple | list):
        raise ValueError(f"past_only must be a tuple of columns of X, got {options.past_only!r}")
    if options.strategy == "recursive" and options.past_only:
        raise ValueError(
            "strategy 'recursive' reads its own forecasts, and has none of the columns in "
            "past_only; use strategy='direct', or leave them out of X"
        )


def check_horizon(options: Any, horizon: int | None) -> int:
    """The horizon that is asked for, by default that of fit; more is for recursive ones."""
    if horizon is None:
        return int(options.horizon)
    validate.positive_integer("horizon", horizon)
    if horizon > options.horizon and options.strategy == "direct":
        raise ValueError(
            f"horizon {horizon} is beyond the {options.horizon} steps of fit; use "
            f"{type(options).__name__}(horizon={horizon}), or strategy='recursive'"
        )
    return int(horizon)


def level_positions(fitted: Sequence[float], asked: Any) -> list[int]:
    """Where the levels that are asked for are among those that were fitted."""
    if asked is None:
        return list(range(len(fitted)))
    wanted = [asked] if isinstance(asked, int | float) else list(asked)
    places = {round(float(level), 9): i for i, level in enumerate(fitted)}
    found = [places.get(round(float(level), 9)) for level in wanted]
    if None in found:
        raise ValueError(
            f"the quantile {wanted[found.index(None)]} was not fitted, only {tuple(fitted)}; name "
            "it in the option quantiles"
        )
    return [place for place in found if place is not None]
