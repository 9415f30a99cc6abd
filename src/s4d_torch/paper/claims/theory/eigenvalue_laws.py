"""The paper's claims about eigenvalues: the spectrum of S4D-LegS, its laws, and their limits."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from s4d_torch.paper.bases import legs_modes
from s4d_torch.paper.claims.claim import Verdict, claim, judged
from s4d_torch.ssm.hippo import HIPPO, diagonalize
from s4d_torch.ssm.initialization import diagonal
from s4d_torch.ssm.kernel import basis

SIZES = (64, 256, 1024)


def _frequencies(init: str, d_state: int) -> Tensor:
    return diagonal(init, d_state, 1).A.imag[0]


@claim("section 2 (Lemma 3.2 of the S4 paper)")
def legs_has_no_stable_diagonal() -> Verdict:
    """HiPPO-LegS itself cannot be transformed stably into diagonal form."""
    digits = [math.log10(_condition(N)) for N in (8, 16, 32, 64)]
    slope = (digits[3] - digits[2]) / 32
    return judged(
        digits[2] > 15 and slope > 0.3,
        f"condition of the eigenvectors at N = 8, 16, 32, 64: 10^{digits[0]:.0f}, "
        f"10^{digits[1]:.0f}, 10^{digits[2]:.0f}, 10^{digits[3]:.0f}",
        f"Computed in exact fractions; it grows by {slope:.2f} digits for each state, so that "
        "N = 24 already needs all digits of float64. The normal part has condition 1.",
    )


def _condition(N: int) -> float:
    """``|V| |V^-1|`` (Frobenius) for the eigenvectors of LegS, columns of length 1.

    With D = diag(sqrt(2n+1)) LegS is ``D M D^-1`` for an integer matrix M, whose eigenvectors V
    are triangular with ones on the diagonal: forward substitution in fractions is exact.
    """
    V = [[Fraction(int(i == j)) for j in range(N)] for i in range(N)]
    for j in range(N):
        total = Fraction(2 * j + 1)
        for i in range(j + 1, N):
            V[i][j] = -total / (i - j)
            total += (2 * i + 1) * V[i][j]
    inverse = [[Fraction(int(i == j)) for j in range(N)] for i in range(N)]
    for i in range(N):
        for j in range(i):
            seen = (V[i][k] * inverse[k][j] for k in range(j, i))
            inverse[i][j] = -sum(seen, Fraction(0))
    lengths = [
        math.sqrt(sum((2 * i + 1) * float(V[i][j]) ** 2 for i in range(N))) for j in range(N)
    ]
    squares = sum(
        (lengths[i] * float(inverse[i][j])) ** 2 / (2 * j + 1) for i in range(N) for j in range(N)
    )
    return math.sqrt(N * squares)


@claim("Proposition 4 (section 4)")
def real_part() -> Verdict:
    """All eigenvalues of A^(N) have real part -1/2."""
    errors = []
    for N in SIZES:
        normal = HIPPO["legs"](N).normal
        symmetric = (normal + normal.mT) / 2
        errors.append((symmetric + 0.5 * torch.eye(N)).abs().max().item())
    return judged(
        max(errors) < 1e-9,
        f"symmetric part of A^(N) within {max(errors):.0e} of -I/2 up to N = 1024",
        "A matrix whose symmetric part is -I/2 has no other real part.",
    )


@claim("Conjecture 5, first part (section 4)")
def largest_frequency() -> Verdict:
    """As N grows, Im(A)_0 - N^2/pi tends to a constant c."""
    gaps = [legs_modes(N).Lambda.imag.max().item() - N**2 / math.pi for N in SIZES]
    distance = [abs(gap + math.pi / 6) for gap in gaps]
    return judged(
        distance[0] > distance[1] > distance[2] and distance[2] < 1e-6,
        f"c = {gaps[0]:.7f}, {gaps[1]:.7f}, {gaps[2]:.7f} at N = 64, 256, 1024",
        f"The limit is -pi/6 = -0.5235988 (distance {distance[2]:.0e}).",
    )


@claim("Conjecture 5, second part (section 4), Figure 3")
def inverse_law() -> Verdict:
    """The other frequencies fall as 1/n: Im(A)_n = Theta(n^-1)."""
    N = 1024
    n = torch.arange(N // 2, dtype=torch.float64)
    scaled = legs_modes(N).Lambda.imag * (2 * n + 1) * math.pi / N**2
    early, late = scaled[: N // 4], scaled[-1].item()
    return judged(
        bool(early.min() > 0.5) and bool(early.max() < 1.5),
        f"Im(A)_n (2n+1) pi / N^2 lies between {early.min():.2f} and {early.max():.2f} for "
        f"n < N/4, N = 1024",
        f"Among the slower modes it falls away, to {late:.4f} for the last one.",
        only="for n well below N.",
    )


@claim("section 4, Figure 3")
def inv_approximates_legs() -> Verdict:
    """S4D-Inv closely approximates the frequencies of S4D-LegS."""
    N = 1024
    ours = legs_modes(N).Lambda.imag
    off = {init: (_frequencies(init, N) / ours - 1).abs() for init in ("inv", "inv2")}
    first, median, last = off["inv"][0], off["inv"].median(), off["inv"][-1]
    return judged(
        bool(first < 0.01) and bool(median < 0.25) and bool(off["inv2"].median() > 2 * median),
        f"relative difference, N = 1024: first mode {first:.1%}, median {median:.0%}, last "
        f"{last:.0%}",
        f"In the median it is {median:.0%} off; S4D-Inv2 is {off['inv2'].median():.0%} off.",
        only="the fast modes are close.",
    )


@claim("section 5.2")
def same_maximum() -> Verdict:
    """S4D-Inv2 and S4D-Quad have the same largest imaginary part as the conjecture."""
    largest = [_frequencies(init, 64).max().item() * math.pi / 64**2 for init in ("inv2", "quad")]
    return judged(
        all(abs(value - 1) < 0.05 for value in largest),
        f"{largest[0]:.3f} and {largest[1]:.3f} of N^2/pi at N = 64",
        "Exactly 1 - 1/N and (1 - 1/N)^2 of it.",
    )


@claim("section 4, Figure 1")
def lin_is_the_diagonal_of_fout() -> Verdict:
    """The frequencies of S4D-Lin are those of the diagonal part of FouT, and its basis functions
    are damped Fourier functions inside the envelope e^(-t/2)."""
    N = 64
    start = diagonal("lin", N, 1)
    wanted = diagonalize(HIPPO["fout"](N)).Lambda.imag.sort().values
    frequencies = (start.A.imag[0] - wanted).abs().max().item()
    t = torch.linspace(0, 5, 501, dtype=torch.float64)
    n = torch.arange(N // 2, dtype=torch.float64)[:, None]
    angle = torch.pi * n * t
    waves = torch.exp(-t / 2) * torch.complex(angle.cos(), angle.sin())
    functions = (basis(start.A[0], start.B[0], t) - waves).abs().max().item()
    return judged(
        max(frequencies, functions) < 1e-12,
        f"frequencies equal to {frequencies:.0e}, functions to {functions:.0e}",
        "The real part of FouT's diagonal is 0, that of S4D-Lin -1/2.",
    )


@claim("section 5.2")
def real_has_the_spectrum_of_legs() -> Verdict:
    """S4D-Real, A_n = -(n+1), has exactly the spectrum of the original LegS matrix."""
    A = HIPPO["legs"](64).A
    triangular = A.triu(1).abs().max().item()
    error = (A.diagonal() - diagonal("real", 64, 1).A.real[0]).abs().max().item()
    return judged(
        triangular == 0 and error == 0,
        "A is triangular, and its diagonal is -1, -2, ..., -64: equal",
    )
