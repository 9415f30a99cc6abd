"""Convolution kernels of state space models, and the basis functions they are made of.

All take their parameters in double precision and round once, at the end: a kernel of length L sees
angles of up to L times the fastest frequency, where float32 has no digits left.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from s4d_torch.ssm.autodiff import again, at_hand, gradients, traced, transformed
from s4d_torch.ssm.discretization import Discrete, DiscreteLowRank, inverse
from s4d_torch.ssm.pairs import from_readout, multiplication, readout, to_real

# Cauchy: complex128 entries of one block of (channels, modes, nodes); 64 MB
CAUCHY_BLOCK = 2**22
TRACED_BLOCK = 256  # samples of a block in a compiled graph


def vandermonde(step: Discrete, C: Tensor, length: int, *, pairs: bool = True) -> Tensor:
    """``K_0 = C B_now``, ``K_l = C A_bar^(l-1) B_next``: C (..., H, M) -> (..., H, length) real.

    For a rule that looks at one sample this is ``K_l = C A_bar^l B_bar``.
    """
    if step.B_next is None:
        return power_sum(C * step.B_now, step.log_A, length, pairs=pairs)
    now = (2 if pairs else 1) * (C * step.B_now).real.sum(-1, keepdim=True)
    later = power_sum(C * step.B_next, step.log_A, max(length - 1, 1), pairs=pairs)
    return torch.cat([now, later[..., : length - 1]], dim=-1)


def power_sum(weights: Tensor, log_A: Tensor, length: int, *, pairs: bool = True) -> Tensor:
    """``2 Re sum_n weights_n A_n^l`` for l < length, without an N x L matrix.

    weights (..., H, M), log_A (H, M) -> (..., H, length). With l = T i + j, A^l is the product of
    ``(A^T)^i`` and ``A^j``: two tables of about sqrt(L) powers, then one real matrix product with
    inner size 2M. The product is double precision too: modes may cancel, and a sum in float32
    would be off by 1e-5 of the largest ``|K|``.
    """
    flat = weights.reshape(-1, *log_A.shape)
    if transformed():
        sums = _power_sum(flat, log_A, length, pairs)[0]
    else:
        sums = _PowerSum.apply(flat, log_A, length, pairs)  # type: ignore[no-untyped-call]
    return sums.reshape(*weights.shape[:-1], length)


def _power_sum(
    weights: Tensor, log_A: Tensor, length: int, pairs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums, (G, H, length), and the two tables of powers."""
    count, T = blocks(length)
    inner = powers(log_A, T)  # (H, T, M)
    outer = powers(log_A, count, stride=T)  # (H, I, M)
    rows = to_real(weights[:, :, None] * outer, pairs)  # (G, H, I, S)
    sums = torch.matmul(rows, readout(inner, pairs).mT)  # (G, H, I, T)
    return sums.flatten(2)[..., :length], inner, outer


class _PowerSum(torch.autograd.Function):
    """:func:`power_sum` with its adjoint: two more matrix products, and nothing kept but tables.

    For a gradient G of the sums, ``S0 = sum_l G_l A^l`` and ``S1 = sum_l l G_l A^l`` give those of
    the weights, ``2 conj(S0)``, and of log A, ``2 conj(weights S1)``.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, log_A: Tensor, length: int, pairs: bool) -> Tensor:
        sums, inner, outer = _power_sum(weights, log_A, length, pairs)
        ctx.save_for_backward(weights, log_A, inner, outer)
        ctx.pairs = pairs
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weights, log_A, inner, outer = ctx.saved_tensors
        if again():

            def plain(weights: Tensor, log_A: Tensor) -> Tensor:
                return _power_sum(weights, log_A, grad.shape[-1], ctx.pairs)[0]

            of_weights, of_log_A = gradients(plain, (weights, log_A), (grad,))
            return of_weights, of_log_A, None, None
        T, count = inner.shape[1], outer.shape[1]
        j = torch.arange(T, dtype=grad.dtype, device=grad.device)
        # reshape, not unflatten: gradients that come in batches know the former alone
        padded = torch.nn.functional.pad(grad, (0, count * T - grad.shape[-1]))
        rows = padded.reshape(*grad.shape[:-1], -1, T)
        columns = torch.view_as_real(torch.cat([inner, j[:, None] * inner], dim=-1))
        seen = torch.matmul(rows, columns.flatten(-2))  # (G, H, I, 4 M)
        seen, late = torch.view_as_complex(seen.reshape(*seen.shape[:-1], -1, 2)).chunk(2, dim=-1)
        i = torch.arange(count, dtype=grad.dtype, device=grad.device)
        S0 = (outer * seen).sum(2)
        S1 = (outer * (T * i[:, None] * seen + late)).sum(2)
        scale = 2 if ctx.pairs else 1
        return scale * S0.conj(), scale * (weights * S1).sum(0).conj(), None, None


def softmax(
    step: Discrete, C: Tensor, horizon: Tensor, length: int, *, pairs: bool = True
) -> Tensor:
    """The DSS kernel: Vandermonde with each mode divided by ``e^horizon - 1``.

    ``horizon`` (H, M) is ``A dt L`` for the length L that the softmax is taken over. A mode that
    grows is written from its end, ``e^(l log A - horizon)``, so no power overflows below L.
    """
    weights, log_A = C * step.B_now, step.log_A
    grows = log_A.real > 0
    none, still = torch.zeros_like(weights), torch.zeros_like(log_A)
    normalizer = torch.expm1(torch.where(grows, -horizon, horizon))
    decaying = torch.where(grows, none, weights / normalizer)
    kernel = power_sum(decaying, torch.where(grows, still, log_A), length, pairs=pairs)
    if at_hand(grows) and not bool(grows.any()):
        return kernel
    back = torch.where(grows, -log_A, still)  # one step back in time, a decay
    end = torch.where(grows, length * log_A - horizon, still)
    growing = torch.where(grows, -weights / normalizer, none) * torch.exp(end + back)
    return kernel + power_sum(growing, back, length, pairs=pairs).flip(-1)


def softmax_step(step: Discrete, C: Tensor, horizon: Tensor) -> tuple[Discrete, Tensor]:
    """The step and C of a system whose kernel is :func:`softmax`, for the recurrence.

    The factor of the normaliser that would overflow, e^horizon of a growing mode, goes to B.
    """
    grows = horizon.real > 0
    away = torch.where(grows, -horizon, horizon)  # the sign that decays
    shrink = torch.exp(torch.where(grows, away, torch.zeros_like(away)))
    C = C / torch.expm1(away) * torch.where(grows, -1.0, 1.0)
    return step._replace(B_now=step.B_now * shrink), C


def cauchy(
    A: Tensor, P: Tensor, B: Tensor, C: Tensor, dt: Tensor, step: DiscreteLowRank, length: int
) -> Tensor:
    """The kernel of ``diag(A) - P P*`` under the bilinear rule, from its generating function.

    A, B (H, M), P (H, rank, M), C (..., H, M), dt (H, 1), ``step`` their discrete form ->
    (..., H, length). At the nodes z with ``z^L = -1``, sum_l K_l z^l = C~ (I - z A_bar)^-1 B_bar
    where ``C~ = C (I + A_bar^L)``, and

        (I - z A_bar)^-1 B_bar = ((1 - z) I - (1 + z) dt/2 (diag(A) - P P*))^-1 dt B

    is four Cauchy sums and a small inverse (Woodbury). These nodes keep clear of z = 1, where a
    frequency of 0 is singular, and this form of z = -1, where the usual one is. Nodes are taken in
    blocks, computed again in the backward pass, so memory stays bounded.
    """
    lead = C.shape[:-2]
    C = C.reshape(-1, *C.shape[-2:]).transpose(0, 1)  # (H, G, M)
    rows = readout(C)
    rows = rows + rows @ torch.linalg.matrix_power(dense(step), length)
    left = torch.cat([2 * from_readout(rows), P.conj()], dim=-2)  # (H, G + rank, M)
    right = torch.cat([(dt * B)[:, None], P], dim=-2)  # (H, 1 + rank, M)
    pairs = left[:, :, None] * right[:, None]  # (H, G + rank, 1 + rank, M)
    half = -(-length // 2)
    angle = torch.pi / length * (2 * torch.arange(half, device=A.device, dtype=dt.dtype) + 1)
    z = torch.polar(torch.ones_like(angle), angle)
    parts = z.split(max(1, CAUCHY_BLOCK // A.numel()))
    # a compiler chooses by itself what to compute again, an export has no backward pass, and
    # transforms know nothing of checkpoints
    sparing = torch.is_grad_enabled() and not traced()
    again_later: Any = {"use_reentrant": False, "preserve_rng_state": False}
    resolvent = partial(checkpoint, _resolvent, **again_later) if sparing else _resolvent
    spectrum = torch.cat([resolvent(A, dt, pairs, part, lead.numel()) for part in parts], dim=-1)
    whole = torch.cat([spectrum, spectrum[..., : length // 2].conj().flip(-1)], dim=-1)
    turn = -torch.pi / length * torch.arange(length, device=A.device, dtype=dt.dtype)
    samples = torch.fft.fft(whole, norm="forward") * torch.polar(torch.ones_like(turn), turn)
    return samples.real.transpose(0, 1).reshape(*lead, -1, length)


def _resolvent(A: Tensor, dt: Tensor, pairs: Tensor, z: Tensor, outputs: int) -> Tensor:
    """``C~ ((1-z) I - (1+z) dt/2 (diag(A) - P P*))^-1 dt B`` at the nodes z; (H, outputs, nodes).

    The form ``f^T g(A) v`` on conjugate pairs is ``Re(w) `` and ``Re(w conj A)`` over a real
    quadratic in A, for w the product of the modes of f and v.
    """
    a = 1 - z  # (nodes,)
    b = 0.5 * (1 + z) * dt  # (H, nodes)
    scaled = A[..., None] * b[:, None]
    scaled_conjugate = A.conj()[..., None] * b[:, None]
    inverse = 1 / ((a - scaled) * (a - scaled_conjugate))  # (H, M, nodes)
    numerators = torch.stack([pairs.real, (pairs * A.conj()[:, None, None]).real], dim=1)
    sums = numerators.flatten(1, 3) @ torch.view_as_real(inverse).flatten(2)  # real products
    sums = torch.view_as_complex(sums.unflatten(-1, (-1, 2))).unflatten(1, numerators.shape[1:4])
    form = sums[:, 0] * a - sums[:, 1] * b[:, None, None]  # (H, G + rank, 1 + rank, nodes)
    form = form.movedim(-1, 1)  # (H, nodes, G + rank, 1 + rank)
    read, low_rank = form[:, :, :outputs], form[:, :, outputs:]
    rank = low_rank.shape[-2]
    gain = (2 * b)[..., None, None]
    core = torch.eye(rank, dtype=form.dtype, device=form.device) + gain * low_rank[..., 1:]
    correction = read[..., 1:] @ _small_inverse(core) @ low_rank[..., :1]
    return (read[..., :1] - gain * correction)[..., 0].transpose(1, 2)


def _small_inverse(matrix: Tensor) -> Tensor:
    return 1 / matrix if matrix.shape[-1] == 1 else inverse(matrix)


def dense(step: DiscreteLowRank) -> Tensor:
    """A_bar of a DPLR step as a real matrix on conjugate pairs, (H, 2M, 2M)."""
    left = to_real(step.left.mT).mT
    right = readout(step.right) / 2
    return multiplication(step.diagonal) - left @ right


class Squares:
    """The powers ``A^(2^k)`` of a matrix per channel (H, S, S), each made when first needed."""

    def __init__(self, A: Tensor) -> None:
        self.known = [A]

    def get(self, k: int) -> Tensor:
        """``A^(2^k)``."""
        while len(self.known) <= k:
            self.known.append(self.known[-1] @ self.known[-1])
        return self.known[k]

    def power(self, steps: int) -> Tensor:
        """``A^steps``, steps >= 1."""
        bits = [k for k in range(steps.bit_length()) if steps >> k & 1]
        result = self.get(bits[0])
        for k in bits[1:]:
            result = result @ self.get(k)
        return result

    def rows(self, row: Tensor, count: int, stride: int = 1) -> Tensor:
        """``row A^(stride j)``, j < count, by doubling: (H, G, S) -> (H, count G, S), j-major."""
        total, k = row, stride.bit_length() - 1
        while total.shape[1] < count * row.shape[1]:
            total = torch.cat([total, total @ self.get(k)], dim=1)
            k += 1
        return total[:, : count * row.shape[1]]

    def columns(self, column: Tensor, count: int) -> Tensor:
        """``A^j column`` for j < count: (H, S, 1) -> (H, S, count)."""
        total, k = column, 0
        while total.shape[2] < count:
            total = torch.cat([total, self.get(k) @ total], dim=2)
            k += 1
        return total[..., :count]


def krylov(A_bar: Tensor, B: Tensor, C: Tensor, length: int) -> Tensor:
    """``C A_bar^l B`` for real dense systems: A_bar (H, S, S), B (H, S), C (..., H, S).

    With l = T i + j this is ``(C A^(T i)) (A^j B)``: doubling, squares of A_bar and one product,
    all of them matrix products, and several times faster than the Cauchy sums on a CPU.
    """
    lead, (count, T) = C.shape[:-2], blocks(length)
    squares = Squares(A_bar)
    rows = squares.rows(C.reshape(-1, *C.shape[-2:]).transpose(0, 1), count, stride=T)
    sums = rows @ squares.columns(B[..., None], T)  # (H, I G, T)
    sums = sums.unflatten(1, (count, -1)).permute(2, 0, 1, 3)  # (G, H, I, T)
    return sums.flatten(2)[..., :length].reshape(*lead, -1, length)


def toeplitz(kernel: Tensor) -> Tensor:
    """The upper triangular matrix ``M[s, t] = kernel[t - s]``, so that ``u @ M`` is causal."""
    size = kernel.shape[-1]
    lag = torch.arange(size, device=kernel.device)
    lag = lag[None, :] - lag[:, None]
    return torch.where(lag >= 0, kernel[..., lag.clamp(min=0)], 0.0)


def basis(A: Tensor, B: Tensor, t: Tensor) -> Tensor:
    """The continuous basis functions ``K_n(t) = e^(t A_n) B_n``; ``(..., M, *t.shape)``."""
    shape = (*A.shape, *[1] * t.ndim)
    return torch.exp(A.reshape(shape) * t) * B.reshape(shape)


def powers(log_A: Tensor, count: int, stride: int = 1) -> Tensor:
    """``A^(stride j)`` for j < count; (H, M) -> (H, count, M).

    By doubling: each power of two has its own exponential, so an entry is a product of a few
    factors that are right to the last bit. A graph that is to serve every length has no such loop.
    """
    if torch.compiler.is_compiling():
        j = torch.arange(count, dtype=log_A.real.dtype, device=log_A.device)
        return torch.exp(log_A[:, None] * (stride * j)[:, None])
    table = torch.ones_like(log_A)[:, None]
    while table.shape[1] < count:
        factor = torch.exp(log_A * (stride * table.shape[1]))
        table = torch.cat([table, table * factor[:, None]], dim=1)
    return table[:, :count]


def blocks(length: int) -> tuple[int, int]:
    """How many blocks of T samples hold a sequence, about as many of each; T is a power of 2.

    That makes both tables of powers short. A graph is to serve every length: its T is a number, and
    it never has one block alone, for which torch would make another graph.
    """
    if torch.compiler.is_compiling():
        return length // TRACED_BLOCK + 2, TRACED_BLOCK
    T = int(2 ** round(math.log2(max(length, 1)) / 2))
    return -(-length // T), T
