"""The estimators with their defaults beside others, on problems of the UCR, UEA and TSER archives.

    OMP_NUM_THREADS=1 python benchmarks/estimators.py --data-dir data GunPoint Coffee

trains each on the official training cases and tests it on the official test cases: accuracy, or the
root mean squared error of a regression, and the processor's seconds for fit and predict, of each
the mean over ``--seeds``. Needs aeon for MiniRocket; without it that column is empty. The trained
estimators (S4D) take minutes on long series: without ``--only`` they run where they are named in
``TRAINED``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
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
# the trained estimators take minutes on many of them
TRAINED = [*PROBLEMS[:9], *PROBLEMS[-2:]]
NAMES = ["ridge", "1-NN", "MiniRocket", "S4D features", "causal", "S4D"]
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
    seeds: list[int],
    only: list[str],
    resample: int | None = None,
) -> dict[str, Any]:
    """What each contender reaches on one problem, and in how many seconds."""
    dataset = load_ucr(UcrOptions(problem=problem, missing="interpolate"), folder)
    regression = dataset.signature.kind == "regression"
    (X, y), (X_test, y_test) = (
        (cases(split.inputs[0]), np.asarray(split.targets))
        for split in (dataset.train, dataset.test)
    )
    if resample is not None:
        X, X_test, y, y_test = split_anew(X + X_test, np.concatenate([y, y_test]), len(X), resample)
    longest = max(case.shape[1] for case in X)
    row: dict[str, Any] = {
        "problem": problem,
        "kind": dataset.signature.kind,
        "train": len(X),
        "test": len(X_test),
        "channels": X[0].shape[0],
        "length": longest,
        "results": {},
    }
    for name in contenders(regression, 0):
        if name not in only if only else name == "S4D" and problem not in TRAINED:
            continue
        ragged = name in ("S4D features", "causal", "S4D")
        scores, times = [], []
        for seed in seeds:
            make = contenders(regression, seed)[name]
            warm_up(make(), X[0].shape[0], regression=regression)
            began = time.process_time()
            model = make().fit(X if ragged else padded(X, longest), y)
            found = model.predict(X_test if ragged else padded(X_test, longest))
            times.append(time.process_time() - began)
            wrong = np.sqrt(np.mean((found - y_test) ** 2)) if regression else None
            scores.append(float(np.mean(found == y_test)) if wrong is None else float(wrong))
        score, seconds = float(np.mean(scores)), float(np.mean(times))
        row["results"][name] = {"score": score, "scores": scores, "seconds": round(seconds, 3)}
        print(f"{problem}: {name} {score:.4g} in {seconds:.2f} s", flush=True)
    return row


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--resample", type=int, help="split all cases anew by this seed, instead of officially"
    )
    parser.add_argument("--only", nargs="*", default=[], help=f"contenders: {NAMES}")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/estimators.json"),
        help="results, to which those of this run are added",
    )  # fmt: skip
    options = parser.parse_args()
    known = json.loads(options.out.read_text("utf-8")) if options.out.is_file() else {}
    for problem in options.problems:
        row = measure(
            problem, DataFolder(options.data_dir), options.seeds, options.only, options.resample
        )
        before = known.get(problem, {}).get("results", {})
        known[problem] = {**row, "results": {**before, **row["results"]}}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    print(markdown(list(known.values())))


if __name__ == "__main__":
    main()
