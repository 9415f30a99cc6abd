"""Who is measured, from kernel to layer: ours, the alternatives, other packages if installed."""

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from s4d_torch.bench.measure import Call, Case, Contender, NotAvailable
from s4d_torch.bench.peers import (
    Cauchy,
    Listing,
    Official,
    OfficialLayer,
    PeerLayer,
    fft_convolution,
)
from s4d_torch.nn.layer import DSS, S4, S4D, Layer
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.gaps import FEW

FORWARD, BACKWARD, TRAINING, STEP = "forward", "forward+backward", "training step", "one step"

OURS = "s4d-torch"
GIVEN = "rfft, kernel given"
POWERS, EXPONENTIALS = "paper's listing (powers)", "paper's listing (exp)"
LISTING_FFT = "paper's listing + FFT"
OFFICIAL = "official minimal S4D"
LSTM, GRU, TRANSFORMER = "nn.LSTM", "nn.GRU", "nn.TransformerEncoderLayer"
S5, MAMBA, LRNNX = "s5-pytorch S5Block", "mambapy MambaBlock", "lrnnx S4D"
CAUCHY, SHARED = "materialised Cauchy + FFT", "the same, one division"
FEW_GAPS, ANY_GAPS = f"{OURS}, {FEW} different gaps", f"{OURS}, all gaps different"
S5_GAPS = "s5-pytorch S5, all gaps different"
ABSENT = ("is not installed", "cannot be imported")
MAMBA_STATE = 16  # as it is commonly used

Make = Callable[[Case], nn.Module]
Memory = Callable[[Case], float]


def forward_or_both(
    module: nn.Module,
    call: Callable[[Tensor], Tensor],
    case: Case,
    signals: tuple[Tensor, Tensor] | None = None,
) -> Call:
    """Run ``call`` on (B, L, H): in evaluation, or with gradients of input and parameters."""
    module.to(case.device)
    u, grad = signals or signal(case.device, case.batch, case.length, case.d_model)
    if case.way == FORWARD:
        module.eval()
        return torch.no_grad()(lambda: call(u))
    module.train()
    u = u.detach().requires_grad_()
    wanted = [u, *module.parameters()]
    return lambda: torch.autograd.grad(call(u), wanted, grad, allow_unused=True)


@lru_cache(maxsize=1)
def signal(device: str, *size: int) -> tuple[Tensor, Tensor]:
    """An input and a gradient of the output, shared by all contenders of a race."""
    generator = torch.Generator().manual_seed(0)
    u, grad = (torch.randn(size, generator=generator).to(device) for _ in range(2))
    return u, grad


def state_space(case: Case, method: Method = METHODS["s4d"], engine: str = "auto") -> SSM:
    method = method.replace(softmax_length=max(case.length, 1))
    generator = torch.Generator().manual_seed(0)
    return SSM(case.d_model, case.d_state, method=method, engine=engine, generator=generator)


def inputs(number: float) -> Memory:
    """So many times the size of u."""
    return lambda case: number * case.input_bytes


def powers_memory(case: Case) -> float:
    """complex64 powers, the exponents before them, and the gradients of both."""
    return 5.0 * 8 * case.d_model * case.d_state / 2 * case.length


def listing_memory(case: Case) -> float:
    return powers_memory(case) + 16.0 * case.input_bytes


def cauchy_memory(case: Case) -> float:
    """Four complex64 quotients (H, N, L/2), and their gradients."""
    return 3.0 * 4 * 8 * case.d_model * case.d_state * case.length / 2 + 16 * case.input_bytes


def _kernel(make: Callable[[Case], Any]) -> Callable[[Case], Call]:
    """Forward and backward of a kernel, to all parameters it depends on."""

    def build(case: Case) -> Call:
        module = make(case).to(case.device).train()
        parameters = [p for name, p in module.named_parameters() if name != "D"]
        grad = signal(case.device, case.d_model, case.length)[1]
        return lambda: torch.autograd.grad(module.kernel(case.length), parameters, grad)

    return build


def kernels() -> dict[str, Contender]:
    def small(case: Case) -> float:
        return 64.0 * case.d_model * case.length

    return {
        OURS: Contender(_kernel(state_space), small),
        f"{OURS} DSS": Contender(_kernel(lambda c: state_space(c, METHODS["dss"])), small),
        POWERS: Contender(_kernel(lambda c: Listing(state_space(c), "power")), powers_memory),
        EXPONENTIALS: Contender(_kernel(lambda c: Listing(state_space(c), "exp")), powers_memory),
    }


def _ssm(case: Case, method: str = "s4d", engine: str = "auto") -> Call:
    ssm = state_space(case, METHODS[method], engine)
    return forward_or_both(ssm, lambda u: ssm(u, return_state=False)[0], case)


def _ssm_without_cache(case: Case) -> Call:
    """A forward pass that makes its kernel anew: a module in training keeps nothing."""
    ssm = state_space(case)
    call = forward_or_both(ssm, lambda u: ssm(u, return_state=False)[0], case)
    ssm.train()
    return call


def _given(case: Case) -> Call:
    """The convolution alone, channels before time and contiguous, as suits an FFT best."""
    generator = torch.Generator().manual_seed(0)
    kernel = nn.Parameter(torch.randn(case.d_model, case.length, generator=generator))
    holder = nn.ParameterList([kernel])
    given = signal(case.device, case.batch, case.length, case.d_model)
    u, grad = (x.transpose(1, 2).contiguous() for x in given)
    return forward_or_both(holder, lambda x: fft_convolution(x, holder[0]), case, (u, grad))


def state_spaces() -> dict[str, Contender]:
    engines = ("fft", "chunk", "scan")
    return {
        OURS: Contender(_ssm),
        **{f"{OURS}, {engine}": Contender(partial(_ssm, engine=engine)) for engine in engines},
        f"{OURS} DSS": Contender(partial(_ssm, method="dss")),
        f"{OURS} S4": Contender(partial(_ssm, method="s4")),
        GIVEN: Contender(_given, inputs(16)),
        LISTING_FFT: Contender(partial(_module, lambda c: Listing(state_space(c))), listing_memory),
    }


def _gaps(case: Case, distinct: int | None) -> Tensor:
    """The time since the sample before: so many whole numbers of steps, or all different."""
    generator, size = torch.Generator().manual_seed(0), (case.batch, case.length)
    if distinct is None:
        return (0.2 + 2.8 * torch.rand(size, dtype=torch.float64, generator=generator)).to(
            case.device
        )
    return torch.randint(1, distinct + 1, size, generator=generator).double().to(case.device)


def _irregular(case: Case, distinct: int | None) -> Call:
    ssm, gaps = state_space(case), _gaps(case, distinct)
    call = forward_or_both(ssm, lambda u: ssm(u, rate=gaps, return_state=False)[0], case)
    ssm.train()
    return call


def _irregular_s5(case: Case) -> Call:
    """One system of so many states for all channels, each sample with a step of its own."""
    layer = imported("s5", "s5-pytorch").S5(case.d_model, case.d_state)
    gaps = _gaps(case, None).float()
    return forward_or_both(layer, lambda u: layer(u, step_scale=gaps), case)


def irregular() -> dict[str, Contender]:
    """Ours over samples that are evenly spaced, and over those that are not."""
    return {
        OURS: Contender(_ssm_without_cache),
        FEW_GAPS: Contender(partial(_irregular, distinct=FEW)),
        ANY_GAPS: Contender(partial(_irregular, distinct=None)),
        S5_GAPS: Contender(
            _irregular_s5, lambda c: (130.0 if c.way == FORWARD else 300) * c.input_bytes
        ),
    }


def against_given() -> dict[str, Contender]:
    """Ours, the making of the kernel included, against a convolution with a kernel given."""
    return {OURS: Contender(_ssm_without_cache), GIVEN: Contender(_given, inputs(16))}


def _module(make: Make, case: Case) -> Call:
    module = make(case)
    return forward_or_both(module, module, case)


class FirstOutput(nn.Module):
    """A module that returns its output beside a state, as ``nn.LSTM`` and our layers do."""

    def __init__(self, inside: nn.Module, **options: Any) -> None:
        super().__init__()
        self.inside, self.options = inside, options

    def forward(self, u: Tensor) -> Tensor:
        return self.inside(u, **self.options)[0]


def _ours(layer: type[Layer], case: Case) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    method = layer.base.replace(softmax_length=case.length)
    inside = layer(case.d_model, case.d_state, method=method, generator=generator)
    return FirstOutput(inside, return_state=False)


def official(case: Case) -> OfficialLayer:
    """As it starts there: S4D-Lin, with a zero-order hold."""
    method = METHODS["s4d"].replace(init="lin", discretization="zoh")
    return OfficialLayer(Official(state_space(case, method)))


def _cauchy(case: Case, *, shared: bool) -> nn.Module:
    return PeerLayer(Cauchy(state_space(case, METHODS["s4"]), case.length, shared=shared))


def _recurrent(kind: type[nn.LSTM] | type[nn.GRU], case: Case) -> nn.Module:
    return FirstOutput(kind(case.d_model, case.d_model, batch_first=True))


def _transformer(case: Case) -> nn.Module:
    width = case.d_model
    return nn.TransformerEncoderLayer(
        width, nhead=max(1, width // 32), dim_feedforward=4 * width, dropout=0.0, batch_first=True
    )


def imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        gone = error.name == module.split(".")[0]
        why = ABSENT[0] if gone else f"{ABSENT[1]}: {error}"
        raise NotAvailable(f"{package} {why}") from error


def _s5(case: Case) -> Any:
    return imported("s5", "s5-pytorch").S5Block(case.d_model, case.d_state, bidir=False)


def _mamba(case: Case) -> Any:
    mamba = imported("mambapy.mamba", "mambapy")
    config = mamba.MambaConfig(d_model=case.d_model, n_layers=1, d_state=MAMBA_STATE)
    return mamba.MambaBlock(config)


def _lrnnx(case: Case) -> nn.Module:
    lti = imported("lrnnx.models.lti", "lrnnx")
    return FirstOutput(lti.S4D(case.d_model, d_state=case.d_state, transposed=False))


class LayerKind(NamedTuple):
    """How a layer is made, the memory it needs, the growth of its time with length."""

    make: Make
    memory: Memory = inputs(24)
    order: int = 1


LAYERS = {
    OURS: LayerKind(partial(_ours, S4D)),
    f"{OURS} DSS": LayerKind(partial(_ours, DSS)),
    OFFICIAL: LayerKind(official, listing_memory),
    LISTING_FFT: LayerKind(lambda case: PeerLayer(Listing(state_space(case))), listing_memory),
    LSTM: LayerKind(partial(_recurrent, nn.LSTM)),
    GRU: LayerKind(partial(_recurrent, nn.GRU)),
    TRANSFORMER: LayerKind(_transformer, order=2),
    S5: LayerKind(_s5),
    # the states of every sample, of a block of twice the width, and their gradients
    MAMBA: LayerKind(_mamba, inputs(8 * 2 * MAMBA_STATE)),
    LRNNX: LayerKind(_lrnnx, listing_memory),
}
CURVE_LAYERS = {
    name: LAYERS[name] for name in (OURS, OFFICIAL, LSTM, TRANSFORMER, S5, MAMBA, LRNNX)
}
DPLR_LAYERS = {
    f"{OURS} S4": LayerKind(partial(_ours, S4)),
    CAUCHY: LayerKind(partial(_cauchy, shared=False), cauchy_memory),
    SHARED: LayerKind(partial(_cauchy, shared=True), cauchy_memory),
}


def layers(kinds: dict[str, LayerKind] = LAYERS) -> dict[str, Contender]:
    return {
        name: Contender(partial(_module, kind.make), kind.memory, kind.order)
        for name, kind in kinds.items()
    }
