"""Large pages are advised for large outputs alone, within their bounds, and change no value."""

import mmap

import pytest
import torch

from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.compiled import pages


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What the system is told."""
    calls: list[tuple[int, int, int]] = []
    monkeypatch.setattr(pages, "_advise", lambda: lambda *call: calls.append(call))
    return calls


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="only Linux has this advice")
def test_the_advice_is_for_whole_pages_inside_the_tensor(
    advised: list[tuple[int, int, int]],
) -> None:
    new = torch.empty(pages.WORTH_IT // 4 + 5)
    assert pages.in_large_pages(new) is new
    [(first, size, advice)] = advised
    assert advice == mmap.MADV_HUGEPAGE
    assert first % mmap.PAGESIZE == size % mmap.PAGESIZE == 0
    assert new.data_ptr() <= first
    assert first + size <= new.data_ptr() + 4 * len(new)
    assert size > pages.WORTH_IT - 2 * mmap.PAGESIZE


def test_what_is_small_is_left_alone(advised: list[tuple[int, int, int]]) -> None:
    pages.in_large_pages(torch.empty(1000))
    assert not advised


def test_values_and_gradients_are_those_of_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    ssm = SSM(16, 8, engine="scan", generator=torch.Generator().manual_seed(0))
    u = torch.randn(1, 2**17, 16, requires_grad=True)

    def run() -> tuple[torch.Tensor, ...]:
        y, _ = ssm(u)
        return y.detach(), *torch.autograd.grad(y.square().sum(), [u, *ssm.parameters()])

    large = run()
    monkeypatch.setattr(pages, "_advise", lambda: None)
    for here, there in zip(large, run(), strict=True):
        assert torch.equal(here, there)
