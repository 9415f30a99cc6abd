"""What the tasks of the Long Range Arena share: its release and its published results."""

from pathlib import Path

from s4d_torch.data.folder import DataFolder, Source

RELEASE = Source("https://storage.googleapis.com/long-range-arena/lra_release.gz")
"""7.7 GB with all tasks of the arena; a tar archive packed with gzip, whatever its name says."""

COLUMNS = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
# Accuracy in per cent; None where a model did not get above chance.
RESULTS: dict[str, tuple[float | None, ...]] = {
    "S4-LegS": (59.60, 86.82, 90.90, 88.65, 94.20, 96.35),
    "S4-FouT": (57.88, 86.34, 89.66, 89.07, 94.46, None),
    "S4D-LegS": (60.47, 86.18, 89.46, 88.19, 93.06, 91.95),
    "S4D-Inv": (60.18, 87.34, 91.09, 87.83, 93.78, 92.80),
    "S4D-Lin": (60.52, 86.97, 90.96, 87.93, 93.96, None),
    "S4 (original)": (58.35, 76.02, 87.09, 87.26, 86.05, 88.10),
    "Transformer": (36.37, 64.27, 57.46, 42.44, 71.40, None),
}


def published(task: str) -> dict[str, float]:
    """The paper's results on one task of the arena, by model."""
    column = COLUMNS.index(task)
    return {name: score for name, row in RESULTS.items() if (score := row[column]) is not None}


def has_release(folder: DataFolder, name: str) -> bool:
    """Whether a folder of the release is there."""
    places = ("lra_release", "lra_release/lra_release")
    return any((folder.root / place / name).is_dir() for place in places)


def release_folder(folder: DataFolder, name: str) -> Path:
    """A folder of the release, which unpacks into two nested ``lra_release`` (one will do)."""
    once = folder.root / "lra_release" / name
    return once if once.is_dir() else folder.require(f"lra_release/lra_release/{name}", [RELEASE])
