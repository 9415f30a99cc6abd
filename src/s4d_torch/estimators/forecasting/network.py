"""From a window of the past to the future: a linear map, and a state space model on top of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Generator, Tensor, nn

from s4d_torch.nn import validate
from s4d_torch.nn.method import Method
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import Pretrained, configurable

CENTERS = ("mean", "last")
EFFECTS = 16  # features that known covariates become before their effect is weighed
FLOOR = 1e-3  # smallest spread of a window, in units of its series: a flat one has none


class ForecastNetwork(Pretrained):
    """``y_h = m + A_h (x - m) + s (spread + branch(z))_h`` with z = (x - m) / s.

    x (window,) are the last values of one series, m their mean or the last of them and s their
    spread: the normalisation and its inverse. A (horizon, window) is a linear map that
    :func:`~s4d_torch.estimators.forecasting.linear.solve` finds; ``branch`` is a causal
    :class:`~s4d_torch.SequenceModel` that starts at zero, so training starts from the linear model.

    Inputs are (batch, window, 1 + past + known): the series, covariates of the past alone, and
    covariates known beforehand; with known ones (batch, window + horizon, ...), where of the steps
    after the window only the known columns are read. Outputs are (batch, horizon, 1 + levels): the
    mean, then the quantiles, which may cross before :func:`sorted_quantiles`.
    """

    linear: Tensor
    calibration: Tensor

    def __init__(
        self,
        window: int,
        horizon: int,
        levels: Sequence[float] = (),
        past: int = 0,
        known: int = 0,
        center: str = "mean",
        d_model: int = 32,
        n_layers: int = 2,
        d_state: int = 32,
        dropout: float = 0.0,
        method: Method | str | dict[str, Any] = "s4d",
        *,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        arguments = locals()  # taken before other names are
        super().__init__()
        self.config = {name: arguments[name] for name in configurable(ForecastNetwork)}
        self.config["levels"] = list(levels)
        validate.one_of("center", center, CENTERS)
        for name, size in (("window", window), ("horizon", horizon)):
            validate.positive_integer(name, size)
        self.window, self.horizon, self.levels = window, horizon, tuple(levels)
        self.past, self.known, self.center = past, known, center
        outputs = 1 + len(self.levels)
        effects = EFFECTS if known else 0
        factory: Any = {"generator": generator, "device": device, "dtype": dtype}
        self.branch = SequenceModel(
            1 + past + known,
            (horizon + effects) * outputs,
            d_model,
            n_layers,
            d_state=d_state,
            dropout=dropout,
            method=method,
            pooling="last",
            **factory,
        )
        for parameter in self.branch.decoder.parameters():
            nn.init.zeros_(parameter)
        empty: Any = {"device": device, "dtype": dtype}
        self.register_buffer("linear", torch.zeros(horizon, window, **empty))
        self.spread = nn.Parameter(torch.zeros(horizon, outputs, **empty))
        self.register_buffer("calibration", torch.zeros(horizon, outputs, **empty))
        self.effects = _linear(known, effects, **factory) if known else None
        self.config["method"] = asdict(self.branch.method)

    @property
    def length(self) -> int:
        """Samples of an input: those of the window, and of the horizon if something is known."""
        return self.window + (self.horizon if self.known else 0)

    def forward(
        self,
        x: Tensor,
        state: None = None,
        *,
        lengths: None = None,
        rate: float = 1.0,
        return_state: bool = False,
    ) -> tuple[Tensor, None]:
        """x (batch, length, 1 + past + known) -> (batch, horizon, 1 + levels), and no state."""
        if x.ndim != 3 or x.shape[1:] != (self.length, self.branch.d_input):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (batch, {self.length}, "
                f"{self.branch.d_input})"
            )
        values = x[:, : self.window, 0]
        shift, scale = self.units(values)
        inputs = self.normalized(x[:, : self.window], shift, scale)
        outputs, _ = self.branch(inputs, rate=rate, return_state=False)
        future = x[:, self.window :, 1 + self.past :] if self.known else None
        return self.combine(values, scale, outputs, future), None

    def units(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Shift and scale (batch,) of windows (batch, window)."""
        mean = values.mean(1)
        spread = (values - mean[:, None]).square().mean(1).sqrt()
        shift = mean if self.center == "mean" else values[:, -1]
        return shift, spread.clamp_min(FLOOR)

    def line(self, values: Tensor) -> Tensor:
        """What the linear map makes of windows (batch, window): (batch, horizon)."""
        shift = self.units(values)[0][:, None]
        return shift + (values - shift) @ self.linear.T

    def normalized(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """What the branch reads: the series in units of its window, covariates as they are."""
        z = (x[..., :1] - shift[:, None, None]) / scale[:, None, None]
        return torch.cat([z, x[..., 1:]], -1)

    def combine(
        self, values: Tensor, scale: Tensor, outputs: Tensor, future: Tensor | None
    ) -> Tensor:
        """The forecast from a window (batch, window) and what the branch said.

        ``scale`` (batch,) is that of what the branch read, which with a carried state began before
        this window; ``future`` (batch, horizon, known) are the known covariates.
        """
        kinds = 1 + len(self.levels)
        direct = outputs[:, : self.horizon * kinds].view(-1, self.horizon, kinds)
        moves = self.spread + self.calibration + direct
        if future is not None and self.effects is not None:
            weights = outputs[:, self.horizon * kinds :].view(-1, EFFECTS, kinds)
            moves = moves + torch.tanh(self.effects(future)) @ weights
        return self.line(values)[..., None] + scale[:, None, None] * moves


def sorted_quantiles(outputs: Tensor) -> Tensor:
    """Outputs (..., 1 + levels) with the quantiles in order, which makes none of them worse."""
    return torch.cat([outputs[..., :1], outputs[..., 1:].sort(-1).values], -1)


def _linear(inputs: int, outputs: int, generator: Generator | None, **factory: Any) -> nn.Linear:
    made = nn.Linear(inputs, outputs, **factory)
    with torch.no_grad():
        made.weight.normal_(0.0, inputs**-0.5, generator=generator)
        made.bias.uniform_(-1.0, 1.0, generator=generator)
    return made
