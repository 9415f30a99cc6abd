"""The same layers in JAX, jitted for the CPU by XLA, where it is installed.

    K = 2 Re sum_n C_n B_bar_n A_bar_n^l,   y = K * u + D u,   GLU(W gelu(y) + b)

bilinear, in complex64, by an FFT of twice the length along the axis on which time lies: of the ways
to write it the one that took XLA least. Parameters are inputs, so that nothing is folded away.
"""

from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.bench.contenders import (
    FORWARD,
    OURS,
    forward_or_both,
    imported,
    listing_memory,
    signal,
)
from s4d_torch.bench.measure import Call, Case, Contender, NotAvailable
from s4d_torch.nn.layer import S4D
from s4d_torch.paper.experiments.local_workers import count_cores

JAX = "JAX, jitted"


def make_layers(case: Case) -> list[S4D]:
    generator = torch.Generator().manual_seed(0)
    return [S4D(case.d_model, case.d_state, generator=generator) for _ in range(case.layers)]


def _ours(case: Case) -> Call:
    layers = nn.ModuleList(make_layers(case))

    def run(x: Tensor) -> Tensor:
        for layer in layers:
            x, _ = layer(x, return_state=False)
        return x

    return forward_or_both(layers, run, case)


def _jitted(case: Case) -> Call:
    jax = _jax()
    if case.threads != count_cores():  # XLA takes all that this process may use, from its start
        raise NotAvailable(f"left out: JAX uses all {count_cores()} cores, not {case.threads}")
    layers = [parameters(layer) for layer in make_layers(case)]
    u, grad = (jax.numpy.asarray(x.numpy()) for x in signal("cpu", *_shape(case)))
    if case.way == FORWARD:
        compiled = jax.jit(run_layers)
        return lambda: jax.block_until_ready(compiled(layers, u))

    def loss(layers: Any, u: Any, grad: Any) -> Any:
        return (run_layers(layers, u) * grad).sum()

    both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(both(layers, u, grad))


def _shape(case: Case) -> tuple[int, int, int]:
    return case.batch, case.length, case.d_model


def contenders() -> dict[str, Contender]:
    """Layers one after the other, ours and in JAX; gradients of the input and all parameters."""
    return {
        OURS: Contender(_ours, lambda case: 8.0 * case.layers * case.input_bytes),
        JAX: Contender(_jitted, lambda case: case.layers * listing_memory(case)),
    }


# -- the layer, as a pure function -----------------------------------------------------------------


def _jax() -> Any:
    return imported("jax", "JAX")


def parameters(layer: S4D) -> dict[str, Any]:
    """The values of one of our layers, as arrays of JAX, all of them real."""
    ssm = layer.ssm
    found = {
        "log_decay": (-ssm.A.real).log(),
        "frequency": ssm.A.imag,
        "B": torch.view_as_real(ssm.B.resolve_conj()),
        "C": torch.view_as_real(ssm.C.resolve_conj()),
        "log_dt": ssm.dt.log(),
        "D": ssm.D,
        **dict(layer.output.named_parameters()),
    }
    asarray = _jax().numpy.asarray
    return {name: asarray(x.detach().float().numpy()) for name, x in found.items()}


def kernel(p: dict[str, Any], length: int) -> Any:
    """K, (L, H)."""
    jax = _jax()
    jnp, complex_ = jax.numpy, jax.lax.complex
    A = complex_(-jnp.exp(p["log_decay"]), p["frequency"])  # (H, N/2)
    B, C = (complex_(p[name][..., 0], p[name][..., 1]) for name in ("B", "C"))
    dt = jnp.exp(p["log_dt"])[:, None]
    half = 0.5 * dt * A
    log_A = jnp.log((1 + half) / (1 - half))
    powers = jnp.exp(log_A[..., None] * jnp.arange(length, dtype=jnp.float32))  # (H, N/2, L)
    return 2 * jnp.einsum("hn,hnl->lh", C * dt * B / (1 - half), powers).real


def run_layers(layers: list[dict[str, Any]], x: Any) -> Any:
    """x (B, L, H) through all of them."""
    jax = _jax()
    fft, length = jax.numpy.fft, x.shape[1]
    for p in layers:
        spectrum = fft.rfft(kernel(p, length), 2 * length, axis=0)
        y = fft.irfft(spectrum * fft.rfft(x, 2 * length, axis=1), 2 * length, axis=1)[:, :length]
        y = jax.nn.gelu(y + p["D"] * x, approximate=False)
        x = jax.nn.glu(y @ p["weight"].T + p["bias"])
    return x
