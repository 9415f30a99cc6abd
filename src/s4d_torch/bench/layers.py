"""Whole layers of the same width: ours, the alternatives, and other packages where installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.bench.contenders import (
    LISTING_FFT,
    OURS,
    forward_or_both,
    listing_memory,
    state_space,
)
from s4d_torch.bench.measure import Contender, NotAvailable, Run, Shape
from s4d_torch.bench.peers import Cauchy, Listing, PeerLayer
from s4d_torch.nn.layer import DSS, S4, S4D, Layer
from s4d_torch.nn.method import METHODS

CAUCHY, SHARED = "materialised Cauchy + FFT", "the same, one division"
ABSENT = ("is not installed", "cannot be imported")
MAMBA_STATE = 16  # as it is commonly used

Make = Callable[[Shape], nn.Module]


class FirstOutput(nn.Module):
    """A module that returns its output beside a state, as ``nn.LSTM`` and our layers do."""

    def __init__(self, inside: nn.Module, **options: Any) -> None:
        super().__init__()
        self.inside, self.options = inside, options

    def forward(self, u: Tensor) -> Tensor:
        y: Tensor = self.inside(u, **self.options)[0]
        return y


def _ours(layer: type[Layer]) -> Make:
    def make(shape: Shape) -> nn.Module:
        generator = torch.Generator().manual_seed(0)
        method = layer.base.replace(softmax_length=shape.length)
        inside = layer(shape.d_model, shape.d_state, method=method, generator=generator)
        return FirstOutput(inside, return_state=False)

    return make


def _peer_s4d(shape: Shape) -> nn.Module:
    return PeerLayer(Listing(state_space(shape)))


def _peer_s4(shape: Shape, *, shared: bool = False) -> nn.Module:
    ssm = state_space(shape, METHODS["s4"])
    return PeerLayer(Cauchy(ssm, shape.length, shared=shared))


def _lstm(shape: Shape) -> nn.Module:
    return FirstOutput(nn.LSTM(shape.d_model, shape.d_model, batch_first=True))


def _gru(shape: Shape) -> nn.Module:
    return FirstOutput(nn.GRU(shape.d_model, shape.d_model, batch_first=True))


def _transformer(shape: Shape) -> nn.Module:
    width = shape.d_model
    return nn.TransformerEncoderLayer(
        width, nhead=max(1, width // 32), dim_feedforward=4 * width, dropout=0.0, batch_first=True
    )


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.split(".")[0]:
            raise NotAvailable(f"{package} {ABSENT[0]}") from error
        raise NotAvailable(f"{package} {ABSENT[1]}: {error}") from error


def _s5(shape: Shape) -> nn.Module:
    block: nn.Module = _imported("s5", "s5-pytorch").S5Block(
        shape.d_model, shape.d_state, bidir=False
    )
    return block


def _mamba(shape: Shape) -> nn.Module:
    mamba = _imported("mambapy.mamba", "mambapy")
    config = mamba.MambaConfig(d_model=shape.d_model, n_layers=1, d_state=MAMBA_STATE)
    block: nn.Module = mamba.MambaBlock(config)
    return block


def _lrnnx(shape: Shape) -> nn.Module:
    lti = _imported("lrnnx.models.lti", "lrnnx")
    return FirstOutput(lti.S4D(shape.d_model, d_state=shape.d_state, transposed=False))


def _cauchy_memory(shape: Shape) -> float:
    """Four complex64 quotients (H, N, L/2), and their gradients."""
    return 3.0 * 4 * 8 * shape.d_model * shape.d_state * shape.length / 2 + 16 * shape.input_bytes


def _scan_memory(shape: Shape) -> float:
    """States of every sample of a Mamba block of twice the width, and their gradients."""
    return 8.0 * 2 * MAMBA_STATE * shape.input_bytes


def _plain(shape: Shape) -> float:
    return 24.0 * shape.input_bytes


# name -> how it is made, the memory it needs, the growth of its time with length
LAYERS: dict[str, tuple[Make, Callable[[Shape], float], int]] = {
    OURS: (_ours(S4D), _plain, 1),
    f"{OURS} DSS": (_ours(DSS), _plain, 1),
    LISTING_FFT: (_peer_s4d, listing_memory, 1),
    "nn.LSTM": (_lstm, _plain, 1),
    "nn.GRU": (_gru, _plain, 1),
    "nn.TransformerEncoderLayer": (_transformer, _plain, 2),
    "s5-pytorch S5Block": (_s5, _plain, 1),
    "mambapy MambaBlock": (_mamba, _scan_memory, 1),
    "lrnnx S4D": (_lrnnx, listing_memory, 1),
}
DPLR_LAYERS: dict[str, tuple[Make, Callable[[Shape], float], int]] = {
    f"{OURS} S4": (_ours(S4), _plain, 1),
    CAUCHY: (_peer_s4, _cauchy_memory, 1),
    SHARED: (lambda shape: _peer_s4(shape, shared=True), _cauchy_memory, 1),
}


def _run_layer(make: Make) -> Callable[[Shape], Run]:
    def build(shape: Shape) -> Run:
        module = make(shape)
        return forward_or_both(module, module, shape)

    return build


def layers() -> dict[str, Contender]:
    return {
        name: Contender(_run_layer(make), memory, order)
        for name, (make, memory, order) in LAYERS.items()
    }


def dplr_layers() -> dict[str, Contender]:
    return {
        name: Contender(_run_layer(make), memory, order)
        for name, (make, memory, order) in DPLR_LAYERS.items()
    }
