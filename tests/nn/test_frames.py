"""Samples that are images: the law holds, and what cannot be folded says so."""

from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor
from torch.testing import assert_close

from s4d_torch import SequenceModel, Stream
from s4d_torch.deploy.export import export_model
from s4d_torch.nn.frames import FrameEncoder


def model(**options: object) -> SequenceModel:
    choices = {"encoder": "frames", "pooling": "none", "d_state": 8, **options}
    made = SequenceModel(64, 2, 8, 2, generator=Generator().manual_seed(0), **choices)  # type: ignore[arg-type]
    return made.eval()


def images(batch: int = 2, length: int = 11) -> Tensor:
    return torch.rand(batch, length, 64, generator=Generator().manual_seed(1))


@torch.no_grad()
def test_whole_sequence_chunks_and_steps_agree() -> None:
    made, u = model(), images()
    gaps = torch.rand(2, 11, generator=Generator().manual_seed(2)) + 0.5
    whole, end = made(u, rate=gaps)
    first, state = made(u[:, :4], rate=gaps[:, :4])
    rest, _ = made(u[:, 4:], state, rate=gaps[:, 4:])
    assert_close(torch.cat([first, rest], 1), whole)
    state, steps = made.initial_state(2), []
    for t in range(11):
        y, state = made.step(u[:, t], state, rate=gaps[:, t])
        steps.append(y)
    assert_close(torch.stack(steps, 1), whole)
    assert_close(state.layers, end.layers)


def test_each_image_is_read_by_itself() -> None:
    encoder = FrameEncoder(576, 16, Generator().manual_seed(0))
    u = torch.rand(3, 5, 576)
    alone = torch.stack([encoder(u[:, t]) for t in range(5)], 1)
    assert_close(encoder(u), alone)
    turned = encoder(u.unflatten(-1, (24, 24)).transpose(-1, -2).flatten(-2))
    assert not torch.allclose(encoder(u), turned)  # where a pixel stands is seen


def test_first_weights_follow_from_the_generator() -> None:
    for a, b in zip(model().parameters(), model().parameters(), strict=True):
        assert_close(a, b, rtol=0, atol=0)


@torch.no_grad()
def test_a_stream_steps_the_model_itself() -> None:
    made, u = model(pooling="mean"), images(1)
    stream = Stream(made)
    assert_close(stream.push(u[0]), made(u)[0][0])


@pytest.mark.parametrize("kind", ["onnx", "c", "pt2"])
def test_an_export_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=r"FrameEncoder|encoder .frames."):
        export_model(model(), tmp_path / "out", to=kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("d_input", [60, 49, 1])
def test_images_that_are_not_square_or_too_small_are_refused(d_input: int) -> None:
    with pytest.raises(ValueError, match=f"at least 8x8 pixels.* d_input {d_input} is no"):
        SequenceModel(d_input, 2, 8, 1, encoder="frames")
