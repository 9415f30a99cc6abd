"""The paper's claims about models: what diagonal ones express, their variance, their size."""

import torch

from s4d_torch.nn.model import SequenceModel
from s4d_torch.paper.bases import legs_modes
from s4d_torch.paper.claims.claim import Verdict, claim, judged
from s4d_torch.ssm.hippo import HIPPO


@claim("Proposition 2 (section 4)")
def diagonalizable_is_dense() -> Verdict:
    """Almost all matrices can be diagonalised: those that can are dense, the others have measure
    0."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(500, 16, 16, generator=generator, dtype=torch.float64)
    values, V = torch.linalg.eig(draws)
    residual = (draws.to(V.dtype) @ V - V * values[:, None]).abs().amax((1, 2))
    conditions = torch.linalg.cond(V)
    block = torch.diag(torch.ones(7, dtype=torch.float64), 1)  # a Jordan block: no diagonal form
    moved = [block + distance * draws[0, :8, :8] for distance in (1e-3, 1e-6, 1e-9)]
    near = [torch.linalg.cond(torch.linalg.eig(each)[1]).item() for each in moved]
    return judged(
        bool(residual.max() < 1e-10) and bool(conditions.max() < 1e6) and near[2] < 1e12,
        f"500 of 500 random matrices of size 16, condition of V at most {conditions.max():.0e}",
        f"A Jordan block of size 8 has a diagonal form as soon as it is moved by 1e-3, 1e-6, 1e-9, "
        f"with conditions {near[0]:.0e}, {near[1]:.0e}, {near[2]:.0e}: expressive is not stable.",
    )


@claim("section 4")
def equivalent_systems() -> Verdict:
    """(V^-1 A V, V^-1 B, C V) is the same map from u to y as (A, B, C)."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(16, 16, generator=generator, dtype=torch.float64) / 4 - torch.eye(16)
    B, C = torch.randn(2, 16, generator=generator, dtype=torch.float64)
    Lambda, V = torch.linalg.eig(A)
    B_diagonal, C_diagonal = torch.linalg.solve(V, B.to(V.dtype)), C.to(V.dtype) @ V
    t = torch.linspace(0, 5, 51, dtype=torch.float64)
    whole = torch.stack([C @ torch.matrix_exp(A * s) @ B for s in t])
    diagonal = (C_diagonal * B_diagonal) @ torch.exp(Lambda[:, None] * t)
    error = ((diagonal - whole).abs().max() / whole.abs().max()).item()
    return judged(error < 1e-10, f"a random system and its diagonal form agree to {error:.0e}")


@claim("section 3.3")
def variance_preserving() -> Verdict:
    """C with standard deviation 1 preserves the variance for HiPPO's (A, B), and the diagonal
    approximation has similar properties."""
    N, frequencies = 64, (0.0, 1.0, 10.0)
    hippo, modes = HIPPO["legs"](N), legs_modes(N)
    B = hippo.B.to(torch.complex128)
    whole, half, ones = [], [], []
    for w in frequencies:  # the variance of y over C, for an input e^(iwt) of variance 1
        turn = 1j * w * torch.eye(N, dtype=torch.complex128)
        whole.append(torch.linalg.solve(turn - hippo.A, B).abs().square().sum().item())
        half.append(torch.linalg.solve(turn - hippo.normal, B / 2).abs().square().sum().item())
        both = torch.cat([modes.Lambda, modes.Lambda.conj()])
        ones.append(2 * (1 / (1j * w - both)).abs().square().sum().item())
    shown = [", ".join(f"{value:.2f}" for value in values) for values in (whole, half, ones)]
    return judged(
        all(abs(value - 1) < 0.3 for value in whole + half),
        f"variance of y for inputs of frequency 0, 1, 10: LegS {shown[0]}; without its low-rank "
        f"term, B/2: {shown[1]}",
        f"N = 64. With B = 1, where the paper's S4D starts, and C as in its listing, it is "
        f"{shown[2]}: not preserved.",
        only="for B/2.",
    )


def _parameters(method: str, *, n_ssm: int | None, **options: object) -> int:
    model = SequenceModel(1, method=method, n_ssm=n_ssm, device="meta", **options)  # type: ignore[arg-type]
    return sum(p.numel() for p in model.parameters())


@claim("appendix B, and its table of Speech Commands")
def low_rank_parameters() -> Verdict:
    """With A and B tied, S4 models have only H x layers more parameters than S4D, from P; the
    Speech Commands models have 307K and 306K."""
    model = {"d_output": 35, "d_model": 128, "n_layers": 6, "norm": "batch", "bidirectional": True}
    sizes = {
        copies: [_parameters(method, n_ssm=copies, **model) for method in ("s4", "s4d")]
        for copies in (1, 2)
    }
    more = {copies: s4 - s4d for copies, (s4, s4d) in sizes.items()}
    thousands = [round(size / 1000) for size in sizes[2]]
    return judged(
        more[2] == 128 * 6 and thousands == [307, 306],
        f"with two copies of A and B: {sizes[2][0]:,} and {sizes[2][1]:,}, {more[2]} = H x layers "
        "apart",
        f"Two copies of N = 64 happen to be H = 128 numbers. With one copy for all channels, as "
        f"the text reads, it is {sizes[1][0]:,} and {sizes[1][1]:,}: N x layers apart.",
        only="with two copies of A and B.",
    )


@claim("section 5 and appendix B")
def ablation_size() -> Verdict:
    """The model of the ablations, 4 layers of H = 128, has about 100K parameters."""
    shared = {"d_model": 128, "n_layers": 4, "mixing": "linear"}
    speech = _parameters("s4d", n_ssm=1, d_output=35, bidirectional=False, **shared)
    images = _parameters("s4d", n_ssm=1, d_output=10, bidirectional=True, **shared)
    return judged(
        90_000 < speech < 110_000,
        f"{speech:,} for causal speech, {images:,} for bidirectional sCIFAR",
        only="causal models have.",
    )
