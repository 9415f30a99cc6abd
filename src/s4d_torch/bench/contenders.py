"""Who is measured, from kernel to state space: our engines, and the alternatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.bench.measure import Contender, Run, Shape
from s4d_torch.bench.peers import Listing, fft_convolution
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.nn.ssm import SSM

FORWARD, BACKWARD, TRAINING, STEP = "forward", "forward+backward", "training step", "one step"

OURS = "s4d-torch"
GIVEN = "rfft, kernel given"
POWERS, EXPONENTIALS = "paper's listing (powers)", "paper's listing (exp)"
LISTING_FFT = "paper's listing + FFT"


def forward_or_both(module: nn.Module, call: Callable[[Tensor], Tensor], shape: Shape) -> Run:
    """Run ``call`` on (B, L, H): in evaluation, or with gradients of input and parameters."""
    u, grad = signal(shape.batch, shape.length, shape.d_model)
    return _forward_or_both(module, call, shape, u, grad)


def _forward_or_both(
    module: nn.Module, call: Callable[[Tensor], Tensor], shape: Shape, u: Tensor, grad: Tensor
) -> Run:
    if shape.way == FORWARD:
        module.eval()
        return torch.no_grad()(lambda: call(u))
    module.train()
    u = u.detach().requires_grad_()
    wanted = [u, *module.parameters()]
    return lambda: torch.autograd.grad(call(u), wanted, grad, allow_unused=True)


@lru_cache(maxsize=1)
def signal(*size: int) -> tuple[Tensor, Tensor]:
    """An input and a gradient of the output, shared by all contenders of a race."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=generator), torch.randn(size, generator=generator)


def state_space(shape: Shape, method: Method = METHODS["s4d"], engine: str = "auto") -> SSM:
    return SSM(
        shape.d_model,
        shape.d_state,
        method=method.replace(softmax_length=max(shape.length, 1)),
        engine=engine,
        generator=torch.Generator().manual_seed(0),
    )


# -- the kernel ------------------------------------------------------------------------------------


def _kernel(make: Callable[[Shape], Any]) -> Callable[[Shape], Run]:
    """Forward and backward of a kernel, to all parameters it depends on."""

    def build(shape: Shape) -> Run:
        module = make(shape).train()
        parameters = [p for name, p in module.named_parameters() if name != "D"]
        grad = signal(shape.d_model, shape.length)[1]
        return lambda: torch.autograd.grad(module.kernel(shape.length), parameters, grad)

    return build


def powers_memory(shape: Shape) -> float:
    """complex64 powers, the exponents before them, and the gradients of both."""
    return 5.0 * 8 * shape.d_model * shape.d_state / 2 * shape.length


def kernels() -> dict[str, Contender]:
    small: Callable[[Shape], float] = lambda shape: 64.0 * shape.d_model * shape.length  # noqa: E731
    return {
        OURS: Contender(_kernel(state_space), small),
        f"{OURS} DSS": Contender(_kernel(lambda s: state_space(s, METHODS["dss"])), small),
        POWERS: Contender(_kernel(lambda s: Listing(state_space(s), "power")), powers_memory),
        EXPONENTIALS: Contender(_kernel(lambda s: Listing(state_space(s), "exp")), powers_memory),
    }


# -- the linear state space ------------------------------------------------------------------------


def _ssm(method: str = "s4d", engine: str = "auto") -> Callable[[Shape], Run]:
    def build(shape: Shape) -> Run:
        ssm = state_space(shape, METHODS[method], engine)
        return forward_or_both(ssm, lambda u: ssm(u, return_state=False)[0], shape)

    return build


def _ssm_without_cache(shape: Shape) -> Run:
    """A forward pass that makes its kernel anew: a module in training keeps nothing."""
    ssm = state_space(shape)
    run = forward_or_both(ssm, lambda u: ssm(u, return_state=False)[0], shape)
    ssm.train()
    return run


def _given(shape: Shape) -> Run:
    """The convolution alone, channels before time and contiguous, as suits an FFT best."""
    generator = torch.Generator().manual_seed(0)
    kernel = nn.Parameter(torch.randn(shape.d_model, shape.length, generator=generator))
    u, grad = (
        x.transpose(1, 2).contiguous() for x in signal(shape.batch, shape.length, shape.d_model)
    )
    return _forward_or_both(
        nn.ParameterList([kernel]), lambda x: fft_convolution(x, kernel), shape, u, grad
    )


def _listing(shape: Shape) -> Run:
    module = Listing(state_space(shape))
    return forward_or_both(module, module, shape)


def listing_memory(shape: Shape) -> float:
    return powers_memory(shape) + 16.0 * shape.input_bytes


def state_spaces() -> dict[str, Contender]:
    engines = {f"{OURS}, {name}": Contender(_ssm(engine=name)) for name in ("fft", "chunk", "scan")}
    return {
        OURS: Contender(_ssm()),
        **engines,
        f"{OURS} DSS": Contender(_ssm("dss")),
        f"{OURS} S4": Contender(_ssm("s4")),
        GIVEN: Contender(_given, lambda shape: 16.0 * shape.input_bytes),
        LISTING_FFT: Contender(_listing, listing_memory),
    }


def against_given() -> dict[str, Contender]:
    """Ours, the making of the kernel included, against a convolution with a kernel given."""
    return {
        OURS: Contender(_ssm_without_cache),
        GIVEN: Contender(_given, lambda shape: 16.0 * shape.input_bytes),
    }


def at_length(length: int) -> Contender:
    """Ours at a length of its own, whatever the race is about."""
    own: Callable[[Shape], Shape] = lambda shape: replace(shape, length=length)  # noqa: E731
    return Contender(lambda shape: _ssm()(own(shape)), lambda shape: 8.0 * own(shape).input_bytes)
