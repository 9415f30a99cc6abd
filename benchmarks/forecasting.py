"""S4DForecaster on ETTh1 and ETTh2 beside a linear model and seasonal naive, in one run.

    python benchmarks/forecasting.py DATA --out results.json

DATA is the folder that holds ETTh1.csv and ETTh2.csv. The customary split: 12 months to learn from,
4 to choose with, 4 to test; columns standardised with the mean and deviation of training; errors
over all columns, steps and windows of the test months, at stride 1, none of them dropped. Nothing
is chosen by the test months: options are the defaults of S4DForecaster, and the fit sees the first
16 months. Results are kept as they come, and what is there already is not measured again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s4d_torch import S4DForecaster, __version__
from s4d_torch.data.tasks.ett import COLUMNS, ENDS, read_transformer
from s4d_torch.estimators.forecasting import seasonal_naive

SETS = ("ETTh1", "ETTh2")
HORIZONS = (96, 192, 336, 720)
DAY = 24
KEEP = "s4d", "linear", "seasonal naive"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder with ETTh1.csv and ETTh2.csv")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--horizons", nargs="+", type=int, default=HORIZONS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--univariate", action="store_true", help="the column OT alone")
    parser.add_argument("--out", type=Path, default=Path("forecasting.json"))
    chosen = parser.parse_args()
    results = json.loads(chosen.out.read_text()) if chosen.out.is_file() else []
    for name in chosen.sets:
        for horizon in chosen.horizons:
            for method, seed in [*(("s4d", s) for s in chosen.seeds), *((m, 0) for m in KEEP[1:])]:
                case = {"set": name, "horizon": horizon, "univariate": chosen.univariate}
                case |= {"method": method, "seed": seed}
                if any(case.items() <= row.items() for row in results):
                    continue
                results.append(case | measure(chosen.data / f"{name}.csv", **case))
                chosen.out.write_text(json.dumps(results, indent=1) + "\n")
                print(json.dumps(results[-1]), flush=True)
    print(table(results))


def measure(path: Path, horizon: int, univariate: bool, method: str, seed: int, **_: Any) -> Any:
    """Errors on the test months, coverage of 90 % intervals, and seconds."""
    times, values = read_transformer(path)
    columns = [len(COLUMNS) - 1] if univariate else list(range(len(COLUMNS)))
    learned = values[: ENDS[0]]
    y = ((values - learned.mean(0)) / learned.std(0))[:, columns]
    began = time.perf_counter()
    if method == "seasonal naive":
        places = np.arange(ENDS[1], ENDS[2] - horizon + 1)
        found = seasonal_naive(y, places, horizon, DAY)
        came = np.lib.stride_tricks.sliding_window_view(y, horizon, axis=0)[places].swapaxes(1, 2)
        return {
            "mse": float(np.square(found - came).mean()),
            "mae": float(np.abs(found - came).mean()),
        }
    share = 1 - ENDS[0] / ENDS[1]  # the 4 months of 16 that validate
    model = S4DForecaster(
        horizon=horizon,
        validation_fraction=share,
        epochs=0 if method == "linear" else None,
        random_state=seed,
        n_jobs=1,
    )
    model.fit(y[: ENDS[1]], times=times[: ENDS[1]])
    fitted = time.perf_counter() - began
    first = ENDS[1] - model.window_
    test = model.backtest(y[first:], times=times[first:])
    assert len(test.origins) == ENDS[2] - ENDS[1] - horizon + 1
    return {
        "mse": test.mse,
        "mae": test.mae,
        "coverage": test.coverage(0.9),
        "window": model.window_,
        "center": model.model_.center,
        "branch_share": model.branch_share_,
        "validation_mse": [row["validation_mse"] for row in model.history_],
        "fit_seconds": fitted,
        "test_seconds": test.seconds,
        "versions": f"s4d-torch {__version__}, torch {torch.__version__}",
    }


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: a row for each set, setting and horizon; means over seeds."""
    lines = [
        "| set | horizon | S4DForecaster MSE / MAE | linear MSE / MAE | seasonal naive MSE / MAE "
        "| 90 % interval covers | seconds to fit |",
        "|---|---|---|---|---|---|---|",
    ]
    cases = dict.fromkeys((row["set"], row["univariate"], row["horizon"]) for row in results)
    for name, univariate, horizon in cases:
        here = [
            row
            for row in results
            if (row["set"], row["univariate"], row["horizon"]) == (name, univariate, horizon)
        ]
        cells = [f"{name}, OT alone" if univariate else name, str(horizon)]
        for method in KEEP:
            rows = [row for row in here if row["method"] == method]
            pair = [float(np.mean([row[key] for row in rows])) for key in ("mse", "mae")]
            cells.append(" / ".join(f"{x:.3f}" for x in pair))
        own = [row for row in here if row["method"] == "s4d"]
        cells.append(f"{100 * np.mean([row['coverage'] for row in own]):.1f} %")
        cells.append(f"{np.mean([row['fit_seconds'] for row in own]):.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
