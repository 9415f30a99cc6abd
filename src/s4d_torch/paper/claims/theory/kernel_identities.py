"""The paper's claims about kernels: how they are computed, and what they equal."""

import torch
from torch import Generator, Tensor

from s4d_torch.paper.claims.claim import Verdict, claim, judged
from s4d_torch.paper.figures.overview import CODE
from s4d_torch.ssm.discretization import bilinear, bilinear_low_rank, zoh
from s4d_torch.ssm.initialization import diagonal, output_matrix
from s4d_torch.ssm.kernel import cauchy, softmax, vandermonde

DT = torch.tensor([[0.01]], dtype=torch.float64)


def parameters(init: str, d_state: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """One system: A, B, C (1, modes)."""
    start = diagonal(init, d_state, 1)
    C = output_matrix((1, start.A.shape[1]), generator=Generator().manual_seed(0))
    return start.A, start.B, C


def largest_off(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


@claim("sections 3.2 and 3.3, equation (7)")
def kernel_is_vandermonde() -> Verdict:
    """The kernel (C B_bar, C A_bar B_bar, ...) of a diagonal SSM is the product of (B_bar C) with a
    Vandermonde matrix; with conjugate pairs, twice its real part."""
    A, B, C = parameters("inv")
    step = bilinear(A, B, DT)
    K = vandermonde(step, C, 500)[0]
    both = [torch.cat([x[0], x[0].conj()]) for x in (step.A_bar, step.B_now, C)]
    x, values = both[1], []
    for _ in range(500):
        values.append((both[2] * x).sum())
        x = both[0] * x
    steps = torch.stack(values)
    imaginary = (steps.imag.abs().max() / steps.real.abs().max()).item()
    error = largest_off(K, steps.real)
    return judged(
        error < 1e-11 and imaginary < 1e-12,
        f"equal to {error:.0e} over 500 steps; the imaginary part of all N modes is "
        f"{imaginary:.0e}",
    )


@claim("Figure 1 and section 3.4")
def two_lines() -> Verdict:
    """With ZOH the whole kernel is two lines of code."""
    A, B, C = parameters("inv")
    names = {"exp": torch.exp, "arange": torch.arange, "dt": DT[0], "L": 500}
    names |= {"A": A[0], "B": B[0], "C": C[0]}
    exec(CODE, names)  # the lines that the figure shows
    printed = names["K"]
    assert isinstance(printed, Tensor)
    error = largest_off(printed, vandermonde(zoh(A, B, DT), C, 500)[0])
    return judged(error < 1e-11, f"the two lines equal our kernel to {error:.0e}")


@claim("section 3.4")
def softmax_is_row_normalized() -> Verdict:
    """The softmax of DSS is the ZOH Vandermonde kernel with each row of the matrix divided by its
    sum, and so depends on the length L."""
    A, B, C = parameters("inv")
    L = 500
    K = softmax(zoh(A, B, DT), C, A * DT * L, L)[0]
    rows = torch.exp(A[0, :, None] * DT * torch.arange(L))  # (modes, L)
    rows = rows / rows.sum(1, keepdim=True)
    normalized = 2 * ((C / A)[0] @ rows).real  # B = 1; the factor of ZOH leaves 1/A
    error = largest_off(K, normalized)
    other = softmax(zoh(A, B, DT), C, A * DT * 2 * L, L)[0]
    change = largest_off(other, K)
    return judged(
        error < 1e-11 and change > 0.01,
        f"equal to {error:.0e}; normalised over 2 L instead, the same weights give a kernel that "
        f"is {change:.0%} off",
    )


@claim("sections 3.4 and 5.1")
def masked_s4_is_s4d() -> Verdict:
    """S4D computes exactly the kernel of S4 (Cauchy) with its low-rank term set to 0."""
    A, B, C = parameters("legs")
    P = torch.zeros_like(A)[:, None]
    with torch.no_grad():  # nothing to compute again in a backward pass
        masked = cauchy(A, P, B, C, DT, bilinear_low_rank(A, P, B, DT), 500)
    error = largest_off(masked, vandermonde(bilinear(A, B, DT), C, 500))
    return judged(
        error < 1e-10,
        f"equal to {error:.0e} for the same A, B, C",
        "To start where a masked S4 starts, B has to be V* B of HiPPO; the paper's S4D starts it "
        "at 1.",
    )


@claim("section 3.3")
def only_the_product_counts() -> Verdict:
    """The kernel depends on B and C only through their product, so freezing B = 1 is the same as
    DSS's single parameter W."""
    A, _, C = parameters("inv")
    B = output_matrix((1, A.shape[1]), generator=Generator().manual_seed(1))
    error = 0.0
    for rule in (bilinear, zoh):
        apart = vandermonde(rule(A, B, DT), C, 500)
        together = vandermonde(rule(A, torch.ones_like(B), DT), B * C, 500)
        error = max(error, largest_off(apart, together))
    return judged(error < 1e-11, f"equal to {error:.0e} under both rules")


@claim("section 3.3")
def positive_real_part() -> Verdict:
    """The kernel blows up if any eigenvalue has a positive real part."""
    A, B, C = parameters("lin")
    sizes = []
    for shift in (0.0, 1.0):  # the last mode moves from -1/2 to +1/2
        moved = A.clone()
        moved[0, -1] += shift
        K = vandermonde(zoh(moved, B, DT), C, 10_000)[0].abs()
        sizes.append((K[-100:].max() / K[:100].max()).item())
    return judged(
        sizes[0] < 1e-10 and sizes[1] > 1e10,
        f"at t = 100 the kernel is {sizes[0]:.0e} of its start, with one of 32 modes at +1/2 "
        f"{sizes[1]:.0e}",
    )
