"""The state space inside an official layer: its names, signs and stored forms, made ours.

Every generation of the official code stores one diagonal mode of each conjugate pair, B and C as
real pairs and dt per channel; they differ in names, in the sign of Im(A) and in what C holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi

import torch
from torch import Tensor

from s4d_torch.deploy.official.options import (
    CONSTRAINT_OF,
    LOG_TRANSFORMS,
    TRANSFORMS,
    LayerOptions,
)
from s4d_torch.deploy.official.system import (
    Kernel,
    System,
    as_ssm,
    band_limited,
    one_step_size,
    plain_C,
    softmax_C,
    untied,
)
from s4d_torch.deploy.official.weights import Findings, Weights, because, listed


@dataclass(frozen=True)
class Naming:
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


def read_kernel(weights: Weights, options: LayerOptions, findings: Findings) -> Kernel:
    """The kernel's tensors as those of an SSM of the same output."""
    naming = _naming(weights)
    findings.found("layer", naming.title)
    system = _read_system(weights, naming, options, findings)
    rank = 0 if system.P is None else system.P.shape[0]
    mode = f"dplr, rank {rank}" if rank else "diag" if system.pairs else "diag, real"
    findings.found("mode", mode)
    disc = _disc(system, "B" in weights, naming, options, findings)
    if options.bandlimit is not None:
        findings.choose("bandlimit", options.bandlimit, 1.0)
        system = band_limited(system, options.bandlimit)
    system = _our_C(system, disc, weights, options, findings)
    copies = system.raw.shape[0]
    findings.found("n_ssm", copies)
    if system.log_dt.shape[1] > 1:
        system = one_step_size(system)
    elif 1 < copies < system.channels:  # ours serve neighbours: without ties the answer is the same
        system = untied(system)
    return as_ssm(system, disc, length=options.l_max, train_B="B" in weights)


def _our_C(
    system: System, disc: str, weights: Weights, options: LayerOptions, findings: Findings
) -> System:
    """The system with the C that our kernels read as theirs read the stored one."""
    for name, needed in (("l_max", disc == "dss"), ("l_kernel", system.P is not None)):
        if getattr(options, name) is not None and not needed:
            raise ValueError(f"{name} has no effect on this layer (disc {disc}); leave it out")
    if system.P is not None:
        length = _read_length(weights, options)
        findings.found("l_kernel", length)
        return plain_C(system, length)
    if disc == "dss":
        if options.l_max is None:
            raise ValueError(
                "disc 'dss' normalises a kernel over the length of its input, which weights do "
                "not show; pass l_max, the length of the sequences it was trained on"
            )
        findings.choose("l_max", options.l_max, 0)
        return softmax_C(system, options.l_max)
    # they double the real part of real modes too
    return system if system.pairs else replace(system, C=2 * system.C)


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


def _read_system(
    weights: Weights, naming: Naming, options: LayerOptions, findings: Findings
) -> System:
    C, pairs = _read_C(weights, naming)
    _, H, N = C.shape
    raw = weights.take(naming.real, (None, N), "(n_ssm, modes)")
    S = raw.shape[0]
    if H % S:
        raise ValueError(
            f"{weights.prefix + naming.real!r} holds {S} copies, which do not divide the "
            f"{H} channels of C"
        )
    B, P = _read_B_P(weights, S, N, pairs)
    decay, raw, constraint = _read_decay(raw, naming, P is not None, options, findings)
    imag = torch.zeros_like(raw)
    if pairs:
        imag = weights.take(naming.imag, (S, N), "(n_ssm, modes)")
        if options.imag_transform is not None and naming.sign > 0:
            raise ValueError(f"imag_transform is an option of v4, the weights are {naming.title}")
        imag = TRANSFORMS[options.imag_transform or "none"](imag)
    if naming.real == "inv_A_real" and "A" in weights:
        weights.drop("A")  # stored by v3, and never read
    log_dt = _read_log_dt(weights, naming, H, N, options, findings)
    frequency = naming.sign * imag
    return System(raw, constraint, decay, frequency, B, C, P, log_dt, pairs)


def _read_C(weights: Weights, naming: Naming) -> tuple[Tensor, bool]:
    """C (channels, H, modes) complex, and whether modes stand for conjugate pairs."""
    pairs = naming.imag in weights
    if naming.title == "S4D (minimal)":
        C = weights.take("C", (None, None, 2), "(d_model, modes, 2)")[None]
    elif pairs:
        C = weights.take("C", (None, None, None, 2), "(channels, d_model, modes, 2)")
    else:
        C = weights.take("C", (None, None, None), "(channels, d_model, modes), real modes")
    if C.shape[0] > 2:
        raise ValueError(
            f"{weights.prefix + 'C'!r} has {C.shape[0]} channels; one can be converted, or two of "
            "a bidirectional layer: several heads per feature have no counterpart here"
        )
    return _complex(C, pairs), pairs


def _read_B_P(weights: Weights, S: int, N: int, pairs: bool) -> tuple[Tensor, Tensor | None]:
    last = (2,) if pairs else ()
    words = "modes, 2" if pairs else "modes"
    if "B" not in weights:
        B = torch.ones(S, N, dtype=torch.complex128)
    elif weights.tensors[weights.prefix + "B"].ndim == 2 + len(last):  # v3, diagonal
        B = _complex(weights.take("B", (S, N, *last), f"(n_ssm, {words})"), pairs)
    else:
        B = _complex(weights.take("B", (1, S, N, *last), f"(1, n_ssm, {words})"), pairs)[0]
    if "P" not in weights:
        return B, None
    return B, _complex(weights.take("P", (None, S, N, 2), "(rank, n_ssm, modes, 2)"), True)


def _read_decay(
    raw: Tensor, naming: Naming, low_rank: bool, options: LayerOptions, findings: Findings
) -> tuple[Tensor, Tensor, str]:
    """-Re(A), what is stored for it here, and the constraint that is stored behind."""
    if not naming.transforms:
        if options.real_transform not in (None, "exp"):
            raise ValueError(
                f"{naming.real} is the logarithm of -Re(A), so real_transform is 'exp', "
                f"got {options.real_transform!r}"
            )
        return raw.exp(), raw, "exp"
    transform = findings.choose("real_transform", options.real_transform, "exp")
    if transform == "relu" and low_rank and naming.sign > 0:
        return raw.relu(), raw.relu(), "identity"  # v3 has no floor there, ours has
    decay = TRANSFORMS[transform](raw)
    if transform == "sigmoid":
        return decay, LOG_TRANSFORMS["sigmoid"](raw), "exp"
    return decay, raw, CONSTRAINT_OF[transform]


def _read_log_dt(
    weights: Weights, naming: Naming, H: int, N: int, options: LayerOptions, findings: Findings
) -> Tensor:
    """log dt, (H, 1) or (H, N)."""
    if naming.dt == "log_dt":
        if options.dt_transform not in (None, "exp") or options.dt_fast:
            raise ValueError("log_dt is log dt; dt_transform and dt_fast are options of inv_dt")
        return weights.take("log_dt", (H,), "(d_model,)")[:, None]
    each = weights.tensors[weights.prefix + "inv_dt"].shape[-1:] == (N,)
    words = "(d_model, 1), or (d_model, modes)"
    raw = weights.take("inv_dt", (H, N if each else 1), words)
    raw = raw.sinh() if options.dt_fast else raw
    transform = findings.choose("dt_transform", options.dt_transform, "exp")
    if transform in LOG_TRANSFORMS:
        return LOG_TRANSFORMS[transform](raw)
    dt = TRANSFORMS[transform](raw)
    if not bool((dt > 0).all()):
        raise ValueError(
            f"dt_transform {transform!r} gives step sizes down to {float(dt.min()):.3g}, "
            "which must be above 0; name the transform that inv_dt was trained under"
        )
    return dt.log()


def _disc(
    system: System, has_B: bool, naming: Naming, options: LayerOptions, findings: Findings
) -> str:
    only = "bilinear" if system.P is not None else None if has_B else "zoh"
    if only is None:
        return findings.choose("disc", options.disc, naming.disc)
    if options.disc not in (None, only):
        kind = "an S4 layer (DPLR)" if only == "bilinear" else "a layer without B"
        raise ValueError(f"{kind} is always {only!r}, got disc {options.disc!r}")
    findings.found("disc", only)
    return only


def _read_length(weights: Weights, options: LayerOptions) -> int:
    """The length L for which an S4 layer stores ``C (I - A_bar^L)``; 0 if it stores C itself."""
    for name in ("l_kernel", "L"):
        if name in weights:
            stored = int(weights.take(name, (), "(), a length"))
            if options.l_kernel not in (None, stored):
                raise ValueError(
                    f"{weights.prefix + name!r} says {stored}, got l_kernel={options.l_kernel}"
                )
            return stored
    if "omega" in weights:  # v2 stores its nodes, exp(-2 pi i k / L), and 2 (1 - w) / (1 + w)
        nodes = _complex(weights.take("omega", (None, 2), "(L // 2 + 1, 2)"), True)
        weights.drop("z")
        return 1 if len(nodes) == 1 else round(2 * pi / float(nodes[1].angle().abs()))
    if options.l_kernel is None:
        raise ValueError(
            "C of an S4 layer is made for a length that these weights do not hold; "
            "pass l_kernel, the length of the sequences it was trained on (their l_max)"
        )
    return options.l_kernel


def _complex(x: Tensor, pairs: bool) -> Tensor:
    if pairs:
        return torch.complex(x[..., 0], x[..., 1])
    return torch.complex(x, torch.zeros_like(x))
