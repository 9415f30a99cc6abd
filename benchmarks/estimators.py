"""The estimators with their defaults beside others, on problems of the UCR, UEA and TSER archives.

    OMP_NUM_THREADS=1 python benchmarks/estimators.py --data-dir data GunPoint Coffee

trains each on the official training cases and tests it on the official test cases: accuracy, or the
root mean squared error of a regression, and the processor's seconds for fit and predict, of each
the mean over ``--seeds``. What was measured is kept in ``--out``, a file for each problem and seed,
and not measured again: several processes can share the work. Needs aeon for MiniRocket; without it
that column is empty. ``--picture FILE`` draws mean accuracy against seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from s4d_torch.data import DataFolder, load_ucr
from s4d_torch.data.dataset import Sequences
from s4d_torch.data.user_files.ucr import UcrOptions
from s4d_torch.estimators import (
    S4DClassifier,
    S4DFeatureClassifier,
    S4DFeatureRegressor,
    S4DRegressor,
)

PROBLEMS = [
    "ItalyPowerDemand",
    "GunPoint",
    "Coffee",
    "ArrowHead",
    "BasicMotions",
    "PickupGestureWiimoteZ",
    "JapaneseVowels",
    "OSULeaf",
    "ACSF1",
    "PLAID",
    "PigCVP",
    "BME",
    "Beef",
    "Car",
    "CricketX",
    "Earthquakes",
    "FiftyWords",
    "Fish",
    "Ham",
    "TwoLeadECG",
    "UMD",
    "Wine",
    "WordSynonyms",
    "Worms",
    "Tecator",
    "Covid3Month",
]
NAMES = ["ridge", "1-NN", "MiniRocket", "S4D features", "causal", "S4D", "ensemble"]
RAGGED = ("S4D features", "causal", "S4D")  # read series of any lengths
ALPHAS = np.logspace(-3, 3, 10)


def padded(cases: list[Any], length: int) -> Any:
    """For those that want one length: zeros after the ends, (cases, channels, length)."""
    whole = np.zeros((len(cases), cases[0].shape[0], length))
    for row, case in zip(whole, cases, strict=True):
        kept = case[:, :length]
        row[:, : kept.shape[1]] = kept
    return whole


def flat(X: Any) -> Any:
    return X.reshape(len(X), -1)


def contenders(regression: bool, seed: int) -> dict[str, Callable[[], Any]]:
    ridge = RidgeCV(ALPHAS) if regression else RidgeClassifierCV(ALPHAS)
    neighbour = KNeighborsRegressor(1) if regression else KNeighborsClassifier(1)
    trained = S4DRegressor if regression else S4DClassifier
    features = S4DFeatureRegressor if regression else S4DFeatureClassifier
    found: dict[str, Callable[[], Any]] = {
        "ridge": lambda: make_pipeline(FunctionTransformer(flat), StandardScaler(), ridge),
        "1-NN": lambda: make_pipeline(FunctionTransformer(flat), neighbour),
    }
    try:
        from aeon.classification.convolution_based import MiniRocketClassifier
        from aeon.regression.convolution_based import MiniRocketRegressor
    except ImportError:
        print("aeon is not installed: no MiniRocket")
    else:
        rocket = MiniRocketRegressor if regression else MiniRocketClassifier
        found["MiniRocket"] = lambda: rocket(random_state=seed)
    ours = {"random_state": seed, "n_jobs": 1}
    found["S4D features"] = lambda: features(**ours)
    found["causal"] = lambda: features(**ours, direction="causal")
    found["S4D"] = lambda: trained(**ours)
    return found


def measure(
    problem: str,
    folder: DataFolder,
    seed: int,
    only: list[str],
    resample: int | None = None,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What each contender reaches on one problem with one seed, and in how many seconds."""
    dataset = load_ucr(UcrOptions(problem=problem, missing="interpolate"), folder)
    regression = dataset.signature.kind == "regression"
    (X, y), (X_test, y_test) = (
        (cases(split.inputs[0]), np.asarray(split.targets))
        for split in (dataset.train, dataset.test)
    )
    if resample is not None:
        X, X_test, y, y_test = split_anew(X + X_test, np.concatenate([y, y_test]), len(X), resample)
    longest = max(case.shape[1] for case in X)
    results = dict((known or {}).get("results", {}))
    answers: dict[str, Any] = {}
    for name, make in contenders(regression, seed).items():
        # an ensemble needs the answers of its halves
        halves = {"S4D", "S4D features"} if "ensemble" in only and "ensemble" not in results else {}
        if (only and name not in {*only, *halves}) or (name in results and name not in halves):
            continue
        warm_up(make(), X[0].shape[0], regression=regression)
        began = time.process_time()
        model = make().fit(X if name in RAGGED else padded(X, longest), y)
        answers[name] = answered(model, X_test if name in RAGGED else padded(X_test, longest))
        results[name] = judged(answers[name], y_test, regression, time.process_time() - began)
    if {"S4D", "S4D features"} <= answers.keys() and (not only or "ensemble" in only):
        # what ensemble=True gives with the same seed, as a test of the package holds
        mean = (answers["S4D"] + answers["S4D features"]) / 2
        seconds = results["S4D"]["seconds"] + results["S4D features"]["seconds"]
        results["ensemble"] = judged(mean, y_test, regression, seconds)
    for name, found in results.items():
        print(f"{problem}, seed {seed}: {name} {found['score']:.4g} in {found['seconds']:.2f} s")
    return {
        "problem": problem,
        "kind": dataset.signature.kind,
        "train": len(X),
        "test": len(X_test),
        "channels": X[0].shape[0],
        "length": longest,
        "seed": seed,
        "results": results,
    }


def answered(model: Any, X: Any) -> Any:
    """Probabilities where there are any, else classes or numbers."""
    if not isinstance(model, S4DClassifier | S4DFeatureClassifier):
        return model.predict(X)
    assert (model.classes_ == np.arange(len(model.classes_))).all()
    return model.predict_proba(X)


def judged(answer: Any, y_test: Any, regression: bool, seconds: float) -> dict[str, Any]:
    """Classes are numbers from 0 on: the place of a probability is its class."""
    if regression:
        score = np.sqrt(np.mean((answer - y_test) ** 2))
    else:
        found = answer.argmax(1) if answer.ndim == 2 else answer
        score = np.mean(found == y_test)
    return {"score": float(score), "seconds": round(seconds, 3), "commit": commit()}


@cache
def commit() -> str:
    """Which source was measured."""
    told = [
        subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "-uno", "src"))
    ]
    return told[0] + (" and changes" if told[1] else "")


def split_anew(X: list[Any], y: Any, train: int, seed: int) -> Any:
    """Other training cases, as many of each class as the part of all that they were."""
    classes = y if y.dtype.kind in "iu" else None
    return train_test_split(X, y, train_size=train, stratify=classes, random_state=seed)


def warm_up(model: Any, channels: int, *, regression: bool) -> None:
    """Whatever has to be compiled, is, before the clock starts."""
    if "epochs" in model.get_params():
        model.set_params(epochs=1)
    waves = np.random.default_rng(0).normal(size=(12, channels, 40))
    targets = waves[:, 0, 0] if regression else np.arange(12) % 2
    model.fit(waves, targets).predict(waves)


def cases(sequences: Sequences) -> list[Any]:
    """(channels, time) of all stored cases, those that the task itself would validate with too."""
    return [np.asarray(sequences[i]).T for i in range(len(sequences))]


def together(folder: Path, problems: list[str], seeds: list[int]) -> list[dict[str, Any]]:
    """A row for each problem: the means over the seeds that all contenders of a problem have."""
    rows = []
    for problem in problems:
        paths = [folder / f"{problem}-{seed}.json" for seed in seeds]
        if not all(path.is_file() for path in paths):
            continue
        parts = [json.loads(path.read_text("utf-8")) for path in paths]
        names = set.intersection(*({*part["results"]} for part in parts))
        results = {
            name: {
                each: float(np.mean([part["results"][name][each] for part in parts]))
                for each in ("score", "seconds")
            }
            for name in NAMES
            if name in names
        }
        rows.append({**parts[0], "results": results})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table: scores, with the seconds in brackets; the best of a row in bold."""
    names = [name for name in NAMES if any(name in row["results"] for row in rows)]
    lines = [
        f"| problem | train, test | channels × length | {' | '.join(names)} |",
        f"|---|---|---|{'---:|' * len(names)}",
    ]
    for row in rows:
        regression = row["kind"] == "regression"
        results = row["results"]
        scores = [each["score"] for each in results.values()]
        best = min(scores) if regression else max(scores)
        shown = []
        for name in names:
            if name not in results:
                shown.append("")
                continue
            score, seconds = results[name]["score"], results[name]["seconds"]
            text = f"{score:.4g}" if regression else f"{100 * score:.1f}"
            text = f"**{text}**" if score == best else text
            shown.append(f"{text} ({seconds:.2f} s)")
        about = f"{row['train']}, {row['test']} | {row['channels']} × {row['length']}"
        label = row["problem"] + (" (RMSE)" if regression else "")
        lines.append(f"| {label} | {about} | {' | '.join(shown)} |")
    return "\n".join([*lines, summary(rows, names)])


def summary(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Mean accuracy over the classifications, and the seconds of all problems, where all ran."""
    shown = []
    for name in names:
        results = [row["results"].get(name) for row in rows]
        if None in results:
            shown.append("")
            continue
        pairs = zip(rows, results, strict=True)
        scores = [found["score"] for row, found in pairs if row["kind"] != "regression"]
        seconds = sum(found["seconds"] for found in results)
        shown.append(f"{100 * np.mean(scores):.2f} ({seconds:.1f} s)" if scores else "")
    return f"| mean accuracy, all seconds | | | {' | '.join(shown)} |"


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Mean accuracy over the classifications against all their seconds, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row["kind"] != "regression"]
    figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
    for name in NAMES:
        results = [row["results"].get(name) for row in rows]
        if None in results or name in ("ridge", "1-NN"):  # far below: they would squeeze the rest
            continue
        seconds = sum(found["seconds"] for found in results)
        accuracy = 100 * np.mean([found["score"] for found in results])
        ours = name != "MiniRocket"
        axes.plot(seconds, accuracy, "o" if ours else "s", color="C0" if ours else "C1", ms=8)
        axes.annotate(name, (seconds, accuracy), (7, 5), textcoords="offset points")
    axes.set(
        xscale="log",
        xlabel=f"processor seconds for fit and predict, {len(rows)} problems together",
        ylabel="mean accuracy, per cent",
    )
    axes.margins(0.2)
    axes.grid(alpha=0.3, which="both")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--resample", type=int, help="split all cases anew by this seed, instead of officially"
    )
    parser.add_argument("--only", nargs="*", default=[], help=f"contenders: {NAMES}")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/estimators"))
    parser.add_argument("--picture", type=Path, help="where to draw accuracy against seconds")
    options = parser.parse_args()
    folder = options.out if options.resample is None else options.out / str(options.resample)
    folder.mkdir(parents=True, exist_ok=True)
    data = DataFolder(options.data_dir)
    for problem, seed in itertools.product(options.problems, options.seeds):
        path = folder / f"{problem}-{seed}.json"
        known = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        wanted = {*(options.only or NAMES)}
        if not wanted <= known.get("results", {}).keys():
            row = measure(problem, data, seed, options.only, options.resample, known)
            path.write_text(json.dumps(row, indent=1) + "\n", "utf-8")
    rows = together(folder, options.problems, options.seeds)
    print(markdown(rows))
    if options.picture is not None:
        picture(rows, options.picture)


if __name__ == "__main__":
    main()
