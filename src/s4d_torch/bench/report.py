"""What was measured, to be read: tables for a terminal and for a page, and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from s4d_torch.bench import plot
from s4d_torch.bench.contenders import ABSENT, OURS
from s4d_torch.bench.goals import TargetResult, judge
from s4d_torch.bench.measure import Measurement
from s4d_torch.bench.models import COMPILED, STREAM

SCHEMA = 1
PICTURE = "performance.png"
BEGIN, END = "<!-- begin s4d bench -->", "<!-- end s4d bench -->"
TITLES = {
    "kernel": "kernel",
    "ssm": "state space",
    "sweep": "state space, kernel made anew, against an FFT with a kernel given",
    "layer": "layer",
    "dplr": "S4 (DPLR) layer",
    "train": "whole model",
    "step": "one sample through a whole model, 1 thread",
    "growth": "state space, growth with length",
    "memory": "state space, peak memory beyond inputs and parameters",
    "curve": "layer against length",
    "import": "in a fresh process",
}
OWN = (OURS, f"{OURS} S4", STREAM, COMPILED)
TARGET_COLUMNS = ("work", "measured", "bar", "aim", "met")
MET = {"aim": "yes, and the aim", "yes": "yes", "no": "no", "not measured": "not measured"}
STYLES = {"aim": "bold green", "yes": "green", "no": "red", "not measured": "dim"}


@dataclass
class BenchReport:
    """All of one run. ``quick`` sizes say that everything runs, and nothing about speed."""

    command: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    records: list[Measurement] = field(default_factory=list)

    @property
    def verdicts(self) -> list[TargetResult]:
        return judge(self.records, self.settings["d_model"])

    def save(self, path: Path) -> None:
        content = {
            "schema": SCHEMA,
            "command": self.command,
            "machine": self.machine,
            "settings": self.settings,
            "targets": [asdict(verdict) for verdict in self.verdicts],
            "records": [asdict(record) for record in self.records],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> "BenchReport":
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError:
            content = None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise OSError(f"{path.name} was not written by this version of 's4d bench'")
        records = [Measurement(**record) for record in content["records"]]
        return cls(content["command"], content["machine"], content["settings"], records)

    def followed_by(self, later: "BenchReport") -> "BenchReport":
        """Both in one; a work that was measured in both counts as the later one found it."""
        for name in ("cpu", "threads", "torch", "d_model", "d_state", "quick"):
            one, other = ({**r.machine, **r.settings}[name] for r in (self, later))
            if one != other:
                raise ValueError(f"runs that differ in {name} cannot be one: {one}, {other}")
        again = {record.work for record in later.records}
        records = [record for record in self.records if record.work not in again]
        command = f"{self.command}; {later.command}"
        return BenchReport(command, later.machine, later.settings, records + later.records)


# -- numbers as text -------------------------------------------------------------------------------


def show_time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds * 1e3 >= 1 else f"{seconds * 1e6:.3g} us"


def show_bytes(size: int) -> str:
    return f"{size / 2**20:.3g} MB" if size < 1000 * 2**20 else f"{size / 2**30:.3g} GB"


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


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatioTable:
    """A table before it is drawn: contenders down, lengths across."""

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
    """One grid for each work, way and batch; packages that are not there have no row."""
    records = [r for r in records if not _absent(r)]
    keys = dict.fromkeys((r.work, r.way, r.batch) for r in records)
    return [_grid(*key, [r for r in records if (r.work, r.way, r.batch) == key]) for key in keys]


def _grid(work: str, way: str, batch: int, records: list[Measurement]) -> RatioTable:
    lengths = list(dict.fromkeys(r.length for r in records))
    names = list(dict.fromkeys(r.contender for r in records))
    cells = {(r.contender, r.length): r for r in records}
    ours = {
        length: next((r for n in names if n in OWN and (r := cells.get((n, length)))), None)
        for length in lengths
    }
    rows = [
        [(name, ""), *(_cell(cells.get((name, length)), ours[length]) for length in lengths)]
        for name in names
    ]
    title = ", ".join([TITLES.get(work, work), way, *([f"batch {batch}"] if batch else [])])
    columns = [f"L={length}" if length > 1 else "" for length in lengths]
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


def rich_tables(records: Sequence[Measurement]) -> Iterable[Text | Table]:
    for grid in grids(records):
        yield Text(grid.title, style="bold")  # a title of the table would wrap at its width
        table = _table("")
        for column in grid.columns:
            table.add_column(column, justify="right")
        for (name, _), *cells in grid.rows:
            values = ["\n".join(part for part in cell if part) for cell in cells]
            table.add_row(name, *values, style="bold" if name == OURS else "")
        yield table
    for line in absentees(records):
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


# -- a page ----------------------------------------------------------------------------------------


def markdown(report: BenchReport, picture: str | None = None) -> str:
    """The machine, the targets, the picture and all tables, as Markdown."""
    lines = [targets_markdown(report).rstrip("\n")]
    if picture is not None:
        lines += ["", f"![Time and peak memory of a layer against length]({picture})"]
    for grid in grids(report.records):
        lines += ["", f"**{grid.title[:1].upper()}{grid.title[1:]}**", ""]
        rows = [[f"{x} ({ratio})" if ratio else x for x, ratio in row] for row in grid.rows]
        lines += _markdown_table(["", *grid.columns], rows)
    if missing := absentees(report.records):
        lines += ["", " ".join(missing)]
    return "\n".join(lines) + "\n"


def targets_markdown(report: BenchReport) -> str:
    """The machine and the targets alone."""
    m, rows = report.machine, []
    for target in report.verdicts:
        worst = f" ({target.where})" if target.where.startswith("worst") else ""
        rows.append([f"{target.name}{worst}", *target_row(target), MET[target.met]])
    remark = ["**Quick sizes: these numbers say nothing about speed.**", ""]
    lines = [
        *(remark if report.settings.get("quick") else []),
        f"Measured {str(m['date'])[:10]} by `{report.command}`: {m['cpu']}, {m['cores']} cores, "
        f"{m['threads']} threads, {m['instructions']}, {m['sgemm_gflops']:.0f} GFLOP/s in a "
        f"float32 matrix product, s4d-torch {m['s4d_torch']}, torch {m['torch']}, "
        f"numba {m['numba']}, OMP_WAIT_POLICY={m['OMP_WAIT_POLICY']}; float32, "
        f"H={report.settings['d_model']}, N={report.settings['d_state']}.",
        "",
        *_markdown_table(TARGET_COLUMNS, rows),
    ]
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], rows: list[list[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def insert(page: Path, text: str) -> None:
    """Put ``text`` between the markers of a page."""
    whole = page.read_text("utf-8")
    if whole.count(BEGIN) != 1 or whole.count(END) != 1 or whole.index(BEGIN) > whole.index(END):
        raise OSError(f"{page.name} must hold the lines '{BEGIN}' and '{END}' once, in this order")
    before, rest = whole.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{text}{END}{rest.split(END)[1]}", "utf-8")


# -- files -----------------------------------------------------------------------------------------


def write_folder(report: BenchReport, out: Path) -> str:
    """bench.json, tables.md, targets.md and the picture, or why it cannot be drawn."""
    report.save(out / "bench.json")
    picture, why = _draw(report, out / PICTURE)
    (out / "tables.md").write_text(markdown(report, PICTURE if picture else None), "utf-8")
    (out / "targets.md").write_text(targets_markdown(report), "utf-8")
    return why


def write_page(report: BenchReport, page: Path) -> str:
    """The tables, and the picture in ``images`` beside the page, between the page's markers."""
    picture, why = _draw(report, page.parent / "images" / PICTURE)
    insert(page, markdown(report, f"images/{PICTURE}" if picture else None))
    return why


def _draw(report: BenchReport, out: Path) -> tuple[bool, str]:
    try:
        return plot.draw(report.records, out), ""
    except ImportError as error:
        return False, str(error)
