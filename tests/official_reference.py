"""The official layers in plain NumPy, from the formulas of state-spaces/s4, and weights for them.

Everything is float64 and complex where it is complex there; one channel and one mode at a time
where that is the plainer way. Nothing here is shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import erf, expit

Arrays = dict[str, np.ndarray]

TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0) + 1e-4,
    "sigmoid": expit,
    "softplus": lambda x: np.log1p(np.exp(x)),
}


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1]


def tile(x: np.ndarray, H: int) -> np.ndarray:
    """Copies for all channels, '(v t)': 0, 1, ..., S-1, 0, 1, ..."""
    return np.concatenate([x] * (H // x.shape[0]))


def diagonal_kernel(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, dt: np.ndarray, L: int, disc: str
) -> np.ndarray:
    """A, B (H, N), C (c, H, N), dt (H, 1 or N) -> (c, H, L)."""
    steps = np.arange(L)
    dtA = dt * A
    if disc == "zoh":
        weights, log_A = B * C * (np.exp(dtA) - 1) / A, dtA
        return 2 * np.einsum("chn,hnl->chl", weights, np.exp(log_A[..., None] * steps)).real
    if disc == "bilinear":
        weights, dA = B * C * dt / (1 - dtA / 2), (1 + dtA / 2) / (1 - dtA / 2)
        return 2 * np.einsum("chn,hnl->chl", weights, dA[..., None] ** steps).real
    grows = A.real > 0
    powers = np.exp(dtA[..., None] * (steps - grows[..., None] * (L - 1)))
    away = np.where(grows, -dtA, dtA)
    x = (np.exp(away * L) - 1) * A
    weights = B * C * (np.exp(away) - 1) * x.conj() / (x * x.conj() + 1e-7)
    return np.einsum("chn,hnl->chl", weights, powers).real  # not doubled


def low_rank_kernel(
    A: np.ndarray, P: np.ndarray, B: np.ndarray, C: np.ndarray, dt: float, L: int
) -> np.ndarray:
    """One channel: A, B (N,), P (R, N), C (c, N), stored for the length L -> (c, L), by its FFT."""
    A, P, B, C = (np.concatenate([x, x.conj()], axis=-1) for x in (A, P, B, C))
    full = np.diag(A) - P.T @ P.conj()
    eye = np.eye(len(A))
    dA = np.linalg.solve(eye - dt / 2 * full, eye + dt / 2 * full)
    dB = np.linalg.solve(eye - dt / 2 * full, dt * B)
    nodes = np.exp(-2j * np.pi / L * np.arange(L))
    spectrum = np.stack([C @ np.linalg.solve(eye - z * dA, dB) for z in nodes], axis=-1)
    return np.fft.ifft(spectrum).real


def stored_for_length(
    A: np.ndarray, P: np.ndarray, B: np.ndarray, C: np.ndarray, dt: float, L: int
) -> np.ndarray:
    """``(I - dA^L)^T C`` of one channel, as the official code turns C into what it stores."""
    N = len(A)
    A, P, C = (np.concatenate([x, x.conj()], axis=-1) for x in (A, P, C))
    full = np.diag(A) - P.T @ P.conj()
    eye = np.eye(2 * N)
    dA = np.linalg.solve(eye - dt / 2 * full, eye + dt / 2 * full)
    return (C @ (eye - np.linalg.matrix_power(dA, L)))[..., :N]


def convolve(K: np.ndarray, u: np.ndarray) -> np.ndarray:
    """K (c, H, L): the first looks back, the second, if any, strictly ahead; u (batch, L, H)."""
    y = np.zeros_like(u)
    L = u.shape[1]
    for t in range(L):
        for s in range(L):
            if s <= t:
                y[:, t] += K[0, :, t - s] * u[:, s]
            elif len(K) == 2:
                y[:, t] += K[1, :, s - t - 1] * u[:, s]
    return y


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def output(w: Arrays, y: np.ndarray, D: np.ndarray, u: np.ndarray, activation: Any) -> np.ndarray:
    """Skip, activation and the output map with its GLU."""
    y = activation(y + D * u)
    if "output_linear.0.weight" not in w:
        return y
    weight = w["output_linear.0.weight"]
    y = y @ weight.reshape(len(weight), -1).T + w["output_linear.0.bias"]
    H = u.shape[-1]
    return y[..., :H] * expit(y[..., H:]) if len(weight) == 2 * H else y


def minimal(w: Arrays, u: np.ndarray) -> np.ndarray:
    """The minimal S4D: Im(A) = A_imag, B = 1, ZOH."""
    A = -np.exp(w["kernel.log_A_real"]) + 1j * w["kernel.A_imag"]
    C = complex_of(w["kernel.C"])[None]
    dt = np.exp(w["kernel.log_dt"])[:, None]
    K = diagonal_kernel(A, np.ones_like(A), C, dt, u.shape[1], "zoh")
    return output(w, convolve(K, u), w["D"], u, gelu)


def block(
    w: Arrays,
    u: np.ndarray,
    *,
    disc: str = "zoh",
    real_transform: str = "exp",
    imag_transform: str = "none",
    dt_transform: str = "exp",
    dt_fast: bool = False,
    bandlimit: float | None = None,
    activation: Any = gelu,
) -> np.ndarray:
    """S4Block of v4: Im(A) = -A_imag."""
    k = {name.removeprefix("layer.kernel."): x for name, x in w.items()}
    pairs = "A_imag" in k
    read = complex_of if pairs else (lambda x: x + 0j)
    B, C = read(k["B"])[0], read(k["C"])
    H, L = C.shape[1], u.shape[1]
    A = -TRANSFORMS[real_transform](k["A_real"]) + 0j
    if pairs:
        A = A - 1j * TRANSFORMS[imag_transform](k["A_imag"])
    dt = TRANSFORMS[dt_transform](np.sinh(k["inv_dt"]) if dt_fast else k["inv_dt"])
    A, B = tile(A, H), tile(B, H)
    if bandlimit is not None:
        C = C * (dt * np.abs(A.imag) / (2 * np.pi) < bandlimit * 0.5)
    if "P" in k:
        P, length = tile(complex_of(k["P"]).swapaxes(0, 1), H), int(k["l_kernel"])
        rows = [low_rank_kernel(A[h], P[h], B[h], C[:, h], dt[h, 0], length) for h in range(H)]
        K = np.stack(rows, axis=1)[..., :L]
    else:
        K = diagonal_kernel(A, B, C, dt, L, disc)
    return output(w, convolve(K, u), w["layer.D"][0], u, activation)


# ---- weights ----------------------------------------------------------------------------------

RAW = {
    "exp": (-2.0, 1.0),
    "relu": (-0.3, 2.0),
    "none": (0.05, 2.0),
    "sigmoid": (-2.0, 2.0),
    "softplus": (-2.0, 2.0),
}


def mixing_weights(rng: np.random.Generator, H: int, width: int) -> Arrays:
    if not width:
        return {}
    return {
        "output_linear.0.weight": rng.standard_normal((width * H, H)) / H**0.5,
        "output_linear.0.bias": 0.1 * rng.standard_normal(width * H),
    }


def minimal_weights(rng: np.random.Generator, H: int = 4, N: int = 5) -> Arrays:
    mixing = mixing_weights(rng, H, 2)
    mixing["output_linear.0.weight"] = mixing["output_linear.0.weight"][..., None]
    return {
        "D": rng.standard_normal(H),
        "kernel.C": rng.standard_normal((H, N, 2)),
        "kernel.log_dt": rng.uniform(np.log(0.01), np.log(0.3), H),
        "kernel.log_A_real": rng.uniform(-2, 1, (H, N)),
        "kernel.A_imag": np.pi * np.arange(N) + 0.3 * rng.standard_normal((H, N)),
        **mixing,
    }


def block_weights(
    rng: np.random.Generator,
    *,
    H: int = 4,
    N: int = 5,
    S: int | None = None,
    channels: int = 1,
    real_transform: str = "exp",
    pairs: bool = True,
    each_dt: bool = False,
    width: int = 2,
) -> Arrays:
    """A diagonal S4Block of v4; channels=2 is bidirectional, width the output map's in d_model."""
    S = S or H
    last = (2,) if pairs else ()
    weights = {
        "layer.D": rng.standard_normal((1, H)),
        "layer.kernel.inv_dt": rng.uniform(np.log(0.01), np.log(0.3), (H, N if each_dt else 1)),
        "layer.kernel.C": rng.standard_normal((channels, H, N, *last)),
        "layer.kernel.B": rng.standard_normal((1, S, N, *last)),
        "layer.kernel.A_real": rng.uniform(*RAW[real_transform], (S, N)),
        **mixing_weights(rng, H, width),
    }
    if pairs:
        weights["layer.kernel.A_imag"] = np.pi * np.arange(N) + rng.uniform(0, 1, (S, N))
    return weights


def low_rank_weights(
    rng: np.random.Generator, *, length: int, rank: int = 1, **options: Any
) -> Arrays:
    """A DPLR S4Block of v4, its C stored for ``length``."""
    weights = block_weights(rng, **options)
    S, N = weights["layer.kernel.A_real"].shape
    weights["layer.kernel.P"] = 0.7 * rng.standard_normal((rank, S, N, 2))
    weights["layer.kernel.l_kernel"] = np.array(length)
    C = complex_of(weights["layer.kernel.C"])
    H = C.shape[1]
    A = tile(-np.exp(weights["layer.kernel.A_real"]) - 1j * weights["layer.kernel.A_imag"], H)
    B = tile(complex_of(weights["layer.kernel.B"])[0], H)
    P = tile(complex_of(weights["layer.kernel.P"]).swapaxes(0, 1), H)
    dt = np.exp(weights["layer.kernel.inv_dt"])
    rows = [stored_for_length(A[h], P[h], B[h], C[:, h], dt[h, 0], length) for h in range(H)]
    C = np.stack(rows, axis=1)
    weights["layer.kernel.C"] = np.stack([C.real, C.imag], axis=-1)
    return weights


def tensors(weights: Arrays, dtype: type = np.float32) -> dict[str, torch.Tensor]:
    """As the official code would store them."""
    return {
        name: torch.from_numpy(np.asarray(x, np.int64 if x.ndim == 0 else dtype))
        for name, x in weights.items()
    }


def rounded(weights: Arrays) -> Arrays:
    """In double precision, but as float32 would hold them."""
    return {name: x.astype(np.float32).astype(np.float64) for name, x in weights.items()}
