"""Live streams of samples that are not evenly spaced, and of sequences that begin anew."""

import pytest
import torch
from torch.testing import assert_close

from s4d_torch import SequenceModel, Stream


def model_of(**options: object) -> SequenceModel:
    generator = torch.Generator().manual_seed(0)
    options = {"d_state": 4, "generator": generator, **options}
    return SequenceModel(2, 3, 8, 2, **options).eval().requires_grad_(False)


@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_gaps_and_resets_go_along(pooling: str) -> None:
    model, stream = model_of(pooling=pooling), Stream(model_of(pooling=pooling))
    u, gaps = torch.randn(1, 30, 2), 0.1 + torch.rand(1, 30)
    resets = torch.zeros(1, 30, dtype=torch.bool)
    resets[0, 12] = True
    expected, end = model(u, rate=gaps, resets=resets)
    answers = [
        stream.push(u[0, some], rate=gaps[0, some], resets=resets[0, some].tolist())
        for some in (slice(0, 1), slice(1, 12), slice(12, 30))
    ]
    found = answers[-1] if pooling == "mean" else torch.cat(answers)
    assert_close(found, expected[0], rtol=0, atol=1e-5)
    assert stream.samples == 30
    assert_close(stream.state.layers[1], end.layers[1], rtol=0, atol=1e-5)


def test_a_timed_push_goes_on_from_steps_and_back() -> None:
    model, stream, u = model_of(), Stream(model_of()), torch.randn(1, 20, 2)
    ones = torch.ones(5)
    stream.push(u[0, :10])
    stream.push(u[0, 10:15], rate=ones)
    assert_close(stream.push(u[0, 15:]), model(u)[0][0], rtol=0, atol=1e-5)


def test_refused() -> None:
    stream, u = Stream(model_of()), torch.randn(5, 2)
    with pytest.raises(ValueError, match="one for each of the 5 samples"):
        stream.push(u, rate=[1.0, 2.0])
    with pytest.raises(ValueError, match="bool"):
        stream.push(u, resets=[0, 0, 1, 0, 0])
    with pytest.raises(ValueError, match=r"-1\.0 at \(0, 2\)"):
        stream.push(u, rate=[1.0, 1.0, -1.0, 1.0, 1.0])
    assert stream.samples == 0
