"""The paper's claims about the bases of LegS and FouT, with and without their low-rank terms."""

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from s4d_torch.paper import bases
from s4d_torch.paper.claims.claim import Verdict, claim, judged
from s4d_torch.ssm.hippo import HIPPO, legs_basis

SIZES = (64, 256, 1024)
TIMES = torch.linspace(0.02, 4, 2001, dtype=torch.float64)


@claim("Theorem 6 (appendix A.1)")
def legs_closed_form() -> Verdict:
    """The basis of LegS is K_n(t) = L_n(e^-t) e^-t, with L_n the Legendre polynomials that are
    orthonormal on [0, 1]."""
    hippo = HIPPO["legs"](32)
    found = bases.dense_basis(hippo.A, hippo.B, 0.05, 80, 32)
    wanted = legs_basis(32, 0.05 * torch.arange(81, dtype=torch.float64))
    error = (found - wanted).abs().max().item()
    return judged(error < 1e-9, f"largest difference {error:.0e} for 32 functions on 0 <= t <= 4")


@claim("Lemma A.1")
def legs_orthonormal() -> Verdict:
    """The functions L_n(e^-t) are a complete orthonormal basis for the measure e^-t."""
    nodes, weights = (torch.from_numpy(values) for values in leggauss(200))
    x, weights = (nodes + 1) / 2, weights / 2  # x = e^-t turns the measure into dx on [0, 1]
    L = legs_basis(64, -x.log()) / x
    gram = (L * weights) @ L.mT
    error = (gram - torch.eye(64, dtype=torch.float64)).abs().max().item()
    kinked = (-x.log() - 1).abs()
    kept = (L * weights) @ kinked
    total = (weights * kinked.square()).sum()
    left = [1 - (kept[:count].square().sum() / total).item() for count in (4, 16, 64)]
    return judged(
        error < 1e-12 and left[0] > 4 * left[1] > 16 * left[2],
        f"Gram matrix within {error:.0e} of I for 64 functions",
        f"Completeness on |t - 1|: share missed by 4, 16, 64 functions {_list(left)}.",
    )


@claim("Theorem 3 (section 4), Figure 2")
def legs_without_low_rank() -> Verdict:
    """As N grows, the basis of (A^(N), B/2), LegS without its low-rank term, tends to that of
    LegS."""
    points, means = [], []
    for N in SIZES:
        points.append(bases.rms(bases.legs_without_low_rank(N, 1, TIMES)[0] - torch.exp(-TIMES)))
        mean = bases.legs_without_low_rank(N, 1, TIMES, window=0.05)
        means.append(bases.rms(mean - bases.mean_legs_basis(1, TIMES, 0.05)))
    weakly = means[0] > 3 * means[1] > 9 * means[2]
    pointwise = points[2] < 0.5 * points[0]
    return judged(
        weakly,
        f"RMS error of K_0 at N = 64, 256, 1024: in the mean over 0.05: {_list(means)}; "
        f"pointwise {_list(points)}",
        "As an operator on smooth inputs; the highest modes keep ringing.",
        only="" if pointwise else "weakly, not pointwise.",
    )


@claim("proof of Theorem 3 (appendix A.1)")
def reconstruction() -> Verdict:
    """In the limit the state gives back the input, u(t) = B^T x(t); this is why the low-rank term
    can be left out."""
    missed, worst = [], 0.0
    for N in SIZES[:2]:
        hippo = HIPPO["legs"](N)
        B = hippo.B.to(torch.complex128)
        for w in (1.0, 10.0, 100.0, 1000.0):
            turn = 1j * w * torch.eye(N, dtype=torch.complex128)
            whole = torch.linalg.solve(turn - hippo.A, B)
            chopped = torch.linalg.solve(turn - hippo.normal, B / 2)
            r = 1 - B @ whole
            gap = (chopped - whole / (1 + r)).norm() / chopped.norm()
            worst = max(worst, gap.item(), abs(r.abs().item() / bases.leak(N, w) - 1))
            missed.append(r.abs().item())
    return judged(
        worst < 1e-8 and missed[4] < 0.01,
        f"missed of an input of frequency 1, 10, 100, 1000 at N = 256: {_list(missed[4:])}",
        "The part missed is r with |r| = w / sqrt(N^2 + w^2) exactly, and without the low-rank "
        "term the response of every state is that of LegS divided by 1 + r "
        f"(both checked to {worst:.0e}): close for frequencies w far below N, never above.",
    )


@claim("section 4, Figure 2 (d)")
def bilinear_smooths() -> Verdict:
    """Under the bilinear rule instead of ZOH the kernel without the low-rank term matches LegS
    exactly as N grows."""
    exact = torch.exp(-bases.step_times(0.01, 400))
    errors: dict[str, list[float]] = {"bilinear": [], "zoh": []}
    for rule, found in errors.items():
        for N in SIZES:
            found.append(bases.rms((bases.legs_discrete(N, 1, 0.01, 400, rule)[0] - exact)[2:]))
    first = _first_difference(256, 0.01), _first_difference(1024, 0.005)
    told = bases.echo_time(256, 0.01), bases.echo_time(1024, 0.005)
    return judged(
        errors["bilinear"][2] < 5e-5 < errors["zoh"][2],
        f"RMS error on t < 4 at N = 64, 256, 1024 and dt = 0.01: bilinear "
        f"{_list(errors['bilinear'])}, ZOH {_list(errors['zoh'])}",
        "Exact until an echo, at the least of (1 + x^2) log(1 + (N dt/2)^2 / x^2) over x: "
        f"{told[0]:.2f} for N = 256, dt = 0.01 (seen at {first[0]:.2f}), {told[1]:.2f} for "
        f"N = 1024, dt = 0.005 (seen at {first[1]:.2f}). It comes later as N grows.",
    )


def _first_difference(d_state: int, dt: float) -> float:
    """The time at which the bilinear kernel first is off by 0.01."""
    length = round(6 / dt)
    t = bases.step_times(dt, length)
    off = (bases.legs_discrete(d_state, 1, dt, length, "bilinear")[0] - torch.exp(-t)).abs() > 0.01
    return t[off & (t > 5 * dt)][0].item()


@claim("after Theorem 3 (section 4)")
def unitary() -> Verdict:
    """A^(N) is unitarily equivalent to A^(D), its diagonal form."""
    N = 256
    modes = bases.legs_modes(N)
    V = torch.cat([modes.V, modes.V.conj()], dim=1)
    Lambda = torch.cat([modes.Lambda, modes.Lambda.conj()])
    identity = (V.mH @ V - torch.eye(N)).abs().max().item()
    normal = HIPPO["legs"](N).normal
    rebuilt = ((V * Lambda) @ V.mH - normal).abs().max().item() / normal.abs().max().item()
    return judged(
        max(identity, rebuilt) < 1e-11,
        f"V* V within {identity:.0e} of I, V Lambda V* within {rebuilt:.0e} of A^(N), N = 256",
    )


@claim("appendix A.1, Figure 4")
def perturbation_breaks_legs() -> Verdict:
    """Low-rank terms in general cannot be left out: with P P^T for a random P added to LegS, its
    basis looks completely different, and diverges as P grows."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(100, 64, generator=generator, dtype=torch.float64)
    t = 0.04 * torch.arange(101, dtype=torch.float64)
    wanted = legs_basis(5, t)
    medians, grow = [], []
    for sigma in (0.3, 0.4, 0.5):
        A = bases.perturbed_legs(sigma, draws)
        found = bases.dense_basis(A, HIPPO["legs"](64).B, 0.04, 100, 5)
        errors = (found - wanted).square().mean((1, 2)).sqrt() / bases.rms(wanted)
        medians.append(errors.median().item())
        grow.append((torch.linalg.eigvals(A).real.amax(1) > 0).double().mean().item())
    largest = HIPPO["legs"](64).P.max().item()
    return judged(
        medians[0] > 0.05 and medians[2] > 1 and grow[2] > 0.5,
        f"median error for sigma = 0.3, 0.4, 0.5: {_list(medians)} of the basis's own size",
        f"100 draws at N = 64; {grow[0]:.0%}, {grow[1]:.0%}, {grow[2]:.0%} of them grow without "
        f"bound. The entries of LegS's own P reach {largest:.1f}.",
        only="above sigma = 0.4 is it completely different.",
    )


@claim("appendix A.1, Figure 5")
def fout_needs_low_rank() -> Verdict:
    """Without its low-rank term FouT does not approximate FouT: the real part of A is 0 and its
    functions oscillate for ever."""
    hippo = HIPPO["fout"](128)
    t = 0.02 * torch.arange(201, dtype=torch.float64)
    whole, chopped = (
        bases.dense_basis(hippo.A, hippo.B, 0.02, 200, 6),
        bases.fout_without_low_rank(128, t, 6),
    )
    inside, after = (t > 0.05) & (t < 1.9), (t > 2.1) & (t < 3.9)
    sizes = [bases.rms(x[:, part]) for x in (whole, chopped) for part in (inside, after)]
    real = torch.linalg.eigvals(hippo.normal).real.abs().max().item()
    half = bases.rms((whole - chopped / 2)[:, inside])
    return judged(
        sizes[1] < 0.02 * sizes[0] and sizes[3] > 0.9 * sizes[2] and real < 1e-9,
        f"RMS in the window and after it: FouT {sizes[0]:.2f}, {sizes[1]:.3f}; without "
        f"{sizes[2]:.2f}, {sizes[3]:.2f}",
        f"Within the window of length 2 the two agree up to the factor 2 (RMS {half:.3f}), as for "
        "LegS; what is lost is the end of the window.",
    )


def _list(values: list[float] | Tensor) -> str:
    return ", ".join(f"{value:.2g}" for value in values)
