"""The estimators with their defaults beside others, on problems of the UCR, UEA and TSER archives.

    OMP_NUM_THREADS=1 python benchmarks/estimators.py --data-dir data GunPoint Coffee

trains each once on the official training cases and tests it on the official test cases: accuracy,
or the root mean squared error of a regression, and the processor's seconds for fit and predict.
Needs aeon for MiniRocket; without it that column is empty.
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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from s4d_torch.data import DataFolder, load_ucr
from s4d_torch.data.dataset import Sequences
from s4d_torch.data.user_files.ucr import UcrOptions
from s4d_torch.estimators import S4DClassifier, S4DRegressor

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
    "Tecator",
    "Covid3Month",
]
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
    ours = S4DRegressor if regression else S4DClassifier
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
    name = ours.__name__
    found[name] = lambda: ours(random_state=seed, n_jobs=1)
    return found


def measure(problem: str, folder: DataFolder, seed: int, only: list[str]) -> dict[str, Any]:
    """What each contender reaches on one problem, and in how many seconds."""
    dataset = load_ucr(UcrOptions(problem=problem, missing="interpolate"), folder)
    regression = dataset.signature.kind == "regression"
    (X, y), (X_test, y_test) = (
        (cases(split.inputs[0]), np.asarray(split.targets))
        for split in (dataset.train, dataset.test)
    )
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
    for name, make in contenders(regression, seed).items():
        if only and name not in only:
            continue
        whole = name.startswith("S4D")
        warm_up(make(), X[0].shape[0], whole=whole, regression=regression)
        began = time.process_time()
        model = make().fit(X if whole else padded(X, longest), y)
        found = model.predict(X_test if whole else padded(X_test, longest))
        seconds = time.process_time() - began
        score = np.sqrt(np.mean((found - y_test) ** 2)) if regression else np.mean(found == y_test)
        row["results"][name] = {"score": float(score), "seconds": round(seconds, 2)}
        print(f"{problem}: {name} {score:.4g} in {seconds:.1f} s", flush=True)
    return row


def warm_up(model: Any, channels: int, *, whole: bool, regression: bool) -> None:
    """Whatever has to be compiled, is, before the clock starts."""
    if whole:
        model.set_params(epochs=1)
    waves = np.random.default_rng(0).normal(size=(12, channels, 40))
    targets = waves[:, 0, 0] if regression else np.arange(12) % 2
    model.fit(waves, targets).predict(waves)


def cases(sequences: Sequences) -> list[Any]:
    """(channels, time) of all stored cases, those that the task itself would validate with too."""
    return [np.asarray(sequences[i]).T for i in range(len(sequences))]


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table: scores, with the seconds in brackets; the best of a row in bold."""
    names = ["ridge", "1-NN", "MiniRocket", "S4D"]
    lines = [
        f"| problem | train, test | channels × length | {' | '.join(names)} |",
        f"|---|---|---|{'---:|' * len(names)}",
    ]
    for row in rows:
        regression = row["kind"] == "regression"
        results = {("S4D" if k.startswith("S4D") else k): v for k, v in row["results"].items()}
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
            shown.append(f"{text} ({seconds:.1f} s)" if seconds >= 0.05 else f"{text} (0.0 s)")
        about = f"{row['train']}, {row['test']} | {row['channels']} × {row['length']}"
        label = row["problem"] + (" (RMSE)" if regression else "")
        lines.append(f"| {label} | {about} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="contenders to measure")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/estimators.json"),
        help="results, to which those of this run are added",
    )  # fmt: skip
    options = parser.parse_args()
    known = json.loads(options.out.read_text("utf-8")) if options.out.is_file() else {}
    for problem in options.problems:
        row = measure(problem, DataFolder(options.data_dir), options.seed, options.only)
        before = known.get(problem, {}).get("results", {})
        known[problem] = {**row, "results": {**before, **row["results"]}}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    print(markdown(list(known.values())))


if __name__ == "__main__":
    main()
