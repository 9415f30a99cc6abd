"""What was measured, on a page and in files: Markdown, JSON and the picture."""

from collections.abc import Sequence
from pathlib import Path

from s4d_torch.bench import plot
from s4d_torch.bench.report import BenchReport
from s4d_torch.bench.summary import headlines
from s4d_torch.bench.tables import MET, TARGET_COLUMNS, absentees, grids, target_row

PICTURE = "performance.png"
PARTS = ("summary", "tables")  # what a page has markers for


def markers(part: str) -> tuple[str, str]:
    """The lines between which a page holds this part."""
    return f"<!-- begin s4d bench: {part} -->", f"<!-- end s4d bench: {part} -->"


def summary_markdown(report: BenchReport, picture: str | None = None) -> str:
    """The picture, the five numbers, the targets and the machine."""
    lines = []
    if report.settings.get("quick"):
        lines += ["**Quick sizes: these numbers say nothing about speed.**", ""]
    if picture is not None:
        lines += [f"![Time and peak memory of a layer against length]({picture})", ""]
    rows = [
        [h.about, h.measured, f"`s4d bench --work {h.work}`"] for h in headlines(report.records)
    ]
    lines += _table(("", "measured", "command"), rows, numbers=False)
    lines += ["", facts(report), "", *_targets(report)]
    return "\n".join(lines) + "\n"


def tables_markdown(report: BenchReport) -> str:
    """All that was measured."""
    lines: list[str] = []
    for grid in grids(report.records):
        lines += [f"**{grid.title[:1].upper()}{grid.title[1:]}**", ""]
        rows = [[f"{x} ({ratio})" if ratio else x for x, ratio in row] for row in grid.rows]
        lines += [*_table(("", *grid.columns), rows), ""]
    lines += [" ".join([*absentees(report.records), *report.notes])]
    return "\n".join(lines).rstrip("\n") + "\n"


def targets_markdown(report: BenchReport) -> str:
    """The machine and the targets alone."""
    return "\n".join([facts(report), "", *_targets(report)]) + "\n"


def facts(report: BenchReport) -> str:
    """When, by which command, from which commit and on which machine."""
    m, s = report.machine, report.settings
    where = f"on {m['device']}, " if m["device"] != "cpu" else ""
    kept = "kept in the process" if m["keeps_freed_memory"] else "given back to the system"
    return (
        f"Measured {str(m['date'])[:10]} by `{report.command}` {where}at commit "
        f"{_short(m['commit'])}: {m['cpu']}, {m['cores']} cores, {m['threads']} threads at most, "
        f"{m['instructions']}, {m['sgemm_gflops']:.0f} GFLOP/s in a float32 matrix product, "
        f"{m['memory_gb']:.0f} GB; s4d-torch {m['s4d_torch']}, torch {m['torch']}, numba "
        f"{m['numba']}, JAX {m['jax'] or 'not installed'}, OMP_WAIT_POLICY={m['OMP_WAIT_POLICY']}; "
        f"freed memory {kept}; float32, and H={s['d_model']}, N={s['d_state']} where nothing else "
        "is said."
    )


def _short(commit: str | None) -> str:
    """The first letters of commits, and whether files differed from them."""
    if commit is None:
        return "unknown"
    parts = (each.partition("-") for each in commit.split(", "))
    return ", ".join(f"{name[:12]}{dash}{rest}" for name, dash, rest in parts)


def _targets(report: BenchReport) -> list[str]:
    rows = []
    for target in report.verdicts:
        worst = f" ({target.where})" if target.where.startswith("worst") else ""
        rows.append([f"{target.name}{worst}", *target_row(target), MET[target.met]])
    return _table(TARGET_COLUMNS, rows)


def _table(header: Sequence[str], rows: list[list[str]], *, numbers: bool = True) -> list[str]:
    rule = ["---"] + ["---:" if numbers else "---"] * (len(header) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def insert(page: Path, parts: dict[str, str]) -> None:
    """Put each text between the markers of its part."""
    whole = page.read_text("utf-8")
    for part, text in parts.items():
        begin, end = markers(part)
        if (
            whole.count(begin) != 1
            or whole.count(end) != 1
            or whole.index(begin) > whole.index(end)
        ):
            raise OSError(
                f"{page.name} must hold the lines '{begin}' and '{end}' once, in this order"
            )
        before, rest = whole.split(begin)
        whole = f"{before}{begin}\n{text}{end}{rest.split(end)[1]}"
    page.write_text(whole, "utf-8")


def write_folder(report: BenchReport, out: Path) -> str:
    """bench.json, tables.md, targets.md and the picture, or why it cannot be drawn."""
    report.save(out / "bench.json")
    picture, why = _draw(report, out / PICTURE)
    whole = f"{summary_markdown(report, PICTURE if picture else None)}\n{tables_markdown(report)}"
    (out / "tables.md").write_text(whole, "utf-8")
    (out / "targets.md").write_text(targets_markdown(report), "utf-8")
    return why


def write_page(report: BenchReport, page: Path) -> str:
    """Both parts between the page's markers, and the picture in ``images`` beside the page."""
    picture, why = _draw(report, page.parent / "images" / PICTURE)
    summary = summary_markdown(report, f"images/{PICTURE}" if picture else None)
    insert(page, {"summary": summary, "tables": tables_markdown(report)})
    return why


def _draw(report: BenchReport, out: Path) -> tuple[bool, str]:
    try:
        return plot.draw(report.records, out), ""
    except ImportError as error:
        return False, str(error)
