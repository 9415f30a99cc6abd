"""The alternatives, written from the mathematics as other implementations compute them.

All work in complex64 and keep every power or quotient in memory, (H, N/2, L) and more. They start
from the values of one of our modules, so that both compute the same kernel.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, glu

from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.discretization import bilinear_low_rank
from s4d_torch.ssm.kernel import dense
from s4d_torch.ssm.pairs import from_readout, readout


def fft_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """``y = K * u`` by a real FFT of twice the length; u (B, H, L), kernel (H, L)."""
    length = u.shape[-1]
    spectrum = torch.fft.rfft(kernel, n=2 * length) * torch.fft.rfft(u, n=2 * length)
    return torch.fft.irfft(spectrum, n=2 * length)[..., :length]


class Convolution(nn.Module, ABC):
    """``y = K * u + D u`` with a kernel that a subclass materialises; u, y (B, L, H)."""

    def __init__(self, ssm: SSM) -> None:
        super().__init__()
        A, dt = ssm.A.detach(), ssm.dt.detach()
        self.D = nn.Parameter(ssm.D.detach().clone())
        self.log_decay = nn.Parameter((-A.real).log().float())
        self.frequency = nn.Parameter(A.imag.float())
        self.log_dt = nn.Parameter(dt.log().float())

    @abstractmethod
    def kernel(self, length: int) -> Tensor:
        """K, (H, length)."""

    def forward(self, u: Tensor) -> Tensor:
        x = u.transpose(1, 2)
        y = fft_convolution(x, self.kernel(u.shape[1])) + self.D[:, None] * x
        return y.transpose(1, 2)


class Listing(Convolution):
    """The paper's listing of S4D: ``K = 2 Re (C B_bar) @ A_bar ** arange(L)``, bilinear.

    ``form`` is how the powers are taken: ``power`` as in the listing, or ``exp`` of a multiple of
    the logarithm, which is faster.
    """

    def __init__(self, ssm: SSM, form: str = "exp") -> None:
        super().__init__(ssm)
        self.form = form
        self.B, self.C = _stored(ssm.B), _stored(ssm.C)

    def kernel(self, length: int) -> Tensor:
        A = torch.complex(-self.log_decay.exp(), self.frequency)  # (H, N/2)
        half = 0.5 * self.log_dt.exp()[:, None] * A
        A_bar = (1 + half) / (1 - half)
        B_bar = self.log_dt.exp()[:, None] * torch.view_as_complex(self.B) / (1 - half)
        steps = torch.arange(length, dtype=torch.float32, device=A.device)
        if self.form == "power":
            powers = A_bar[..., None] ** steps  # (H, N/2, L)
        else:
            powers = torch.exp(A_bar.log()[..., None] * steps)
        weights = torch.view_as_complex(self.C) * B_bar
        return 2 * torch.einsum("hn,hnl->hl", weights, powers).real


class Official(Convolution):
    """The kernel of the official repository's minimal S4D layer: a zero-order hold, and B = 1.

    ``K_l = 2 Re sum_n C_n (e^(dt A_n) - 1) / A_n  e^(dt A_n l)``, with every exponential of
    H x N/2 x L in memory. A B that is given becomes part of C.
    """

    def __init__(self, ssm: SSM) -> None:
        super().__init__(ssm)
        self.C = _stored(ssm.C * ssm.B)

    def kernel(self, length: int) -> Tensor:
        A = torch.complex(-self.log_decay.exp(), self.frequency)  # (H, N/2)
        z = self.log_dt.exp()[:, None] * A
        steps = torch.arange(length, device=A.device)
        powers = torch.exp(z[..., None] * steps)  # (H, N/2, L)
        weights = torch.view_as_complex(self.C) * (torch.exp(z) - 1) / A
        return 2 * torch.einsum("hn,hnl->hl", weights, powers).real


class Cauchy(Convolution):
    """The kernel of S4 from its generating function at the roots of unity, of rank 1.

    At ``z`` with ``z^L = 1`` and ``g = 2 (1 - z) / (1 + z)``, sum_l K_l z^l is

        2 / (1 + z) (k_CB - k_CP k_PB / (1 + k_PP)),   k_ab = dt sum_n a_n b_n / (g - dt A_n)

    over both halves of the conjugate pairs, with ``C (I - A_bar^L)`` for C: that product is the
    trained parameter, made once. ``shared`` divides once for all four sums instead of once each.
    """

    nodes: Tensor  # (L/2 + 1,) g
    scale: Tensor  # (L/2 + 1,) 2 / (1 + z)

    def __init__(self, ssm: SSM, length: int, *, shared: bool = False) -> None:
        super().__init__(ssm)
        self.shared = shared
        A, P, B = ssm.A.detach(), ssm.P.detach(), ssm.B.detach()
        step = bilinear_low_rank(A, P, B, ssm.dt.detach()[:, None])
        rows = readout(ssm.C.detach())[:, None]  # (H, 1, N)
        rows = rows - rows @ torch.linalg.matrix_power(dense(step), length)
        self.P, self.B = _stored(P[:, 0]), _stored(B)
        self.C = _stored(from_readout(rows[:, 0]))
        angle = -2 * torch.pi / length * torch.arange(length // 2 + 1, dtype=torch.float64)
        z = torch.polar(torch.ones_like(angle), angle)
        self.register_buffer("nodes", (2 * (1 - z) / (1 + z)).to(torch.complex64))
        self.register_buffer("scale", (2 / (1 + z)).to(torch.complex64))

    def kernel(self, length: int) -> Tensor:
        dt = self.log_dt.exp()[:, None]
        A = torch.complex(-self.log_decay.exp(), self.frequency)
        B, C, P = (torch.view_as_complex(x) for x in (self.B, self.C, self.P))
        left, right = torch.stack([C, P.conj()]), torch.stack([B, P])  # (2, H, N/2)
        products = left[:, None] * right[None]  # (2, 2, H, N/2)
        products, poles = _both_halves(products), _both_halves(dt * A)
        distance = self.nodes - poles[..., None]  # (H, N, L/2 + 1)
        if self.shared:
            sums = torch.einsum("abhn,hnl->abhl", products, 1 / distance)
        else:
            sums = (products[..., None] / distance).sum(-2)
        k = dt * sums
        spectrum = self.scale * (k[0, 0] - k[0, 1] * k[1, 0] / (1 + k[1, 1]))
        return torch.fft.irfft(spectrum, n=length)


class PeerLayer(nn.Module):
    """A convolution as a whole layer: GELU, a linear map to twice the width, GLU."""

    def __init__(self, core: Convolution) -> None:
        super().__init__()
        width = core.D.shape[0]
        self.core, self.output = core, nn.Linear(width, 2 * width)

    def forward(self, u: Tensor) -> Tensor:
        return glu(self.output(gelu(self.core(u))), dim=-1)


class OfficialLayer(nn.Module):
    """The whole minimal layer: channels come before time inside, and the linear map is a Conv1d."""

    def __init__(self, core: Official) -> None:
        super().__init__()
        width = core.D.shape[0]
        self.core, self.output = core, nn.Conv1d(width, 2 * width, 1)

    def forward(self, u: Tensor) -> Tensor:
        x = u.transpose(1, 2)  # (B, H, L)
        y = fft_convolution(x, self.core.kernel(u.shape[1])) + self.core.D[:, None] * x
        return glu(self.output(gelu(y)), dim=1).transpose(1, 2)


def _stored(x: Tensor) -> nn.Parameter:
    """A complex tensor as a real parameter, (..., 2)."""
    return nn.Parameter(torch.view_as_real(x.detach().to(torch.complex64)).clone())


def _both_halves(x: Tensor) -> Tensor:
    return torch.cat([x, x.conj()], dim=-1)
