"""What the curves of a finished run suggest for the next."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

FEWEST = 4  # rows, to tell a trend
NOTABLE = 0.02  # of the loss of the first epoch


def falling(losses: Sequence[float]) -> float:
    """How much lower the last quarter of a run is than the quarter before, on average.

    In units of the first epoch's loss. Quarters, as towards the end of a schedule the learning
    rate goes to zero and any loss is flat.
    """
    if len(losses) < FEWEST or not losses[0] > 0:
        return 0.0
    quarter = len(losses) // 4
    last, before = losses[-quarter:], losses[-2 * quarter : -quarter]
    return (fmean(before) - fmean(last)) / losses[0]


def advice(rows: Sequence[Mapping[str, Any]], folder: object | None = None) -> str | None:
    """A sentence if the training loss was still falling at the end of the run."""
    train, validation = (
        [float(row[name]) for row in rows] for name in ("train_loss", "validation_loss")
    )
    if not falling(train) > NOTABLE:
        return None
    quarter = len(train) // 4
    before, last = fmean(train[-2 * quarter : -quarter]), fmean(train[-quarter:])
    said = (
        f"the training loss was still falling: {before:.3g} in the third quarter of the epochs, "
        f"{last:.3g} in the last"
    )
    if falling(validation) < -NOTABLE:
        return f"{said}; the validation loss was rising, so more epochs may not help"
    there = "" if folder is None else f" --out {folder}"
    return f"{said}; the same command with{there} --epochs {2 * int(rows[-1]['epoch'])} trains on"
