"""Problems of the UCR, UEA and TSER archives, or a user's own files in their formats.

``ucr/NAME/NAME_TRAIN.ts`` and ``NAME_TEST.ts`` (or ``.txt``, ``.tsv``, ``.csv``: see
:mod:`s4d_torch.data.files.ts`). The official split is kept; a part of the training cases, class by
class, validates. Models read each dimension in units of the training cases.
"""

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Dataset
from s4d_torch.data.dropping import DROPPING, Dropping, without_dropped
from s4d_torch.data.files.moments import TimeReader
from s4d_torch.data.files.ts import SeriesFile
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source
from s4d_torch.data.missing_values import Missing
from s4d_torch.data.splits import Holdout
from s4d_torch.data.task import LAPTOP, Task, check_choices, register
from s4d_torch.data.user_files.assembly import Times, Timing, dataset_of, existing_file, stored
from s4d_torch.data.user_files.targets import Targets, class_numbers, natural_order, read_targets

ADDRESS = "https://timeseriesclassification.com/aeon-toolkit"
FOLDER = "ucr"
SUFFIXES = (".ts", ".txt", ".tsv", ".csv")


@dataclass(frozen=True)
class UcrOptions(Holdout, Dropping):
    """One problem of the time series archives, by its name or by its files."""

    problem: str = ""
    """name in the archives, such as GunPoint; a folder below ucr/ in the data folder"""
    path: str = ""
    """instead: a folder with a _TRAIN file, such a file, or one .ts file with all cases"""
    missing: Missing = "error"
    """missing values are refused, or interpolated in time"""
    times: Times = "use"
    """of a .ts file with time stamps: models are told the gaps between samples, or samples are
    taken as evenly spaced"""
    validation: float = field(default=0.2, kw_only=True)
    """part of the training cases that validates"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_dropping()
        check_choices(self, missing=Missing, times=Times)
        if self.problem and self.path:
            raise ValueError(
                f"name a problem of the archives or a path; got {self.problem!r} and {self.path!r}"
            )
        if self.problem and not re.fullmatch(r"[\w-]+", self.problem):
            raise ValueError(f"{self.problem!r} is no name of a problem; is it a path?")


def load_ucr(options: UcrOptions, folder: DataFolder) -> Dataset:
    """Series as (length, dimensions) float32, ragged if their lengths differ."""
    files = _path_files(Path(options.path)) if options.path else _problem_files(options, folder)
    chosen = {name: value for name, value in asdict(options).items() if name not in DROPPING}
    key, paths = chosen | {"problem": "", "path": "", "cases": "by line"}, list(files.values())
    dataset = folder.prepared("ucr", key, paths, lambda s: _build(options, files, s))
    return without_dropped(dataset, options, folder, "ucr", key, paths)


def _build(options: UcrOptions, files: dict[str, Path], scratch: Scratch) -> Dataset:
    clock = TimeReader() if options.times == "use" else None
    read = {name: SeriesFile(file, options.missing, clock) for name, file in files.items()}
    given = {name: stored(each.cases(), scratch) for name, each in read.items()}
    if len({each.dimensions for each in read.values()}) > 1:
        shown = ", ".join(f"{each.file.name} has {each.dimensions}" for each in read.values())
        raise ValueError(f"the numbers of dimensions differ: {shown}")
    cases = [f"{each.file.name}:{line}" for each in read.values() for line in each.lines]
    timing, stamped = None, [each for each in read.values() if each.times]
    if clock is not None and stamped:
        if len(stamped) < len(read):
            without = next(each.file for each in read.values() if not each.times)
            raise ValueError(f"{stamped[0].file} has times and {without} has none")
        times = {name: stored(iter(each.times), scratch) for name, each in read.items()}
        timing = Timing(times, dates=clock.dates)
    targets = _targets(list(read.values()))
    return dataset_of(given, targets, options, cases=cases, timing=timing)


def _targets(files: list[SeriesFile]) -> Targets:
    texts = [target for each in files for target in each.targets]
    places = [f"{each.file}:{line}" for each in files for line in each.lines]
    kinds = {each.kind for each in files}
    if len(kinds) > 1:
        first, last = files[0].file, files[-1].file
        raise ValueError(f"{first} and {last}: classes in one, numbers in the other")
    if len(files[0].classes) > 1:
        classes = natural_order(files[0].classes)
        numbers = class_numbers(texts, classes, places.__getitem__)
        return Targets("classification", numbers, classes)
    return read_targets(texts, kinds.pop(), places.__getitem__)


def _path_files(path: Path) -> dict[str, Path]:
    """The files a path stands for: a folder, a _TRAIN or _TEST file, or a file on its own."""
    path = path.expanduser().resolve()
    if path.is_dir():
        found = train_files(path)
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise ValueError(
                f"{path}: expected one file *_TRAIN.ts (or .txt, .tsv); it has {names}"
            )
        path = found[0]
    path = existing_file(path)
    match = re.fullmatch(r"(.+)_(TRAIN|TEST)", path.stem)
    if match is None:
        return {"train": path}
    return _pair(path.parent, match[1], path.suffix)


def _problem_files(options: UcrOptions, folder: DataFolder) -> dict[str, Path]:
    """The files of a problem, which may lie in the folder of another as a variant of it."""
    root, name = folder.root / FOLDER, options.problem
    found = (file for place in root.glob("*/") for file in train_files(place))
    present = sorted({file.stem.removesuffix("_TRAIN") for file in found})
    here = f"; here are: {', '.join(present)}" if present else ""
    if not name:
        raise ValueError(f"name a problem of the archives (--data.problem) or a path{here}")
    for place in (root / name, *sorted(root.glob("*/"))):
        for file in train_files(place):
            if file.stem == f"{name}_TRAIN":
                return _pair(place, name, file.suffix)
    source = Source(f"{ADDRESS}/{name}.zip", into=f"{FOLDER}/{name}")
    try:
        folder.require(f"{FOLDER}/{name}/{name}_TRAIN.ts", [source])
    except MissingDataError as error:
        hint = did_you_mean(name, present) or here
        raise MissingDataError(f"no problem {name!r} is here{hint}\n{error}") from error
    return _pair(root / name, name, ".ts")


def _pair(place: Path, name: str, suffix: str) -> dict[str, Path]:
    files = {part: place / f"{name}_{part.upper()}{suffix}" for part in ("train", "test")}
    for file in files.values():
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; a problem has _TRAIN and _TEST files")
    return files


def train_files(place: Path) -> list[Path]:
    """The _TRAIN files of a folder; of one problem in several formats, the first of SUFFIXES."""
    found: dict[str, Path] = {}
    for suffix in SUFFIXES:
        for file in sorted(place.glob(f"*_TRAIN{suffix}")):
            found.setdefault(file.stem, file)
    return list(found.values())


register(
    Task(
        name="ucr",
        summary="a problem of the UCR, UEA or TSER archives of time series",
        options=UcrOptions,
        load=load_ucr,
        metric="accuracy",
        size="0.1 to 1000 MB, by problem",
        licence="as in the archives; for research",
        citation="Dau et al. 2019 (UCR); Bagnall et al. 2018 (UEA); Tan et al. 2021 (TSER)",
        files=(FOLDER,),
        # most series have some hundred samples
        small=replace(LAPTOP, dropout=0.2, batch_size=16, epochs="auto", dt_min=0.01),
    )
)
