"""People's own data from beginning to end: train, evaluate, predict, stream and export.

    OMP_NUM_THREADS=1 python benchmarks/own_data.py --data-dir data --out own-data

makes files as people have them (tables long and wide, sounds of mixed rates, arrays, .ts, ragged,
imbalanced, numbers to predict, a table that leaks), takes each through the commands in processes
of their own, and writes own-data/own-data.json and a table, own-data/own-data.md. Sets made from
the FSDD, UCR and ETT data need them in the data folder; those that are not there are named.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data import DataFolder, load_ucr
from s4d_torch.data.user_files.ucr import UcrOptions

Array = Any


@dataclass(frozen=True)
class Made:
    """What a maker wrote: what to train on, what to predict, and what is pushed into a stream."""

    train: Path
    new: Path
    """cases that training never saw, without their targets"""
    truth: dict[str, str] = field(default_factory=dict)
    """their targets, by the name of the case"""
    of_data: tuple[str, ...] = ()
    """options of the reader"""
    flags: tuple[str, ...] = ()
    """other options of the training"""
    stream: Array | None = None
    """samples (length, channels) for a stream; none where the model looks both ways"""
    warns_of: tuple[str, ...] = ()
    """words that have to be in the account of the data"""


@dataclass(frozen=True)
class OwnData:
    name: str
    form: str
    make: Callable[[Path, Path], Made]


# ---- making files ------------------------------------------------------------------------------


def write_csv(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], **form: Any
) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, **form)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def ucr(data: Path, name: str) -> tuple[list[Array], Array, list[Array], Array]:
    """Cases (length, channels) and labels, of the training and the test split of the archive."""
    dataset = load_ucr(UcrOptions(path=data / "ucr" / name / f"{name}_TRAIN.ts"), DataFolder(data))
    classes, found = dataset.signature.classes, []
    for splits in (["train", "validation"], ["test"]):
        rows = [(dataset.splits[s], i) for s in splits for i in dataset.splits[s].index]
        found.append([np.asarray(split.inputs[0][i], dtype=float) for split, i in rows])
        labels = [split.targets[i] for split, i in rows]
        found.append([classes[int(x)] for x in labels] if classes else labels)
    return tuple(found)  # type: ignore[return-value]


def long_rows(
    cases: Sequence[Array], first: int, labels: Sequence[Any] | None
) -> Iterator[list[Any]]:
    for number, case in enumerate(cases, first):
        for t, row in enumerate(case):
            yield [
                f"case{number:03}",
                t,
                *row,
                *([] if labels is None else [labels[number - first]]),
            ]


MOTION = ("acc x", "acc y", "acc z", "gyro x", "gyro y", "gyro z")


def long_table(data: Path, here: Path) -> Made:
    """A watch's six channels (BasicMotions); the new file has its columns in another order."""
    X, y, X_new, y_new = ucr(data, "BasicMotions")
    train = write_csv(here / "motions.csv", ["case", "time", *MOTION, "label"], long_rows(X, 0, y))
    order = [3, 5, 0, 2, 1, 4]
    shuffled = [case[:, order] for case in X_new]
    names = [MOTION[i] for i in order]
    new = write_csv(here / "new.csv", ["case", "time", *names], long_rows(shuffled, 500, None))
    truth = {f"case{500 + i:03}": label for i, label in enumerate(y_new)}
    return Made(train, new, truth, flags=("--causal",), stream=X_new[0])


def wide_table(data: Path, here: Path) -> Made:
    """A row a case: a heartbeat of 82 samples (TwoLeadECG), with its label in front."""
    rows = [line.split() for line in (data / "ucr/TwoLeadECG/TwoLeadECG_TEST.tsv").open()]
    rng = np.random.default_rng(0)
    rows = [rows[i] for i in rng.permutation(len(rows))]
    header = ["id", *(f"t{i}" for i in range(len(rows[0]) - 1)), "label"]
    lines = [[f"beat{i}", *row[1:], f"lead {row[0]}"] for i, row in enumerate(rows[:300])]
    train = write_csv(here / "beats.csv", header, lines)
    fresh = [[f"beat{i}", *row[1:]] for i, row in enumerate(rows[900:1000], 900)]
    new = write_csv(here / "new.csv", header[:-1], fresh)
    truth = {f"beat{i}": f"lead {row[0]}" for i, row in enumerate(rows[900:1000], 900)}
    return Made(train, new, truth, ("--data.layout", "wide"))


def write_sounds(
    data: Path, here: Path, digits: str, *, mixed: bool
) -> tuple[Path, Path, dict[str, str]]:
    """FSDD's recordings in a folder for each digit; mixed: some at 16 kHz, some in stereo."""
    import soundfile
    from scipy.signal import resample_poly

    new, truth = here / "new", {}
    new.mkdir()
    for number, path in enumerate(sorted((data / "fsdd/recordings").glob(f"[{digits}]_*.wav"))):
        digit, _, take = path.stem.split("_")
        if int(take) >= 12:
            continue
        sound, rate = soundfile.read(path)
        if mixed and number % 3 == 1:
            sound, rate = resample_poly(sound, 2, 1), 2 * rate
        if mixed and number % 3 == 2:
            sound = np.stack([sound, 0.5 * sound], 1)
        place = new if int(take) < 2 else here / "sounds" / f"digit {digit}"
        place.mkdir(parents=True, exist_ok=True)
        suffix = ".flac" if mixed and number % 5 == 0 else ".wav"
        soundfile.write(place / f"{path.stem}{suffix}", sound, rate)
        if place == new:
            truth[f"{path.stem}{suffix}"] = f"digit {digit}"
    return here / "sounds", new, truth


def mixed_sounds(data: Path, here: Path) -> Made:
    train, new, truth = write_sounds(data, here, "0123", mixed=True)
    (train / "notes.txt").write_text("taken on a Monday\n")
    return Made(train, new, truth, ("--data.resample", "8000", "--data.mono"), ("--causal",))


def sounds_by_speaker(data: Path, here: Path) -> Made:
    train, new, truth = write_sounds(data, here, "3579", mixed=False)
    return Made(train, new, truth, ("--data.groups", "part:1"))


def arrays(data: Path, here: Path) -> Made:
    """The digits that come with the package, as arrays in one file."""
    from importlib.resources import files

    with np.load(str(files("s4d_torch.data.tasks") / "digits.npz")) as content:
        X, y = (content[name] for name in sorted(content.files, key=lambda n: -content[n].ndim))
    X = X.reshape(len(y), -1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    train, new = here / "digits.npz", here / "new.npz"
    np.savez(train, X=X[:1000], y=y[:1000])
    np.savez(new, X=X[1000:1200])
    return Made(train, new, {str(i): str(label) for i, label in enumerate(y[1000:1200])})


def archive(data: Path, here: Path) -> Made:
    """GunPoint as the archive has it."""
    _, _, X_new, y_new = ucr(data, "GunPoint")
    np.savez(here / "new.npz", X=np.stack(X_new))
    truth = {str(i): str(label) for i, label in enumerate(y_new)}
    train = data / "ucr" / "GunPoint"
    return Made(train, here / "new.npz", truth, flags=("--causal",), stream=X_new[0])


def ragged(data: Path, here: Path) -> Made:
    """JapaneseVowels: 12 channels, 7 to 29 samples, as flat arrays with their lengths."""
    X, y, X_new, y_new = ucr(data, "JapaneseVowels")
    train, new = here / "vowels.npz", here / "new.npz"
    lengths = [len(case) for case in X]
    np.savez(train, X=np.concatenate(X), lengths=lengths, y=np.array(y, dtype=str))
    np.savez(new, X=np.concatenate(X_new), lengths=[len(case) for case in X_new])
    truth = {str(i): str(label) for i, label in enumerate(y_new)}
    return Made(train, new, truth, flags=("--causal",), stream=X_new[0])


def imbalanced(data: Path, here: Path) -> Made:
    """One series in twelve has a short burst; most guesses 'quiet' are right."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(480, 200))
    y = np.arange(480) % 12 == 0
    for case in np.flatnonzero(y):
        start = rng.integers(0, 160)
        X[case, start : start + 40] += 1.5 * np.sin(np.arange(40) * 0.8)
    labels = np.where(y, "burst", "quiet")
    train, new = here / "bursts.npz", here / "new.npz"
    np.savez(train, X=X[:400], y=labels[:400])
    np.savez(new, X=X[400:])
    flags = ("--training.class-weight", "balanced", "--training.metric", "f1")
    truth = {str(i): str(label) for i, label in enumerate(labels[400:])}
    return Made(train, new, truth, flags=flags, warns_of=("class-weight balanced",))


def regression(data: Path, here: Path) -> Made:
    """The oil temperature six hours on from two days of load (ETTh1), with decimal commas."""
    lines = list(csv.DictReader((data / "ETT-small/ETTh1.csv").open()))
    loads = ("HUFL", "MUFL", "LUFL")
    values = np.array([[float(line[name]) for name in (*loads, "OT")] for line in lines])
    starts = np.arange(0, len(values) - 54, 42)
    comma = lambda x: f"{x:.4f}".replace(".", ",")  # noqa: E731

    def rows(first: int, last: int, target: bool) -> Iterator[list[str]]:
        for number, start in enumerate(starts[first:last], first):
            later = comma(values[start + 53, 3])
            for t, row in enumerate(values[start : start + 48]):
                yield [f"day{number}", str(t), *map(comma, row), *([later] if target else [])]

    header = ["id", "time", *loads, "oil"]
    train = write_csv(here / "oil.csv", [*header, "later"], rows(0, 330, True), delimiter=";")
    new = write_csv(here / "new.csv", header, rows(330, 400, False), delimiter=";")
    truth = {f"day{i}": str(values[starts[i] + 53, 3]) for i in range(330, 400)}
    return Made(train, new, truth, ("--data.target", "later"))


def gaps(data: Path, here: Path) -> Made:
    """Two machines' currents with values missing here and there."""
    rng = np.random.default_rng(2)
    t = np.arange(120)

    def case(kind: int) -> Array:
        both = np.sin(t * (0.25 + 0.1 * kind) + rng.uniform(0, 6)), np.cos(t * 0.1)
        X = np.stack(both, 1) + 0.4 * rng.normal(size=(120, 2))
        X[rng.random((120, 2)) < 0.03] = np.nan
        return X

    cases, labels = (
        [case(i % 2) for i in range(160)],
        ["worn" if i % 2 else "good" for i in range(160)],
    )
    shown = [np.where(np.isnan(case), "", case.round(4).astype(str)) for case in cases]
    header = ["case", "time", "phase a", "phase b"]
    train = write_csv(
        here / "machines.csv", [*header, "state"], long_rows(shown[:120], 0, labels[:120])
    )
    new = write_csv(here / "new.csv", header, long_rows(shown[120:], 120, None))
    truth = {f"case{i:03}": labels[i] for i in range(120, 160)}
    flags = ("--data.target", "state", "--data.missing", "interpolate")
    return Made(train, new, truth, flags)


def leaking(data: Path, here: Path) -> Made:
    """Noise with a grade that is the target by another name, and cases that are there twice."""
    rng = np.random.default_rng(3)
    cases, labels = [], []
    for i in range(60):
        grade = i % 2
        cases.append(np.column_stack([rng.normal(size=50), np.full(50, 10 + grade)]))
        labels.append("bad" if grade else "fine")
    cases[30:] = [case.copy() for case in cases[:30]]
    labels[30:] = labels[:30]
    train = write_csv(
        here / "leak.csv", ["case", "time", "signal", "grade", "label"], long_rows(cases, 0, labels)
    )
    new = write_csv(
        here / "new.csv", ["case", "time", "signal", "grade"], long_rows(cases[:10], 0, None)
    )
    truth = {f"case{i:03}": labels[i] for i in range(10)}
    return Made(train, new, truth, warns_of=("grade", "remove the copies"))


SETS = [
    OwnData("motions", "long table, 6 named channels; reordered to predict", long_table),
    OwnData("beats", "wide table, a row a case", wide_table),
    OwnData("sounds", "8 and 16 kHz, mono and stereo, wav and flac", mixed_sounds),
    OwnData("speakers", "sounds, no speaker in two splits", sounds_by_speaker),
    OwnData("digits", ".npz, 64 samples, 10 classes", arrays),
    OwnData("gunpoint", "the archive's .ts, 50 cases", archive),
    OwnData("vowels", "ragged, 12 channels, 9 classes", ragged),
    OwnData("bursts", "imbalanced 11 to 1", imbalanced),
    OwnData("oil", "regression, decimal commas", regression),
    OwnData("machines", "3 % of values missing", gaps),
    OwnData("leak", "the target as a feature, cases twice", leaking),
]


# ---- the commands ------------------------------------------------------------------------------


class FailedError(Exception):
    """A command that ended with an error, or an answer that is wrong."""


def s4d(*arguments: object, input: str | None = None) -> tuple[str, str]:
    """A command as a user starts it; what it printed, and what it said beside that."""
    command = [sys.executable, "-m", "s4d_torch", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, input=input, check=False)
    if done.returncode:
        raise FailedError(f"s4d {arguments[0]}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout, done.stderr


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def warnings_of(account: str) -> list[str]:
    """The warnings of a data account, each in one line."""
    return [str(warning) for warning in json.loads(account)["summary"]["warnings"]]


def predicted(lines: Sequence[dict[str, Any]], truth: dict[str, str]) -> float:
    """The part of the new cases that is right, or the error of numbers, matched by name."""
    answers = {line.get("case") or Path(line["file"]).name: line for line in lines}
    strange = set(truth) ^ set(answers)
    if strange:
        raise FailedError(f"predict: cases {sorted(strange)[:5]} are in only one of both")
    if "value" in lines[0]:
        wrong = [float(answers[case]["value"]) - float(value) for case, value in truth.items()]
        return float(np.sqrt(np.mean(np.square(wrong))))
    return float(np.mean([answers[case]["class"] == value for case, value in truth.items()]))


def take_through(own: OwnData, data: Path, place: Path) -> dict[str, Any]:
    """One set through all commands; the facts that go into the table."""
    place.mkdir(parents=True)
    made, run = own.make(data, place), place / "run"
    account, _ = s4d("info", made.train, *made.of_data, "--json")
    warned = warnings_of(account)
    for words in made.warns_of:
        if not any(re.search(words, warning) for warning in warned):
            raise FailedError(f"info: no warning has {words!r}; there are {warned}")
    start = time.perf_counter()
    s4d("train", made.train, "--out", run, "--quiet", *made.of_data, *made.flags)
    seconds = time.perf_counter() - start
    summary = json.loads((run / "summary.json").read_text())
    metric = summary["metric"]
    (scores, *_) = objects(s4d("evaluate", run, "--json")[0])
    new_files = sorted(made.new.iterdir()) if made.new.is_dir() else [made.new]
    lines = objects(s4d("predict", run, made.new, "--json")[0])
    facts = {
        "set": own.name,
        "form": own.form,
        "command": " ".join(["s4d train", made.train.name, *made.of_data, *made.flags]),
        "metric": metric,
        "test": summary["test"][metric],
        "interval": (summary.get("test_intervals") or {}).get(metric),
        "evaluate agrees": abs(scores["scores"][metric] - summary["test"][metric]) < 1e-6,
        "new": predicted(lines, made.truth),
        "new cases": len(made.truth),
        "new files": len(new_files),
        "seconds": round(seconds, 1),
        "epochs": json.loads((run / "run.json").read_text())["training"]["epochs"],
        "warnings": warned,
    }
    if made.stream is not None:
        facts["stream"] = streamed(run, made, lines)
    s4d("export", run, "--json")
    facts["exported"] = (run / "export-onnx").is_dir()
    return facts


def streamed(run: Path, made: Made, lines: Sequence[dict[str, Any]]) -> bool:
    """Whether a stream ends with the answer that predict gave for the same case."""
    text = "\n".join(" ".join(f"{x:.9g}" for x in row) for row in np.atleast_2d(made.stream))
    answers = [
        x for x in objects(s4d("stream", run, "--json", input=text + "\n")[0]) if "class" in x
    ]
    return bool(abs(answers[-1]["probability"] - lines[0]["probability"]) < 1e-4)


# ---- the table ---------------------------------------------------------------------------------


def table(facts: Sequence[dict[str, Any]]) -> str:
    rows = ["| set | files | test | new cases | epochs | seconds | stream | warnings |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for one in facts:
        if "failed" in one:
            rows.append(f"| {one['set']} | {one['form']} | {one['failed']} | | | | | |")
            continue
        number = one["metric"] in ("rmse", "mae")
        show = (lambda x: f"{x:.3g}") if number else (lambda x: f"{100 * x:.1f} %")
        between = "" if not one["interval"] else " ({} to {})".format(*map(show, one["interval"]))
        stream = {True: "the same", False: "DIFFERS", None: ""}[one.get("stream")]
        new = f"{'error ' if number else ''}{show(one['new'])} of {one['new cases']}"
        rows.append(
            f"| {one['set']} | {one['form']} | {one['metric']} {show(one['test'])}{between} | "
            f"{new} | {one['epochs']} | "
            f"{one['seconds']} | {stream} | {'; '.join(one['warnings'])} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help=f"of {', '.join(own.name for own in SETS)}")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("own-data"))
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    chosen = [own for own in SETS if own.name in (options.sets or [own.name])]
    facts: list[dict[str, Any]] = []
    for own in chosen:
        print(f"{own.name}: {own.form}", file=sys.stderr, flush=True)
        place = options.out / own.name
        if place.exists():
            parser.error(f"{place} is there already; remove it, or name another --out")
        try:
            facts.append(take_through(own, options.data_dir, place))
        except (FailedError, OSError, LookupError) as error:
            facts.append({"set": own.name, "form": own.form, "failed": str(error)})
        print(json.dumps(facts[-1]), file=sys.stderr, flush=True)
    (options.out / "own-data.json").write_text(json.dumps(facts, indent=1) + "\n")
    (options.out / "own-data.md").write_text(table(facts) + "\n")
    print(table(facts))
    return int(any("failed" in one or not one["evaluate agrees"] for one in facts))


if __name__ == "__main__":
    sys.exit(main())
