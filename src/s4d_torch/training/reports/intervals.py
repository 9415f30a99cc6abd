"""How far a score of few cases may be from that of many: intervals of 95 %.

Cases of one group (a patient, a speaker, a machine) are right or wrong together. Where groups are
known, how few they are is what counts, and they are what is drawn anew.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array
from s4d_torch.training.metrics import METRICS, log_odds

FEW = 1000  # cases or groups; of more, chance hardly matters beside the choice of the data
MOST = 20_000  # cases in groups; drawing more would take longer than it is worth
RESAMPLES = 400
Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations
Interval = tuple[float, float]


def wilson(right: int, cases: int) -> Interval:
    """Wilson's interval of a proportion, which stays within 0 and 1 and is never empty."""
    share, spread = right / cases, Z**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * share * (1 - share) + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(
    outputs: Tensor, targets: Tensor, name: str, groups: Array | None = None
) -> Interval | None:
    """Between 2.5 and 97.5 % of the scores of cases drawn anew; always the same draws.

    With ``groups`` (n,), numbers from 0 on, all cases of a group are drawn together.
    None where they do not vary, as those of predictions that are all right: then nothing is known.
    """
    times = _draws(np.arange(len(targets)) if groups is None else groups)
    if name == "auroc":  # the one that sorts: all draws at once, for it would take seconds
        scores = auroc_of_draws(outputs, targets, times)
    else:
        metric, threads, each = METRICS[name], torch.get_num_threads(), np.arange(len(targets))
        rows = (torch.from_numpy(np.repeat(each, count)) for count in times)
        torch.set_num_threads(1)  # so little at a time that threads would wait for each other
        try:
            scores = np.array([metric.score(outputs[index], targets[index]) for index in rows])
        finally:
            torch.set_num_threads(threads)
    if not np.isfinite(scores).any() or np.nanmin(scores) == np.nanmax(scores):
        return None
    low, high = np.nanquantile(scores, (0.025, 0.975))
    return float(low), float(high)


def _draws(groups: Array) -> Array:
    """How often each case is drawn, (draws, n): as often as its group, of as many as there are."""
    random, count = np.random.Generator(np.random.PCG64(0)), int(groups.max()) + 1
    drawn = random.integers(count, size=(RESAMPLES, count))
    times = np.zeros(drawn.shape, dtype=np.int32)
    np.add.at(times, (np.arange(len(drawn))[:, None], drawn), 1)
    return times[:, groups]


def auroc_of_draws(outputs: Tensor, targets: Tensor, times: Array) -> Array:
    """The metric ``auroc`` of each row of ``times`` (draws, n), how often each case was drawn."""
    classes, count = targets.numpy(), outputs.shape[-1]
    areas = []
    for k in range(count) if count > 2 else (1,):
        odds = log_odds(outputs.double(), k).numpy()
        order = np.argsort(odds, kind="stable")
        begins = np.flatnonzero(np.diff(odds[order], prepend=-np.inf))  # of runs of equal odds
        ups, downs = (
            np.add.reduceat((times * chosen).astype(float)[:, order], begins, axis=1)
            for chosen in (classes == k, classes != k)
        )
        below = np.cumsum(downs, axis=1) - downs / 2  # equal odds count half
        pairs = ups.sum(1) * downs.sum(1)
        with np.errstate(invalid="ignore"):
            areas.append((ups * below).sum(1) / pairs)  # NaN where a class was not drawn
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of no area at all
        return np.asarray(np.nanmean(areas, axis=0))


def score_intervals(
    outputs: Tensor, targets: Tensor, metrics: list[str], groups: Array | None = None
) -> dict[str, Interval]:
    """The interval of each score; none of many cases, or of predictions that are no numbers.

    ``groups`` (n,) name what cases come from, where that is known.
    """
    cases, found = len(targets), {}
    if groups is not None:
        groups = np.unique(groups, return_inverse=True)[1]
    draws = cases if groups is None else int(groups.max()) + 1
    if not 1 < draws <= FEW or cases > MOST or outputs.isnan().any():
        return {}
    for name in metrics:
        if name == "accuracy" and draws == cases:
            found[name] = wilson(int((outputs.argmax(-1) == targets).sum()), cases)
        elif (interval := bootstrap(outputs, targets, name, groups)) is not None:
            found[name] = interval
    return found


def show_score(name: str, summary: Mapping[str, Any]) -> str:
    """``97.92% (88.9 to 99.6 on 48 cases)`` of a run's test; without an interval, the value alone.

    ``summary`` is that of the run; of grouped cases it says how many groups there are.
    """
    shown = METRICS[name].show(summary["test"][name])
    interval = (summary.get("test_intervals") or {}).get(name)
    if interval is None:
        return shown
    groups = summary.get("test_groups")
    of = f" of {groups} groups" if groups else ""
    return f"{shown} ({show_interval(name, interval)} on {summary.get('test_cases', 0)} cases{of})"


def show_interval(name: str, interval: Interval | None) -> str:
    """``88.9 to 99.6``, in the unit in which the score is shown."""
    if interval is None:
        return ""
    metric = METRICS[name]
    per_cent = metric.kind == "classification" and not metric.format
    low, high = (f"{100 * x:.1f}" if per_cent else metric.show(x) for x in interval)
    return f"{low} to {high}"
