"""Pathfinder and Path-X: are two dots joined by a dashed curve? Images read pixel by pixel.

Two sources. ``generated``: images made here (see ``scenes``), label 0 and 1 in equal numbers.
``official``: the Long Range Arena's, from the folder ``pathfinder{32,128}/curv_contour_length_14``
of its release (see ``official_images``).

Both are split 80/10/10 and read as numbers from -1 to 1. Published results are on the official
images. The generated ones follow the same idea with curves that keep further apart and without
hints in the ends, so results on the two cannot be compared.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from s4d_torch._progress import progress
from s4d_torch.data.dataset import Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.process_pool import in_order
from s4d_torch.data.splits import split_randomly
from s4d_torch.data.task import ARENA, Task, check_at_least, check_choices, register
from s4d_torch.data.tasks.arena import published, release_folder
from s4d_torch.data.tasks.pathfinder.official_images import find_lists, read_listed
from s4d_torch.data.tasks.pathfinder.scene_options import VERSION, SceneOptions

Origin = Literal["generated", "official"]
DIFFICULTY = "curv_contour_length_14"
CLASSES = ("apart", "joined")
TENTH = 0.1  # for validation, and as much to test
BLOCK = 500  # images that a process makes at a time
PREVIEW = 100  # images to try a model on


@dataclass(frozen=True)
class PathfinderOptions:
    """Images of 32x32 pixels, made here unless you ask for the official ones."""

    source: Origin = "generated"
    """made here, or the Long Range Arena's files (7.7 GB with all its tasks)"""
    count: int = 200_000
    """images to make, a tenth each for validation and test (generated); 200000 take a core 10
    minutes, and are kept for the next time"""
    seed: int = 0
    """of the images (generated); those of a smaller count are among those of a larger one"""
    split_seed: int = 0
    """of the random splits (official)"""
    workers: int = 0
    """processes that make or read images, which does not change them; 0 for one per core"""
    contour_length: int = 14
    """dashes of the two long curves (generated): more are harder"""
    distractors: int = 4
    """short curves that distract, of a third as many dashes, as far as there is room (generated)"""
    paddles: int = 4
    """single dashes that distract, as far as there is room (generated)"""
    continuity: float = 1.3
    """a curve turns by less than 90 degrees / continuity from dash to dash (generated)"""

    def __post_init__(self) -> None:
        check_choices(self, source=Origin)
        check_at_least(0, self, "seed", "split_seed", "workers")
        if self.count < 10:
            raise ValueError(f"count must be at least 10, one image a tenth, got {self.count}")
        self.scenes(32)

    def scenes(self, size: int) -> SceneOptions:
        return SceneOptions.at(
            size,
            contour_length=self.contour_length,
            distractors=self.distractors,
            distractor_length=max(self.contour_length // 3, 1),
            paddles=self.paddles,
            continuity=self.continuity,
        )


@dataclass(frozen=True)
class PathXOptions(PathfinderOptions):
    """Images of 128x128 pixels, or 64x64, made here unless you ask for the official ones."""

    count: int = 200_000
    """images to make, a tenth each for validation and test (generated); 200000 take a core 13
    minutes and 3.3 GB of disk, and are kept for the next time"""
    distractors: int = 8
    """short curves that distract, of a third as many dashes, as far as there is room (generated)"""
    paddles: int = 6
    """single dashes that distract, as far as there is room (generated)"""
    continuity: float = 1.6
    """a curve turns by less than 90 degrees / continuity from dash to dash (generated)"""
    size: int = 128
    """pixels of a side: 128 is Path-X, 64 a shorter stand-in for it (4096 pixels)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size not in (64, 128):
            raise ValueError(f"size must be 64 or 128, got {self.size}")
        self.scenes(self.size)


def load_pathfinder(options: PathfinderOptions, folder: DataFolder, size: int = 32) -> Dataset:
    """Images as (size * size, 1) pixels, row by row; class 1 where a curve joins the dots."""
    name = f"pathfinder{size}"
    if options.source == "official":
        root = release_folder(folder, name) / DIFFICULTY
        lists = find_lists(root)

        def read(scratch: Scratch) -> Dataset:
            whole = read_listed(lists, root, size, options.workers, scratch)
            seed = options.split_seed
            return split_randomly(whole, _signature(size), validation=TENTH, test=TENTH, seed=seed)

        key = {"split_seed": options.split_seed}
        return folder.prepared(f"{name}-official", key, lists, read)
    shaping = asdict(options.scenes(size)) | {"version": VERSION}
    key = shaping | {"count": options.count, "seed": options.seed}
    return folder.prepared(name, key, [], lambda s: _generated(options, size, s))


def load_pathx(options: PathXOptions, folder: DataFolder) -> Dataset:
    """:func:`load_pathfinder` with 128x128 pixels, or 64x64."""
    return load_pathfinder(options, folder, size=options.size)


def preview(options: PathfinderOptions) -> tuple[PathfinderOptions, tuple[int, int, int]] | None:
    """A few images of those that would be made."""
    if options.source != "generated":
        return None
    return replace(options, count=min(options.count, PREVIEW)), _counts(options.count)


def _counts(count: int) -> tuple[int, int, int]:
    """Images to learn from, to validate and to test."""
    tenth = round(TENTH * count)
    return count - 2 * tenth, tenth, tenth


def _signature(size: int) -> Signature:
    return Signature.of_classes(
        CLASSES, length=size * size, input_shift=(127.5,), input_scale=(1 / 127.5,)
    )


def _generated(options: PathfinderOptions, size: int, scratch: Scratch) -> Dataset:
    """Each split has a stream of images of its own, so none learns what another tests."""
    from s4d_torch.data.tasks.pathfinder.scenes import make_images  # imports numba, which is slow

    counts = _counts(options.count)
    parts = [(stream, start) for stream, n in enumerate(counts) for start in range(0, n, BLOCK)]
    scenes = options.scenes(size)
    jobs = [
        partial(
            make_images, scenes, options.seed, start, min(start + BLOCK, counts[stream]), stream
        )
        for stream, start in parts
    ]
    pixels = [scratch.array((n, size * size, 1), np.uint8) for n in counts]
    labels = [np.zeros(n, dtype=np.uint8) for n in counts]
    with progress(f"images of {size}x{size} pixels", options.count) as shown:
        results = in_order(jobs, options.workers)
        for (stream, start), (images, classes) in zip(parts, results, strict=True):
            pixels[stream][start : start + len(images)] = images
            labels[stream][start : start + len(images)] = classes
            shown.advance(len(images))
    return Dataset.of(map(Split.whole, map(Sequences, pixels), labels), _signature(size))


# One pass over the images: with a count of 20000 minutes for pathfinder, with 1000 for pathx.
SMALL = replace(ARENA, n_layers=4, d_model=64, weight_decay=0.03, epochs=1)

PATHFINDER = register(
    Task(
        name="pathfinder",
        summary="are two dots joined by a dashed curve? 32x32 pixels (Long Range Arena Pathfinder)",
        options=PathfinderOptions,
        load=load_pathfinder,
        preview=preview,
        metric="accuracy",
        length=1024,
        size="made here (200000 images, 205 MB)",
        licence="none needed (generated); official files: Apache-2.0",
        citation="Linsley et al. 2018, horizontal gated recurrent units; "
        "Tay et al. 2021, Long Range Arena",
        small=replace(SMALL, lr=0.004, batch_size=64),
        paper=replace(ARENA, lr=0.004, batch_size=64, epochs=200, weight_decay=0.03),
        published=published("pathfinder"),
    )
)
register(
    replace(
        PATHFINDER,
        name="pathx",
        summary="are two dots joined by a dashed curve? 128x128 pixels (Long Range Arena Path-X)",
        options=PathXOptions,
        load=load_pathx,
        length=16384,
        size="made here (200000 images, 3.3 GB)",
        small=replace(SMALL, lr=0.0005, batch_size=16, dt_min=0.0001, dt_max=0.01),
        paper=replace(ARENA, lr=0.0005, batch_size=32, epochs=50, dt_min=0.0001, dt_max=0.01),
        published=published("pathx"),
    )
)
