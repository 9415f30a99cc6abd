"""Every registered figure can be drawn, the same each time."""

import sys
from pathlib import Path

import pytest

from s4d_torch.paper import FIGURES, save_figure
from s4d_torch.paper.figures import FORMATS


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_in_every_format(name: str, ending: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"1{ending}", tmp_path / f"2{ending.upper()}"
    save_figure(name, first)
    save_figure(name, second)
    assert first.stat().st_size > 5_000
    assert first.read_bytes() == second.read_bytes()


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
