"""What was measured, to be read: numbers as text, grids of them, and tables for a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from s4d_torch.bench.contenders import ABSENT, OURS
from s4d_torch.bench.goals import TargetResult
from s4d_torch.bench.measure import Case, Measurement
from s4d_torch.bench.models import COMPILED, STREAM
from s4d_torch.bench.works import WORKS

OWN = (OURS, f"{OURS} S4", STREAM, COMPILED)
TARGET_COLUMNS = ("work", "measured", "bar", "aim", "met")
MET = {"aim": "yes, and the aim", "yes": "yes", "no": "no", "not measured": "not measured"}
STYLES = {"aim": "bold green", "yes": "green", "no": "red", "not measured": "dim"}


# -- numbers as text -------------------------------------------------------------------------------


def show_time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds * 1e3 >= 1 else f"{seconds * 1e6:.3g} us"


def show_bytes(size: int) -> str:
    return f"{size / 2**20:.3g} MB" if size < 1000 * 2**20 else f"{size / 2**30:.3g} GB"


def show_threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def show_record(record: Measurement) -> str:
    """Time and memory, or why there is neither; the first call where it took much longer."""
    parts = []
    if record.seconds is not None:
        parts.append(f"{show_time(record.seconds)} (best of {record.runs})")
        if record.first is not None and record.first > 3 * record.seconds + 0.5:
            parts.append(f"first call {show_time(record.first)}")
    if record.bytes is not None:
        parts.append(show_bytes(record.bytes))
    return ", ".join(parts) or record.note or "-"


def target_row(target: TargetResult) -> list[str]:
    """What was measured, the bar and the aim."""
    bound = "<= " if target.at_most else ">= "
    values = [("", target.measured), (bound, target.bar), (bound, target.aim)]
    return [f"{sign}{x:.3g}{target.unit}" if x is not None else "-" for sign, x in values]


# -- grids -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatioTable:
    """A table before it is drawn: contenders down, lengths or shapes across."""

    title: str
    columns: list[str]
    rows: list[list[tuple[str, str]]]  # name first; then a value and what it is beside ours


def absentees(records: Sequence[Measurement]) -> list[str]:
    """Packages that were there in no run, once each."""
    present = {r.contender for r in records if not _absent(r)}
    notes = {r.contender: r.note for r in records[::-1] if _absent(r)}
    return list(dict.fromkeys(f"{note}." for name, note in notes.items() if name not in present))


def _absent(record: Measurement) -> bool:
    return any(words in record.note for words in ABSENT)


def grids(records: Sequence[Measurement]) -> list[RatioTable]:
    """One grid for each title, in the order of the works; absent packages have no row."""
    works = list(WORKS)
    together: dict[str, list[Measurement]] = {}
    for record in sorted(records, key=lambda r: works.index(r.work)):
        if not _absent(record):
            together.setdefault(_title(record), []).append(record)
    return [_grid(title, some) for title, some in together.items()]


def _title(record: Measurement) -> str:
    """What all numbers of a grid have in common; a whole model's shape is its column."""
    work, case = record.work, record.case
    parts = [WORKS[work].title]
    if case.way not in parts[0]:
        parts.append(case.way)
    if case.batch and work != "train":
        parts.append(f"batch {case.batch}")
    if case.threads and case.length:
        parts.append(show_threads(case.threads))
    return ", ".join(parts)


def _column(record: Measurement) -> str:
    case = record.case
    if record.work == "train":
        shape = f"{case.layers} x {case.d_model} x {case.d_state}"
        return f"{shape}, batch {case.batch}, L={case.length}"
    return f"L={case.length}" if case.length > 1 else ""


def _grid(title: str, records: list[Measurement]) -> RatioTable:
    columns = list(dict.fromkeys(_column(r) for r in records))
    names = list(dict.fromkeys(r.contender for r in records))
    cells = {(r.contender, _column(r)): r for r in records}
    ours = {
        column: next((r for n in names if n in OWN and (r := cells.get((n, column)))), None)
        for column in columns
    }
    rows = [
        [(name, ""), *(_cell(cells.get((name, column)), ours[column]) for column in columns)]
        for name in names
    ]
    return RatioTable(title, columns, rows)


def _cell(record: Measurement | None, ours: Measurement | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    pairs = []
    for show, own in ((show_time, "seconds"), (show_bytes, "bytes")):
        value = getattr(record, own)
        if value is not None:
            reference = getattr(ours, own) if ours is not None and ours is not record else None
            ratio = f"{value / reference:.3g}x" if reference else ""
            pairs.append((show(value), ratio))
    if not pairs:
        return record.note or "-", ""
    return ", ".join(value for value, _ in pairs), ", ".join(ratio for _, ratio in pairs if ratio)


# -- in a terminal ---------------------------------------------------------------------------------


def rich_tables(records: Sequence[Measurement], notes: Sequence[str]) -> Iterable[Text | Table]:
    for grid in grids(records):
        yield Text(grid.title, style="bold")  # a title of the table would wrap at its width
        table = _table("")
        for column in grid.columns:
            table.add_column(column, justify="right")
        for (name, _), *cells in grid.rows:
            values = ["\n".join(part for part in cell if part) for cell in cells]
            table.add_row(name, *values, style="bold" if name == OURS else "")
        yield table
    for line in (*absentees(records), *notes):
        yield Text(line, style="dim")


def targets_table(targets: Sequence[TargetResult]) -> Table:
    table = _table(*TARGET_COLUMNS)
    for target in targets:
        worst = f"\n[dim]{target.where}[/dim]" if target.where.startswith("worst") else ""
        met = f"[{STYLES[target.met]}]{MET[target.met]}[/]"
        table.add_row(f"{target.name}{worst}", *target_row(target), met)
    return table


def _table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE, padding=(0, 1, 0, 0))


def race_lines(race: Sequence[Measurement]) -> list[str]:
    """A race as it is told at once: where it was run, then each entrant."""
    cases = [each.case for each in race]
    varies = [name for name in ("length", "threads") if len({getattr(c, name) for c in cases}) > 1]

    def name(each: Measurement) -> str:
        words = {"length": f"L={each.case.length}", "threads": show_threads(each.case.threads)}
        return ", ".join([each.contender, *(words[which] for which in varies)])

    place = _place(cases[0]) if "length" not in varies else f"batch {cases[0].batch}"
    head = f"{race[0].work} {cases[0].way} {place}".rstrip()
    return [head, *(f"  {name(each)}: {show_record(each)}" for each in race)]


def _place(case: Case) -> str:
    if not case.length:
        return ""
    shape = f"{case.layers} x " if case.layers > 1 else ""
    return f"{shape}{case.d_model} x {case.d_state}, batch {case.batch}, L={case.length}"
