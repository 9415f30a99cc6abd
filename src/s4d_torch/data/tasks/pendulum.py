"""A pendulum seen at odd times: images with noise, and the angle to be told at each of them.

A rod swings for 100 steps of 0.01 s with friction and random kicks; half of the images are lost, at
random. What is left is blurred by noise that comes and goes over time, up to nothing but noise: the
angle has to be carried through. So the regression of Becker et al. 2019 (RKN), in the version of
Schirmer et al. 2022 (CRU) that Smith et al. 2023 (S5) took over. The images are made here: the same
physics and noise, with an antialiased line that is drawn otherwise than theirs.
"""

from dataclasses import asdict, dataclass, replace

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.task import LAPTOP, Task, check_at_least, register

VERSION = 1  # of the images
SIDE = 24  # pixels
STEPS = 100  # of which some are seen
DT = 0.01
SUBSTEPS = 100  # Euler steps in one, velocity first
SWING = 3 * 9.81  # g l m / (l^2 m / 3) of a rod 1 m long, as the sources have it
FRICTION = 0.1
KICK = 0.1  # deviation of what is added to the velocity at each step
CLEAN = 5  # images before the noise
ROD = 55 / 128, 4 / 128  # length and half the width, of the side of an image
BATCH = 200  # sequences that are drawn at a time


@dataclass(frozen=True)
class PendulumOptions:
    """2000 sequences to learn from, 1000 each to validate and to test; nothing is downloaded."""

    train: int = 2000
    """sequences to learn from"""
    test: int = 1000
    """sequences to validate, and as many to test"""
    seen: int = 50
    """images of 100 that are not lost"""
    seed: int = 42
    """of motion, noise and losses"""
    clock: bool = True
    """whether the model is told when images came, or takes them as evenly spaced"""

    def __post_init__(self) -> None:
        check_at_least(1, self, "train", "test")
        check_at_least(0, self, "seed")
        check_at_least(2, self, "seen")
        if self.seen > STEPS:
            raise ValueError(f"seen must be at most {STEPS}, all images there are, got {self.seen}")


def load_pendulum(options: PendulumOptions, folder: DataFolder) -> Dataset:
    """Images (n, seen, 576) with times, and at each of them the sine and cosine of the angle."""
    key = asdict(options) | {"version": VERSION}
    del key["clock"]
    made = folder.prepared("pendulum", key, [], lambda scratch: _make(options, scratch))
    return made if options.clock else replace(made, signature=replace(made.signature, clock=None))


def _make(options: PendulumOptions, scratch: Scratch) -> Dataset:
    splits = []
    for place, count in enumerate((options.train, options.test, options.test)):
        random = np.random.Generator(np.random.PCG64([options.seed, place]))
        images = scratch.array((count, options.seen, SIDE * SIDE), np.uint8)
        targets, times = np.empty((count, options.seen, 2)), np.empty((count, options.seen))
        for first in range(0, count, BATCH):
            some = slice(first, min(first + BATCH, count))
            images[some], targets[some], times[some] = _sequences(
                random, some.stop - some.start, options.seen
            )
        whole = Split.whole(Sequences(images), targets.astype(np.float32))
        splits.append(replace(whole, times=Sequences(times)))
    signature = Signature(
        "tracking",
        features=SIDE * SIDE,
        outputs=2,
        length=options.seen,
        input_scale=(1 / 255,),
        target="sine and cosine of the angle",
        frames=True,
        clock=Clock.of(splits[0].times.values),  # type: ignore[union-attr]
    )
    return Dataset.of(splits, signature)


def _sequences(random: np.random.Generator, count: int, seen: int) -> tuple[Array, Array, Array]:
    """Images (count, seen, 576), sines and cosines (count, seen, 2) and times (count, seen)."""
    angles = swing(random, count)
    clear = visibility(random, count)
    order = random.permuted(np.tile(np.arange(STEPS), (count, 1)), axis=1)
    times = np.sort(order[:, :seen], axis=1)  # the others are lost
    angles, clear = (np.take_along_axis(x, times, 1) for x in (angles, clear))
    noise = random.uniform(0, 255, (count, seen, SIDE, SIDE))
    part = clear[..., None, None]
    images = part * 255 * draw(angles) + (1 - part) * noise
    targets = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return images.reshape(count, seen, -1).astype(np.uint8), targets, times


def swing(random: np.random.Generator, count: int) -> Array:
    """Angles (count, STEPS), 0 hanging down: from rest anywhere, kicked at each step."""
    angle, velocity = random.uniform(0, 2 * np.pi, count), np.zeros(count)
    found, h = np.empty((count, STEPS)), DT / SUBSTEPS
    for step in range(STEPS):
        found[:, step] = angle
        for _ in range(SUBSTEPS):
            velocity = velocity + h * (-SWING * np.sin(angle) - FRICTION * velocity)
            angle = angle + h * velocity
        velocity += random.normal(0, KICK, count)
    return found


def visibility(random: np.random.Generator, count: int) -> Array:
    """How much of each image is not noise, 0 to 1, (count, STEPS): a walk, cut off at both ends."""
    walk = np.empty((count, STEPS))
    walk[:, 0] = random.uniform(0, 1, count)
    for step in range(1, STEPS):
        walk[:, step] = np.clip(walk[:, step - 1] + random.uniform(-0.2, 0.2, count), 0, 1)
    low, high = random.uniform(0, 0.25, (count, 1)), random.uniform(0.75, 1, (count, 1))
    clear = np.clip((walk - low) / (high - low), 0, 1)
    clear[:, :CLEAN] = 1
    return clear


def draw(angles: Array) -> Array:
    """Images (..., SIDE, SIDE) of rods hung in the middle, 0 to 1, hanging down at angle 0."""
    length, half = (part * SIDE for part in ROD)
    across, down = np.meshgrid(*[np.arange(SIDE) + 0.5 - SIDE / 2] * 2)
    sine, cosine = np.sin(angles)[..., None, None], np.cos(angles)[..., None, None]
    along = across * sine + down * cosine
    beside = np.abs(across * cosine - down * sine)
    inside = np.minimum(half - beside, np.minimum(along, length - along))
    return np.asarray(np.clip(inside + 0.5, 0, 1), dtype=np.float32)


register(
    Task(
        name="pendulum",
        summary="the angle of a pendulum from noisy images at odd times, made here",
        options=PendulumOptions,
        load=load_pendulum,
        metric="mse",
        length=50,
        size="made here, 120 MB",
        licence="none needed (generated)",
        citation="Becker et al. 2019; Schirmer et al. 2022; own images after theirs",
        small=replace(
            LAPTOP,
            d_model=32,
            d_state=16,
            dropout=0.1,
            lr=0.01,
            epochs=30,
            weight_decay=0.05,
            dt_min=0.01,
            dt_max=0.3,
            bidirectional=False,
            pooling="none",
        ),
        # on images of their own; CRU as the authors of S5 trained it
        published={"S5": 3.41e-3, "CRU": 3.94e-3, "RKN-dt": 5.09e-3, "ODE-RNN": 7.26e-3},
    )
)
