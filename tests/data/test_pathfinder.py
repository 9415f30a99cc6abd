"""Pathfinder: scenes that can be answered, from the curves alone; images; tasks."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.distance import cdist
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from s4d_torch.data import TASKS, DataFolder, Dataset
from s4d_torch.data.dataset import Array
from s4d_torch.data.files.png import read_png
from s4d_torch.data.process_pool import in_order
from s4d_torch.data.tasks.pathfinder import (
    PathfinderOptions,
    PathXOptions,
    load_pathfinder,
    load_pathx,
    loader,
)
from s4d_torch.data.tasks.pathfinder import scenes as pathfinder_scenes
from s4d_torch.data.tasks.pathfinder.scenes import (
    Curve,
    Scene,
    SceneOptions,
    contact_sheet,
    draw,
    make_images,
    make_scene,
)

SHEET = Path(__file__).resolve().parents[2] / "docs" / "images" / "pathfinder.png"
SMALL, LARGE = SceneOptions.at(32), SceneOptions.at(128)
BOTH = pytest.mark.parametrize("options", [SMALL, LARGE], ids=["32", "128"])
COUNTS = {SMALL: 1000, LARGE: 500}


@lru_cache
def scenes(options: SceneOptions) -> list[Scene]:
    return [make_scene(options, 7, index) for index in range(COUNTS[options])]


def dense(curve: Curve) -> Array:
    """Points along the centre line, a tenth of a line apart; the last of a line is left out."""
    steps = np.arange(0, 1, 0.1)[:, None]
    lines = [a + steps * (b - a) for a, b in zip(curve.nodes, curve.nodes[1:], strict=False)]
    return np.stack(lines)  # (dashes, 10, 2)


# ---- scenes -----------------------------------------------------------------------------------


@BOTH
def test_the_label_says_whether_the_dots_are_ends_of_one_curve(options: SceneOptions) -> None:
    for index, scene in enumerate(scenes(options)[:200]):
        assert scene.label == index % 2
        ends = [[tuple(end) for end in curve.nodes[[0, -1]]] for curve in scene.curves[:2]]
        owners = [sum(tuple(dot) in own for dot in scene.dots) for own in ends]
        assert sorted(owners) == ([0, 2] if scene.label else [1, 1])
        assert [len(curve.along) for curve in scene.curves[:2]] == [14, 14]
        assert {len(curve.along) for curve in scene.curves[2:]} <= {1, 4}
        edge = options.dot_radius
        assert all((c.nodes > edge).all() for c in scene.curves)
        assert all((c.nodes < options.size - edge).all() for c in scene.curves)


@BOTH
def test_curves_keep_clear_of_each_other_of_themselves_and_of_dots(options: SceneOptions) -> None:
    slack = 0.4 if options.size == 32 else 0.7  # places are rounded to a third or half of a pixel
    for scene in scenes(options)[:60]:
        lines = [dense(curve) for curve in scene.curves]
        for a, b in combinations(lines, 2):
            nearest = cdist(a.reshape(-1, 2), b.reshape(-1, 2)).min()
            assert nearest > options.clearance - slack
        for own in lines[:2]:
            for i, j in combinations(range(len(own)), 2):
                if j > i + 1:
                    assert cdist(own[i], own[j]).min() > options.clearance - slack
        for dot in scene.dots:
            nearest = [cdist([dot], line.reshape(-1, 2)).min() for line in lines]
            assert sum(each < 2 for each in nearest) == 1  # its own curve
            foreign = [each for each in nearest if each >= 2]
            assert min(foreign) > options.clearance + options.dot_radius - slack


@BOTH
def test_a_curve_turns_only_so_far(options: SceneOptions) -> None:
    for scene in scenes(options)[:60]:
        for curve in scene.curves:
            assert np.allclose(
                np.linalg.norm(np.diff(curve.nodes, axis=0), axis=1), options.pitch, atol=0.5
            )
            cosines = (curve.along[1:] * curve.along[:-1]).sum(axis=1)
            assert (cosines > np.cos(np.pi / 2 / options.continuity)).all()


@BOTH
def test_the_pixels_alone_answer_every_image(options: SceneOptions) -> None:
    """Ink that is nearer than foreign curves are belongs together: flooding from a dot decides."""
    zoom, ink, bridge = (4, 0.15, 0.3) if options.size == 32 else (1, 0.4, 2.0)
    for scene in scenes(options)[:120]:
        image = draw(options, scene) / 255
        fine = ndimage.zoom(image, zoom, order=3, mode="nearest", grid_mode=True)
        near = ndimage.distance_transform_edt(fine <= ink) <= bridge * zoom
        areas, _ = ndimage.label(near, structure=np.ones((3, 3)))
        first, second = (areas[tuple((dot * zoom).astype(int))] for dot in scene.dots)
        assert (first == second) == bool(scene.label)


def cues(options: SceneOptions, scene: Scene) -> dict[str, list[float]]:
    image = draw(options, scene).astype(float)
    between = scene.dots[1] - scene.dots[0]
    distance = float(np.hypot(*between))
    line = (scene.dots[0] + np.linspace(0.15, 0.85, 30)[:, None] * between).astype(int)
    inward = {}
    for curve in scene.curves[:2]:
        inward[tuple(curve.nodes[0])] = curve.along[0]
        inward[tuple(curve.nodes[-1])] = -curve.along[-1]
    leave = [inward[tuple(dot)] for dot in scene.dots]
    heads = sorted([float(leave[0] @ between), -float(leave[1] @ between)])
    (top, left), (bottom, right) = scene.dots.min(0).astype(int), scene.dots.max(0).astype(int)
    box = image[top : bottom + 1, left : right + 1]
    return {
        "distance": [distance],
        "ink": [image.sum(), image.std()],
        "counts": [len(scene.curves), sum(len(curve.along) for curve in scene.curves)],
        "positions": [*scene.dots.mean(0), *np.sort(np.hypot(*(scene.dots - options.size / 2).T))],
        "ink between": [image[line[:, 0], line[:, 1]].mean(), box.mean(), box.sum()],
        "directions": [heads[0] / distance, heads[1] / distance, float(leave[0] @ leave[1])],
    }


@BOTH
def test_nothing_but_the_curves_tells_the_label(options: SceneOptions) -> None:
    seen = [cues(options, scene) for scene in scenes(options)]
    labels = np.array([scene.label for scene in scenes(options)])
    assert labels.mean() == 0.5
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    trees = HistGradientBoostingClassifier(max_depth=3, max_iter=30, random_state=0)
    columns = {name: np.array([each[name] for each in seen]) for name in seen[0]}
    everything = np.hstack(list(columns.values()))
    tried = [(linear, columns[name]) for name in columns]
    for model, values in [*tried, (linear, everything), (trees, everything)]:
        assert cross_val_score(model, values, labels, cv=5).mean() < 0.6


def test_the_cue_check_can_fail() -> None:
    """Curves whose dots are simply their ends give themselves away by direction."""
    told = [
        [cues(SMALL, replace(scene, dots=curve.nodes[[0, -1]]))["directions"] for curve in pair]
        for scene in scenes(SMALL)[:600]
        for pair in [scene.curves[:2]]
    ]
    apart = [
        cues(SMALL, replace(s, dots=np.stack([s.curves[0].nodes[0], s.curves[1].nodes[0]])))
        for s in scenes(SMALL)[:600]
    ]
    x = np.array([pair[0] for pair in told] + [each["directions"] for each in apart])
    y = np.repeat([1, 0], 600)
    trees = HistGradientBoostingClassifier(max_depth=3, max_iter=30, random_state=0)
    assert cross_val_score(trees, x, y, cv=5).mean() > 0.65


# ---- images -----------------------------------------------------------------------------------


def test_an_image_depends_on_seed_stream_and_index_only() -> None:
    block, labels = make_images(SMALL, 3, 4, 10)
    assert block.shape == (6, 1024, 1)
    assert block.dtype == np.uint8
    assert labels.tolist() == [0, 1, 0, 1, 0, 1]
    alone, _ = make_images(SMALL, 3, 7, 8)
    assert np.array_equal(alone[0], block[3])
    assert not np.array_equal(make_images(SMALL, 4, 7, 8)[0][0], block[3])
    assert not np.array_equal(make_images(SMALL, 3, 7, 8, stream=1)[0][0], block[3])


def test_dots_are_white_dashes_grey_and_edges_smooth() -> None:
    for scene in scenes(LARGE)[:20]:
        image = draw(LARGE, scene)
        assert image.shape == (128, 128)
        assert [image[tuple(dot.astype(int))] for dot in scene.dots] == [255, 255]
        assert np.isin(image, [0, 204]).mean() > 0.9  # 0.8 of 255
        assert len(np.unique(image)) > 50
        without_dots = replace(scene, dots=np.full((2, 2), -50.0))
        assert draw(LARGE, without_dots).max() == 204


def test_the_picture_in_the_docs_shows_these_images() -> None:
    sheet, tile = read_png(SHEET), 132
    assert sheet.shape == (6 * tile, 6 * tile)
    for index in range(12):
        top, left = tile * (index % 2) + 2, tile * (index // 2) + 2
        shown = sheet[top : top + 128 : 4, left : left + 128 : 4]
        assert np.array_equal(shown, draw(SMALL, make_scene(SMALL, 0, index)))


def test_a_sheet_has_a_row_of_either_label_for_each_size() -> None:
    sheet = contact_sheet([SMALL, LARGE], columns=2, seed=7)
    assert sheet.shape == (4 * 132, 2 * 132)
    assert np.array_equal(sheet[2 * 132 + 2 :, 2:][:128, :128], draw(LARGE, scenes(LARGE)[0]))
    assert np.array_equal(sheet[3 * 132 + 2 :, 134:][:128, :128], draw(LARGE, scenes(LARGE)[3]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gap": 0.0}, "gap must be above 0, got 0.0"),
        ({"clearance": 9.0}, r"below dash \+ gap = 3.4, or a curve blocks itself"),
        ({"clearance": 0.5}, "above thickness 1.0, or curves touch"),
        ({"contour_length": 3}, "contour_length must be 4 or more: 3"),
        ({"distractor_length": 14}, "distractor_length 14 must be at least 1 and below"),
        ({"paddles": -1}, "must not be negative: distractors 4, paddles -1"),
        ({"continuity": 0.9}, "continuity must be at least 1, got 0.9"),
        ({"contrast": 1.1}, r"contrast must be in \(0, 1\], got 1.1"),
    ],
)
def test_wrong_scenes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SceneOptions.at(32, **changes)


def test_too_small_or_too_full_images_are_refused() -> None:
    with pytest.raises(ValueError, match="size must be at least 32 pixels, got 16"):
        SceneOptions.at(16)
    with pytest.raises(ValueError, match="no room for two curves of 60 dashes in an image of 32"):
        make_scene(SceneOptions.at(32, contour_length=60), 0, 0)


# ---- processes --------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_jobs() -> None:
    jobs = [partial(pow, number, 2) for number in range(20)]
    expected = [number**2 for number in range(20)]
    assert list(in_order(jobs, 2)) == expected == list(in_order(jobs, 1))


def test_a_worker_that_dies_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match='if __name__ == "__main__":'):
        list(in_order([partial(os._exit, 1)] * 9, 2))


# ---- the tasks on images made here ------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path, download=False)


def pixels(data: Dataset) -> dict[str, Array]:
    return {name: np.array(split.inputs[0].values) for name, split in data.splits.items()}


def test_generated_images_are_split_balanced_and_scaled(folder: DataFolder) -> None:
    data = load_pathfinder(PathfinderOptions(count=40), folder)
    assert [len(split) for split in data.splits.values()] == [32, 4, 4]
    assert [int(split.labels().sum()) for split in data.splits.values()] == [16, 2, 2]
    stored = np.concatenate(list(pixels(data).values()))
    assert stored.dtype == np.uint8
    assert len(np.unique(stored[..., 0], axis=0)) == 40
    batch = data.batch(data.train, np.arange(4))
    assert batch.inputs.shape == (4, 1024, 1)
    assert (batch.inputs.min(), batch.inputs.max()) == (-1, 1)
    assert batch.targets.tolist() == [0, 1, 0, 1]
    assert data.signature.classes == ("apart", "joined")


def test_images_are_made_once_and_kept(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = PathfinderOptions(count=10, seed=5)
    first = pixels(load_pathfinder(options, folder))
    assert "images of 32x32 pixels: 10 of 10 in" in capsys.readouterr().err

    def refuse(*_: Any) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(pathfinder_scenes, "make_images", refuse)
    again = pixels(load_pathfinder(replace(options, workers=2), folder))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    for other in ({"seed": 6}, {"distractors": 3}, {"count": 20}):
        with pytest.raises(AssertionError, match="made again"):
            load_pathfinder(replace(options, **other), folder)


def test_fewer_images_are_among_more_in_every_split(folder: DataFolder) -> None:
    few = pixels(load_pathfinder(PathfinderOptions(count=20), folder))
    more = pixels(load_pathfinder(PathfinderOptions(count=30), folder))
    assert all(np.array_equal(few[name], more[name][: len(few[name])]) for name in few)


def test_two_processes_make_the_same_images_as_one(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = PathfinderOptions(count=30, workers=1, contour_length=9)
    alone = pixels(load_pathfinder(few, folder))
    monkeypatch.setattr(loader, "BLOCK", 4)
    elsewhere = DataFolder(folder.root / "elsewhere", download=False)
    together = pixels(load_pathfinder(replace(few, workers=2), elsewhere))
    assert all(np.array_equal(alone[name], together[name]) for name in alone)


def test_pathx_has_128_pixels_a_side(folder: DataFolder) -> None:
    data = load_pathx(PathXOptions(count=10), folder)
    assert data.signature.length == 16384 == TASKS["pathx"].length
    assert pixels(data)["train"].shape == (8, 16384, 1)
    assert np.array_equal(pixels(data)["train"], make_images(LARGE, 0, 0, 8)[0])


def test_the_options_of_the_tasks_are_the_usual_scenes() -> None:
    assert PathfinderOptions().scenes(32) == SMALL
    assert PathXOptions().scenes(128) == LARGE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "offical"}, "unknown source 'offical'; did you mean 'official'?"),
        ({"count": 9}, "count must be at least 10, one image a tenth, got 9"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"workers": -2}, "workers must be at least 0, got -2"),
        ({"contour_length": 2}, "contour_length must be 4 or more: 2"),
        ({"continuity": 0.0}, "continuity must be above 0, got 0.0"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PathfinderOptions(**changes)


def test_the_rows_of_the_paper() -> None:
    small, large = TASKS["pathfinder"], TASKS["pathx"]
    assert small.paper is not None
    assert large.paper is not None
    for row in (small.paper, large.paper):
        assert (row.n_layers, row.d_model, row.d_state) == (6, 256, 64)
        assert (row.norm, row.prenorm, row.dropout, row.bidirectional) == ("batch", True, 0, True)
    assert (small.paper.lr, small.paper.batch_size, small.paper.epochs) == (0.004, 64, 200)
    assert (small.paper.weight_decay, small.paper.dt_min, small.paper.dt_max) == (0.03, 0.001, 0.1)
    assert (large.paper.lr, large.paper.batch_size, large.paper.epochs) == (0.0005, 32, 50)
    assert (large.paper.weight_decay, large.paper.dt_min, large.paper.dt_max) == (0.05, 1e-4, 0.01)
    assert small.published["S4D-LegS"] == 93.06
    assert large.published == {
        "S4-LegS": 96.35,
        "S4D-LegS": 91.95,
        "S4D-Inv": 92.80,
        "S4 (original)": 88.10,
    }


def test_the_bar_on_a_terminal(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal: Callable[[], bool] = lambda: True  # noqa: E731
    monkeypatch.setattr(sys.stderr, "isatty", terminal)
    load_pathfinder(PathfinderOptions(count=10), folder)
    assert "10/10" in capsys.readouterr().err
