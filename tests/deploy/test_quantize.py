"""Quantised mixing matrices: what is stored, how far it is off, and what stays exact."""

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from s4d_torch import SequenceModel
from s4d_torch.deploy import quantized
from s4d_torch.deploy.export.quantize import mixing_matrices, stored


def model(**options: object) -> SequenceModel:
    generator = Generator().manual_seed(0)
    return SequenceModel(2, 3, 8, 2, d_state=4, generator=generator, **options)  # type: ignore[arg-type]


def test_int8_is_within_half_a_level_of_each_row() -> None:
    matrix = torch.randn(6, 40, generator=Generator().manual_seed(0))
    matrix[1] *= 1000  # a large row does not spoil the others
    matrix[2] = 0
    found = stored(matrix, "int8")
    assert found.values.dtype == torch.int8
    assert found.scale is not None

    error = (found.matrix() - matrix).abs().amax(1)
    assert bool((error <= matrix.abs().amax(1) / 127 / 2 * (1 + 1e-5)).all())
    assert_close(found.matrix().abs().amax(1), matrix.abs().amax(1))  # the ends are exact
    assert int(found.values.min()) >= -127


def test_float16_rounds_once() -> None:
    matrix = torch.randn(6, 40, generator=Generator().manual_seed(0))
    found = stored(matrix, "float16")
    assert found.values.dtype == torch.float16
    assert_close(found.matrix(), matrix.half().float(), rtol=0, atol=0)


@pytest.mark.parametrize("quantize", ["int8", "float16"])
def test_only_the_mixing_matrices_change(quantize: str) -> None:
    exact = model()
    before = {name: x.clone() for name, x in exact.state_dict().items()}
    other = quantized(exact, quantize)
    changed = {name for name, x in other.state_dict().items() if not torch.equal(x, before[name])}
    assert changed == {f"blocks.{i}.layer.output.weight" for i in range(2)}
    assert all(torch.equal(x, before[name]) for name, x in exact.state_dict().items())
    for linear, own in zip(mixing_matrices(exact), mixing_matrices(other), strict=True):
        assert_close(own.weight, stored(linear.weight, quantize).matrix(), rtol=0, atol=0)


@torch.no_grad()
def test_the_output_changes_a_little() -> None:
    exact, u = model().eval(), torch.randn(2, 50, 2, generator=Generator().manual_seed(1))
    wanted = exact(u)[0]
    errors = [
        float((quantized(exact, kind)(u)[0] - wanted).abs().max() / wanted.abs().max())
        for kind in ("float16", "int8")
    ]
    assert 0 < errors[0] < 1e-3 < 0.1
    assert errors[0] < errors[1] < 0.1


def test_what_cannot_be_quantised() -> None:
    with pytest.raises(ValueError, match="no mixing matrices"):
        quantized(model(mixing="none"), "int8")
    with pytest.raises(ValueError, match=r"unknown quantisation 'int4'.*int8, float16"):
        quantized(model(), "int4")
    with pytest.raises(ValueError, match="does not fit into float16"):
        stored(torch.full((1, 1), 1e6), "float16")
