"""The state space inside an official layer: its names, signs and stored forms, made ours.

Every generation of the official code stores one diagonal mode of each conjugate pair, B and C as
real pairs and dt per channel; they differ in names, in the sign of Im(A) and in what C holds. All
are read into one common form, :class:`OfficialSystem`, which a few steps turn into an SSM of ours.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import pi
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from s4d_torch.deploy.official.weights import Facts, LayerOptions, Weights, because, listed
from s4d_torch.nn.method import Method
from s4d_torch.ssm.constraint import FLOOR
from s4d_torch.ssm.discretization import bilinear_low_rank
from s4d_torch.ssm.kernel import dense
from s4d_torch.ssm.pairs import from_readout, readout

DSS_EPSILON = 1e-7  # of the official reciprocal
TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "relu": lambda raw: raw.relu() + FLOOR,
    "none": lambda raw: raw,
    "sigmoid": torch.sigmoid,
    "softplus": softplus,
}
# the logarithm without a detour, where there is one
LOG_TRANSFORMS = {"exp": lambda raw: raw, "sigmoid": logsigmoid}
CONSTRAINT_OF = {"exp": "exp", "relu": "relu", "softplus": "softplus", "none": "identity"}


class Naming(NamedTuple):
    """How one generation stores A and dt: ``Im(A) = sign * imag``; known by its key ``real``."""

    title: str
    real: str
    imag: str
    sign: int
    dt: str
    disc: str  # the default for diagonal layers
    transforms: bool  # whether anything but exp is possible


NAMINGS = (
    Naming("S4Block (v4)", "A_real", "A_imag", -1, "inv_dt", "zoh", True),
    Naming("S4D (minimal)", "log_A_real", "A_imag", 1, "log_dt", "zoh", False),
    Naming("S4D (v3)", "inv_A_real", "A_imag", 1, "log_dt", "bilinear", True),
    Naming("S4 or S4D (v3)", "inv_w_real", "w_imag", 1, "log_dt", "bilinear", True),
    Naming("S4 or S4D (v2)", "log_w_real", "w_imag", 1, "log_dt", "zoh", False),
)


@dataclass(frozen=True)
class OfficialSystem:
    """S copies of (A, B, P) for H channels, in double precision; channel h uses copy h mod S."""

    raw: Tensor  # (S, N), the decay behind ``constraint``
    constraint: str
    decay: Tensor  # (S, N)
    frequency: Tensor  # (S, N), zero for real modes
    B: Tensor  # (S, N) complex
    C: Tensor  # (channels, H, N) complex
    P: Tensor | None  # (rank, S, N) complex
    log_dt: Tensor  # (H, 1), or (H, N) with a step size for each mode
    pairs: bool

    @property
    def A(self) -> Tensor:
        return torch.complex(-self.decay, self.frequency)

    def each(self, x: Tensor) -> Tensor:
        """(S, ...) -> (H, ...), in the official order of the copies."""
        return x.repeat(self.C.shape[1] // x.shape[0], *[1] * (x.ndim - 1))


class KernelParts(NamedTuple):
    """The method and the parameters of an SSM."""

    method: Method
    d_state: int
    tensors: dict[str, Tensor]


def read_kernel(weights: Weights, options: LayerOptions, facts: Facts) -> KernelParts:
    """The kernel's tensors as those of an SSM of the same output."""
    reader = _KernelReader(weights, options, facts, _naming(weights))
    facts.found("layer", reader.naming.title)
    system = reader.system()
    rank = 0 if system.P is None else system.P.shape[0]
    facts.found("mode", f"dplr, rank {rank}" if rank else f"diag{'' if system.pairs else ', real'}")
    disc = reader.discretization(low_rank=rank > 0)
    if options.bandlimit is not None:
        facts.choose("bandlimit", options.bandlimit, 1.0)
        system = band_limited(system, options.bandlimit)
    system = reader.with_our_C(system, disc)
    copies = system.raw.shape[0]
    facts.found("n_ssm", copies)
    if system.log_dt.shape[1] > 1:
        system = one_step_size(system)
    elif 1 < copies < system.C.shape[1]:
        system = untied(system)  # ours serve neighbours: without ties the answer is the same
    return as_ssm(system, disc, length=options.l_max, train_B="B" in weights)


def _naming(weights: Weights) -> Naming:
    for naming in NAMINGS:
        if naming.real in weights and naming.dt in weights:
            return naming
    names = [weights.prefix + name for name in weights.names()]
    wanted = ", ".join(f"{naming.real} with {naming.dt}" for naming in NAMINGS)
    raise ValueError(
        f"the kernel at {weights.prefix!r} is of no known kind: expected one of {wanted}; "
        f"got {listed(names)}{because(names)}"
    )


@dataclass(frozen=True)
class _KernelReader:
    """Reads a state space tensor by tensor, as its generation names and stores them."""

    weights: Weights
    options: LayerOptions
    facts: Facts
    naming: Naming

    def system(self) -> OfficialSystem:
        weights, naming, options = self.weights, self.naming, self.options
        C, pairs = self._C()
        _, H, N = C.shape
        raw = weights.take(naming.real, (None, N), "(n_ssm, modes)")
        S = raw.shape[0]
        if H % S:
            raise ValueError(
                f"{weights.prefix + naming.real!r} holds {S} copies, which do not divide the "
                f"{H} channels of C"
            )
        B, P = self._B_and_P(S, N, pairs)
        decay, raw, constraint = self._decay(raw, low_rank=P is not None)
        imag = torch.zeros_like(raw)
        if pairs:
            imag = weights.take(naming.imag, (S, N), "(n_ssm, modes)")
            if options.imag_transform is not None and naming.sign > 0:
                title = naming.title
                raise ValueError(f"imag_transform is an option of v4, the weights are {title}")
            imag = TRANSFORMS[options.imag_transform or "none"](imag)
        if naming.real == "inv_A_real" and "A" in weights:
            weights.drop("A")  # stored by v3, and never read
        log_dt, frequency = self._log_dt(H, N), naming.sign * imag
        return OfficialSystem(raw, constraint, decay, frequency, B, C, P, log_dt, pairs)

    def _C(self) -> tuple[Tensor, bool]:
        """C (channels, H, modes) complex, and whether modes stand for conjugate pairs."""
        weights, pairs = self.weights, self.naming.imag in self.weights
        if self.naming.title == "S4D (minimal)":
            C = weights.take("C", (None, None, 2), "(d_model, modes, 2)")[None]
        elif pairs:
            C = weights.take("C", (None, None, None, 2), "(channels, d_model, modes, 2)")
        else:
            C = weights.take("C", (None, None, None), "(channels, d_model, modes), real modes")
        if C.shape[0] > 2:
            raise ValueError(
                f"{weights.prefix + 'C'!r} has {C.shape[0]} channels; one can be converted, or two "
                "of a bidirectional layer: several heads per feature have no counterpart here"
            )
        return _complex(C, pairs), pairs

    def _B_and_P(self, S: int, N: int, pairs: bool) -> tuple[Tensor, Tensor | None]:
        weights, last = self.weights, (2,) if pairs else ()
        B = torch.ones(S, N, dtype=torch.complex128)
        if "B" in weights:
            flat = weights.stored("B").ndim == 2 + len(last)  # v3, diagonal
            words = f"({'' if flat else '1, '}n_ssm, modes{', 2' if pairs else ''})"
            shape = (S, N, *last) if flat else (1, S, N, *last)
            B = _complex(weights.take("B", shape, words), pairs).view(S, N)
        if "P" not in weights:
            return B, None
        return B, _complex(weights.take("P", (None, S, N, 2), "(rank, n_ssm, modes, 2)"), True)

    def _decay(self, raw: Tensor, *, low_rank: bool) -> tuple[Tensor, Tensor, str]:
        """-Re(A), what is stored for it here, and the constraint that is stored behind."""
        naming, given = self.naming, self.options.real_transform
        if not naming.transforms:
            if given not in (None, "exp"):
                raise ValueError(
                    f"{naming.real} is the logarithm of -Re(A), so real_transform is 'exp', "
                    f"got {given!r}"
                )
            return raw.exp(), raw, "exp"
        transform = self.facts.choose("real_transform", given, "exp")
        if transform == "relu" and low_rank and naming.sign > 0:
            return raw.relu(), raw.relu(), "identity"  # v3 has no floor there, ours has
        decay = TRANSFORMS[transform](raw)
        if transform == "sigmoid":
            return decay, LOG_TRANSFORMS["sigmoid"](raw), "exp"
        return decay, raw, CONSTRAINT_OF[transform]

    def _log_dt(self, H: int, N: int) -> Tensor:
        """log dt, (H, 1) or (H, N)."""
        weights, given = self.weights, self.options.dt_transform
        if self.naming.dt == "log_dt":
            if given not in (None, "exp") or self.options.dt_fast:
                raise ValueError("log_dt is log dt; dt_transform and dt_fast are options of inv_dt")
            return weights.take("log_dt", (H,), "(d_model,)")[:, None]
        count = N if weights.stored("inv_dt").shape[-1:] == (N,) else 1
        raw = weights.take("inv_dt", (H, count), "(d_model, 1), or (d_model, modes)")
        raw = raw.sinh() if self.options.dt_fast else raw
        transform = self.facts.choose("dt_transform", given, "exp")
        if transform in LOG_TRANSFORMS:
            return LOG_TRANSFORMS[transform](raw)
        dt = TRANSFORMS[transform](raw)
        if not bool((dt > 0).all()):
            raise ValueError(
                f"dt_transform {transform!r} gives step sizes down to {float(dt.min()):.3g}, "
                "which must be above 0; name the transform that inv_dt was trained under"
            )
        return dt.log()

    def discretization(self, *, low_rank: bool) -> str:
        given = self.options.disc
        if "B" in self.weights and not low_rank:
            return self.facts.choose("disc", given, self.naming.disc)
        only = "bilinear" if low_rank else "zoh"
        if given not in (None, only):
            kind = "an S4 layer (DPLR)" if low_rank else "a layer without B"
            raise ValueError(f"{kind} is always {only!r}, got disc {given!r}")
        self.facts.found("disc", only)
        return only

    def with_our_C(self, system: OfficialSystem, disc: str) -> OfficialSystem:
        """The system with the C that our kernels read as theirs read the stored one."""
        options = self.options
        for name, needed in (("l_max", disc == "dss"), ("l_kernel", system.P is not None)):
            if getattr(options, name) is not None and not needed:
                raise ValueError(f"{name} has no effect on this layer (disc {disc}); leave it out")
        if system.P is not None:
            self.facts.found("l_kernel", length := self._length())
            return plain_C(system, length)
        if disc == "dss":
            if options.l_max is None:
                raise ValueError(
                    "disc 'dss' normalises a kernel over the length of its input, which weights do "
                    "not show; pass l_max, the length of the sequences it was trained on"
                )
            self.facts.choose("l_max", options.l_max, 0)
            return softmax_C(system, options.l_max)
        # they double the real part of real modes too
        return system if system.pairs else replace(system, C=2 * system.C)

    def _length(self) -> int:
        """The L for which an S4 layer stores ``C (I - A_bar^L)``; 0 if it stores C itself."""
        weights, given = self.weights, self.options.l_kernel
        for name in ("l_kernel", "L"):
            if name in weights:
                stored, key = int(weights.take(name, (), "(), a length")), weights.prefix + name
                if given not in (None, stored):
                    raise ValueError(f"{key!r} says {stored}, got l_kernel={given}")
                return stored
        if "omega" in weights:  # v2 stores its nodes, exp(-2 pi i k / L), and 2 (1 - w) / (1 + w)
            nodes = _complex(weights.take("omega", (None, 2), "(L // 2 + 1, 2)"), True)
            weights.drop("z")
            return 1 if len(nodes) == 1 else round(2 * pi / float(nodes[1].angle().abs()))
        if given is None:
            raise ValueError(
                "C of an S4 layer is made for a length that these weights do not hold; "
                "pass l_kernel, the length of the sequences it was trained on (their l_max)"
            )
        return given


def _complex(x: Tensor, pairs: bool) -> Tensor:
    return torch.complex(x[..., 0], x[..., 1]) if pairs else torch.complex(x, torch.zeros_like(x))


def plain_C(system: OfficialSystem, length: int) -> OfficialSystem:
    """C from the stored ``C (I - A_bar^L)``, on real vectors that stand for conjugate pairs."""
    assert system.P is not None
    if system.log_dt.shape[1] > 1:
        raise ValueError(
            "an S4 layer (DPLR) with a step size for each mode (dt_tie=False) has no counterpart"
        )
    if length == 0:
        return system
    P = system.each(system.P.transpose(0, 1))  # (H, rank, N)
    A, B = system.each(system.A), system.each(system.B)
    A_bar = dense(bilinear_low_rank(A, P, B, system.log_dt.exp()))
    faded = torch.eye(A_bar.shape[-1], dtype=A_bar.dtype) - torch.matrix_power(A_bar, length)
    stored = readout(system.C).transpose(0, 1)  # (H, channels, 2N)
    rows, failed = torch.linalg.solve_ex(faded, stored, left=False)
    if bool(failed.any()) or not bool(torch.isfinite(rows).all()):
        raise ValueError(
            f"C cannot be recovered from C (I - A_bar^{length}), some mode does not fade at all; "
            "is real_transform the one it was trained under?"
        )
    return replace(system, C=from_readout(rows.transpose(0, 1)))


def softmax_C(system: OfficialSystem, length: int) -> OfficialSystem:
    """C for our softmax kernel, which doubles the real part and divides exactly."""
    A = system.each(system.A)
    z = A * system.log_dt.exp()
    size = (A * torch.expm1(torch.where(A.real > 0, -z, z) * length)).abs().square()
    exact = size / (size + DSS_EPSILON)
    return replace(system, C=system.C * exact * (0.5 if system.pairs else 1.0))


def band_limited(system: OfficialSystem, limit: float) -> OfficialSystem:
    """C without the modes that turn at or above ``limit`` of half a turn per step."""
    turns = system.log_dt.exp() * system.each(system.frequency).abs() / (2 * pi)
    return replace(system, C=system.C * (turns < 0.5 * limit))


def untied(system: OfficialSystem) -> OfficialSystem:
    """One copy of A, B and P for each channel."""
    P = None if system.P is None else system.each(system.P.transpose(0, 1)).transpose(0, 1)
    tied = (system.raw, system.decay, system.frequency, system.B)
    raw, decay, frequency, B = map(system.each, tied)
    return replace(system, raw=raw, decay=decay, frequency=frequency, B=B, P=P)


def one_step_size(system: OfficialSystem) -> OfficialSystem:
    """A step size per mode moved into A and B, where ``dt A`` and ``dt B`` stay what they were."""
    system = untied(system)
    log_dt = system.log_dt.mean(1, keepdim=True)
    ratio = system.log_dt - log_dt
    moved = {name: getattr(system, name) * ratio.exp() for name in ("decay", "frequency", "B")}
    exp = system.constraint == "exp"
    raw, constraint = (system.raw + ratio, "exp") if exp else (moved["decay"], "identity")
    return replace(system, raw=raw, constraint=constraint, log_dt=log_dt, **moved)


def as_ssm(system: OfficialSystem, disc: str, *, length: int | None, train_B: bool) -> KernelParts:
    """The tensors of an SSM; ``init`` only says of what shape they are."""
    channels, H, N = system.C.shape
    structure, init = "diagonal", "lin" if system.pairs else "real"
    kernel, discretization = ("softmax", "zoh") if disc == "dss" else ("vandermonde", disc)
    if system.P is not None:
        rank = system.P.shape[0]
        if rank > 2:
            raise ValueError(f"the low-rank term P has rank {rank}; ranks 1 and 2 can be converted")
        structure, kernel, init = "dplr", "cauchy", "legs" if rank == 1 else "legt"
    method = Method(
        structure=structure,
        kernel=kernel,
        discretization=discretization,
        constraint=system.constraint,
        init=init,
        train_B=train_B,
        n_ssm=1 if system.raw.shape[0] == 1 < H else None,
        bidirectional=channels == 2,
        softmax_length=length if length and kernel == "softmax" else Method.softmax_length,
    )
    stored = torch.view_as_real if system.pairs else torch.real
    C = system.C if channels == 2 else system.C[0]
    tensors = {"raw_decay": system.raw, "raw_B": stored(system.B), "raw_C": stored(C)}
    if system.pairs:
        tensors["frequency"] = system.frequency
    if system.P is not None:
        tensors["raw_P"] = stored(system.P.transpose(0, 1))
    tensors["log_dt"] = system.log_dt[:, 0]
    return KernelParts(method, 2 * N if system.pairs else N, tensors)
