"""Every registered figure can be drawn, the same each time, and shows the right numbers."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch.testing import assert_close

from s4d_torch.paper import FIGURES, save_figure
from s4d_torch.paper.bases import (
    dense_basis,
    echo_time,
    fout_without_low_rank,
    legs_discrete,
    legs_without_low_rank,
    mean_legs_basis,
    perturbed_legs,
    rms,
    step_times,
)
from s4d_torch.paper.figures import FORMATS
from s4d_torch.paper.figures.style import SERIES, STARTS, darker
from s4d_torch.ssm.hippo import HIPPO, legs_basis
from s4d_torch.ssm.initialization import INITIALIZATIONS

DRAWN = Path(__file__).resolve().parents[2] / "docs" / "paper" / "figures"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_in_every_format(name: str, ending: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"1{ending}", tmp_path / f"2{ending.upper()}"
    save_figure(name, first)
    assert 5_000 < first.stat().st_size < 1_500_000
    if ending == ".svg":
        check_vectors(first)
    if ending == ".pdf":  # letters that can be searched, and that journals take
        assert b"/Type3" not in first.read_bytes()
    if ending == ".svg" or name == "kernels":
        save_figure(name, second)
        assert first.read_bytes() == second.read_bytes()


def check_vectors(path: Path) -> None:
    """Nothing in it is a picture of dots, and it fits on a page."""
    root = ElementTree.parse(path).getroot()
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "path" in tags
    assert "image" not in tags
    assert float(root.attrib["width"].removesuffix("pt")) <= 720


def test_the_figures_of_the_paper_are_all_there() -> None:
    """Figures 1 to 5, the starts one by one, and the sense in which the theorem holds."""
    paper = ["overview", "kernels", "starts", "legs", "convergence", "eigenvalues"]
    assert list(FIGURES) == [*paper, "perturbation", "fout"]
    assert all(figure.__doc__ for figure in FIGURES.values()), "the docstring is the caption"
    assert set(STARTS) == set(INITIALIZATIONS) - {"dfout", "ring"}  # these are not the paper's


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_in_the_docs(name: str) -> None:
    for ending in (".png", ".svg"):
        assert (DRAWN / f"{name}{ending}").is_file(), f"s4d figure {name} --out {DRAWN.name}/..."


def test_colours_can_be_told_apart() -> None:
    """Each start has its own, and what is written in a colour is dark enough to read."""

    def lightness(color: str) -> float:
        red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert len({color for _, color in STARTS.values()}) == len(STARTS)
    for color in SERIES:
        contrast = 1.05 / (lightness(darker(color)) + 0.05)
        assert contrast > 4.5, f"{color} is too light for text"


def test_another_ending_and_another_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of \.png, \.svg, \.pdf; got 'x.gif'"):
        save_figure("kernels", tmp_path / "x.gif")
    with pytest.raises(ValueError, match="did you mean 'kernels'"):
        save_figure("kernel", tmp_path / "x.png")


def test_without_matplotlib_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 's4d-torch\[plots\]'"):
        save_figure("kernels", tmp_path / "x.png")


# -- the numbers that are drawn --------------------------------------------------------------------


def test_the_basis_without_low_rank_is_a_matrix_exponential() -> None:
    hippo = HIPPO["legs"](16)
    t = 0.1 * torch.arange(21, dtype=torch.float64)
    dense = dense_basis(hippo.normal, hippo.B / 2, 0.1, 20, 4)
    assert_close(legs_without_low_rank(16, 4, t), dense, rtol=0, atol=1e-11)


def test_the_mean_over_a_window_is_a_mean() -> None:
    t, fine = torch.tensor([0.5], dtype=torch.float64), torch.linspace(0, 0.2, 4001).double()
    values = legs_without_low_rank(16, 3, t + fine)
    mean = torch.trapezoid(values, fine) / 0.2
    assert_close(legs_without_low_rank(16, 3, t, window=0.2)[:, 0], mean, rtol=0, atol=1e-6)
    exact = torch.trapezoid(legs_basis(3, t + fine), fine) / 0.2
    assert_close(mean_legs_basis(3, t, 0.2)[:, 0], exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_the_discrete_basis_is_that_of_the_dense_system(rule: str) -> None:
    hippo, dt, identity = HIPPO["legs"](16), 0.05, torch.eye(16, dtype=torch.float64)
    A, B = hippo.normal, hippo.B / 2
    if rule == "zoh":
        A_bar = torch.matrix_exp(A * dt)
        B_bar = torch.linalg.solve(A, (A_bar - identity) @ B)
    else:
        A_bar = torch.linalg.solve(identity - dt / 2 * A, identity + dt / 2 * A)
        B_bar = torch.linalg.solve(identity - dt / 2 * A, dt * B)
    columns = [B_bar]
    for _ in range(9):
        columns.append(A_bar @ columns[-1])
    wanted = torch.stack(columns, dim=-1)[:4] / dt
    assert_close(legs_discrete(16, 4, dt, 10, rule), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("d_state", "dt"), [(64, 0.05), (128, 0.02), (256, 0.01), (256, 0.05)])
def test_the_echo_arrives_when_it_is_expected(d_state: int, dt: float) -> None:
    expected = echo_time(d_state, dt)
    t = step_times(dt, round(1.2 * expected / dt))
    error = (legs_discrete(d_state, 1, dt, len(t), "bilinear")[0] - torch.exp(-t)).abs()
    assert error[t < 0.85 * expected].max() < 0.01
    assert error[t > 0.85 * expected].max() > 0.02


def test_fout_is_half_its_normal_part_within_the_window() -> None:
    hippo = HIPPO["fout"](128)
    t = 0.02 * torch.arange(200, dtype=torch.float64)
    whole, chopped = dense_basis(hippo.A, hippo.B, 0.02, 199, 6), fout_without_low_rank(128, t, 6)
    assert_close(chopped, dense_basis(hippo.normal, hippo.B, 0.02, 199, 6), rtol=0, atol=1e-9)
    inside, after = (t > 0.1) & (t < 1.9), (t > 2.1) & (t < 3.9)
    assert rms((whole - chopped / 2)[:, inside]) < 0.01
    assert rms(whole[:, after]) < 0.01


def test_a_perturbation_is_of_rank_one_and_of_its_size() -> None:
    draws = torch.randn(3, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    added = perturbed_legs(0.5, draws) - HIPPO["legs"](32).A
    assert torch.linalg.matrix_rank(added, atol=1e-9).tolist() == [1, 1, 1]
    trace = added.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert_close(trace, 0.25 * draws.square().sum(-1))
