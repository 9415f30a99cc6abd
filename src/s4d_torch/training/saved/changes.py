"""What may change in a run that has begun: more epochs and, after a divergence, the optimiser."""

from collections.abc import Mapping
from typing import Any

from s4d_torch.training.config import changed_options

# Without these the steps that are done would not be those of the same run: its data came in
# another order.
FIXED = ("optimizer.accumulate",)
AFTER_DIVERGENCE = ("optimizer.", "training.skip_bad_batches")


def sort_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], *, diverged: bool
) -> tuple[list[str], list[str]]:
    """The differences of two configs in JSON, as text: those a run goes on with, and the others.

    Epochs can be raised; ``"auto"`` is as many as the run has.
    """
    taken: list[str] = []
    refused: list[str] = []
    for name, (before, after) in changed_options(old, new).items():
        if name == "training.epochs" and after == "auto":
            continue
        told = f"{name}: {before!r} -> {after!r}"
        if name == "training.epochs":
            fits = isinstance(before, int) and isinstance(after, int) and after > before
            told += "" if fits else " (epochs can be raised, not lowered)"
        else:
            fits = diverged and name.startswith(AFTER_DIVERGENCE) and name not in FIXED
        (taken if fits else refused).append(told)
    return taken, refused
