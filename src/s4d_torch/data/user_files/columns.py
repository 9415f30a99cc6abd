"""Columns by their names: which is what, and where those that a run was trained on stand now."""

import re
from collections.abc import Sequence

from s4d_torch.data.missing_values import number_of

USUAL_NAMES = {
    "case": ("id", "case", "series", "case_id", "series_id", "sequence"),
    "time": ("time", "t", "timestamp", "date"),
    "target": ("target", "label", "class", "y"),
}
NUMBERED = re.compile(r"(\D*)(\d+(?:\.\d+)?)(\D*)")  # t0, V12, step 3, 400nm
FEWEST_STEPS = 8  # numbered columns that are taken as time by themselves
SHOWN = 20


def usual_column(part: str, header: Sequence[str]) -> str | None:
    """The column that is likely the case, the time or the target."""
    small = [name.lower() for name in header]
    found = next((name for name in USUAL_NAMES[part] if name in small), None)
    return None if found is None else header[small.index(found)]


def order_of(found: Sequence[str], expected: Sequence[str], where: str) -> list[int]:
    """Where each column that a run reads stands among those found; they have to be the same."""
    missing = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected]
    twice = [name for name in dict.fromkeys(found) if list(found).count(name) > 1]
    if missing or more or twice:
        parts = {"is missing": missing, "is none of its columns": more, "is there twice": twice}
        what = "; ".join(f"{shown(names)} {how}" for how, names in parts.items() if names)
        raise ValueError(
            f"{where} does not have the columns of the run: {what}. The run reads "
            f"{shown(expected)}; here are {shown(found)}. Rename them, or leave out what the run "
            "does not read"
        )
    return [list(found).index(name) for name in expected]


def step_order(names: Sequence[str]) -> list[int] | None:
    """The order of columns that are steps in time by the numbers in their names.

    None if these are not all of one kind, as ``t0, t1, t2``, or stand for one step twice.
    """
    numbers = [number for name in names if (number := number_of(name)) is not None]
    if len(numbers) < len(names):
        matches = [match for name in names if (match := NUMBERED.fullmatch(name))]
        numbers = [float(match[2]) for match in matches]
        if len({(match[1], match[3]) for match in matches}) != 1:
            return None
    if len(set(numbers)) < len(names):
        return None
    return sorted(range(len(names)), key=numbers.__getitem__)


def are_steps(names: Sequence[str]) -> bool:
    """Whether columns look like the time steps of a wide table."""
    return len(names) >= FEWEST_STEPS and step_order(names) is not None


def shown(names: Sequence[str]) -> str:
    """Names in a message, as many as one reads."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more
