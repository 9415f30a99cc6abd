"""The FFT in pieces gives what one FFT over everything gives, in values and gradients."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from s4d_torch.ssm import convolution

Results = tuple[Tensor, ...]


def _draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def _run(both_ways: bool, batch: int, channels: int, length: int) -> Results:
    u = _draw(batch, length, channels).double().transpose(1, 2).requires_grad_()
    kernel = _draw(*((2,) if both_ways else ()), channels, length + 3).double().requires_grad_()
    convolve = convolution.bidirectional if both_ways else convolution.causal
    y = convolve(u, kernel)
    return y, *torch.autograd.grad(y.cos().sum(), [u, kernel])


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "length"),
    [(1, 1, 1), (5, 3, 40), (2, 7, 101), (7, 2, 16)],
)
@pytest.mark.parametrize("piece", [1, 3000, 6000, 20000])
def test_pieces_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
    both_ways: bool,
    batch: int,
    channels: int,
    length: int,
    piece: int,
) -> None:
    monkeypatch.setattr(convolution, "PIECE", 2**60)
    at_once = _run(both_ways, batch, channels, length)
    monkeypatch.setattr(convolution, "PIECE", piece)
    for here, there in zip(_run(both_ways, batch, channels, length), at_once, strict=True):
        assert_close(here, there, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 3, 7, 15, 100])
def test_the_pieces_cover_everything_once_and_are_small(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    u, size = torch.zeros(5, 7, 10), 20
    monkeypatch.setattr(convolution, "PIECE", 4 * size * rows)
    seen = torch.zeros(5, 7)
    for b, some in convolution._pieces(u, size):
        assert seen[b, some].numel() <= rows
        seen[b, some] += 1
    assert bool((seen == 1).all())


def test_the_output_lies_in_memory_with_time_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "PIECE", 1)
    y = convolution.causal(_draw(2, 3, 8), _draw(3, 8))
    assert y.transpose(1, 2).is_contiguous()
