"""``s4d compare``: runs beside each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from s4d_torch._progress import say
from s4d_torch.cli.common.console import as_json, plain_table
from s4d_torch.cli.common.flags import Switch, shown
from s4d_torch.cli.common.parsing import UsageError

PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Compare:
    """Compare runs: the options in which they differ, their scores and their curves.

    Scores of the test come with a 95 % interval, where one is known.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN RUN ...")]
    """the folders of two or more runs, or names that 's4d models' lists"""
    out: Annotated[Path | None, shown("FILE", "no picture")] = None
    """draw the curves of all runs into this svg, png or pdf file"""
    json: Switch = False
    """print a JSON object"""

    def run(self, console: Console) -> None:
        if len(self.runs) < 2:
            raise UsageError(f"name two or more runs to compare, got {len(self.runs)}")
        if self.out is not None and self.out.suffix.lower() not in PICTURES:
            raise UsageError(
                f"--out {self.out}: expected a file that ends in {', '.join(PICTURES)}"
            )
        # here, as help and mistakes need not wait for torch
        from s4d_torch.cli.common.options import named_folder
        from s4d_torch.training.reports.compare import (
            differing_options,
            draw_curves,
            read_runs,
            shown_score,
        )

        records = read_runs([named_folder(folder) for folder in self.runs])
        options = differing_options(records)
        if self.out is not None:
            draw_curves(records, self.out)
        if self.json:
            runs = [record.to_json() for record in records]
            print(as_json({"runs": runs, "options": options, "picture": self.out}))
            return
        names = [str(folder) for folder in self.runs]
        scores = list(dict.fromkeys(name for record in records for name in record.test))
        rows: list[list[Any]] = [["status", *(record.status for record in records)]]
        rows += [["epochs done", *(record.done for record in records)]]
        rows += [["best epoch", *(record.best_epoch or "-" for record in records)]]
        rows += [["parameters", *(f"{record.parameters or 0:,}" for record in records)]]
        rows += [
            [f"test {name}", *(shown_score(each, name) for each in records)] for name in scores
        ]
        _show(console, "Results", names, rows)
        if options:
            _show(console, "Options that differ", names, [[k, *v] for k, v in options.items()])
        else:
            say(console, "the runs do not differ in any option")
        if self.out is not None:
            say(console, f"curves in {self.out}")


def _show(console: Console, title: str, names: list[str], rows: list[list[Any]]) -> None:
    table = plain_table(title=title)
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(escape(name), overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else escape(str(cell)) for cell in row))
    console.print(table)
