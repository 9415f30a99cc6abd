"""``s4d runs``: the runs in a folder, how far each came and how it did."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from s4d_torch._progress import say
from s4d_torch.cli.common.console import as_json, plain_table
from s4d_torch.cli.common.flags import Switch

if TYPE_CHECKING:
    from s4d_torch.training.saved.listing import RunRecord

# those of training.saved.listing, which torch would have to be loaded for
Sort = Literal["when", "folder", "test", "parameters", "status"]


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder and below: what they are, how far they came, their scores.

    A run whose files are damaged is listed too, with what is wrong.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs")
    """where to look"""
    sort: Sort = "when"
    """the newest last; by folder; the best test score first; by size; by status"""
    json: Switch = False
    """print a JSON object for each run"""

    def run(self, console: Console) -> None:
        # here, as help and mistakes need not wait for torch
        from s4d_torch.training.reports.describe import plural
        from s4d_torch.training.saved.listing import list_runs

        found = list_runs(self.folder.expanduser(), self.sort)
        if self.json:
            for record in found:
                print(as_json(record.to_json()))
            return
        if not found:
            say(console, f"there are no runs in {self.folder}; 's4d train' makes them")
            return
        columns = ("run", "data", "status", "best epoch", "test", "parameters", "when")
        table = plain_table(title=f"{plural(len(found), 'run')} in {self.folder}")
        for name in columns:  # where room is short, long names break, and numbers do not
            table.add_column(name, overflow="fold", no_wrap=name in ("status", "when"))
        for record in found:
            table.add_row(*(escape(cell) for cell in _cells(record, self.folder.expanduser())))
        console.print(table)
        for record in found:
            if record.problem:
                say(console, f"{record.folder} is damaged: {record.problem}")


def _cells(record: "RunRecord", root: Path) -> list[str]:
    from s4d_torch.training.reports.compare import shown_score

    name = record.folder.relative_to(root)
    when = f"{record.when:%Y-%m-%d %H:%M}"
    if record.status == "damaged":
        return [str(name), "", record.status, "", "", "", when]
    best = "-" if record.best_epoch is None else f"{record.best_epoch}"
    if record.status != "finished":
        best = f"{record.epochs_done} done"
    size = "-" if record.parameters is None else f"{record.parameters:,}"
    score = f"{record.metric} {shown_score(record, record.metric)}" if record.test else "-"
    data = Path(record.data).name or record.task
    return [str(name), data, record.status, f"{best} of {record.epochs}", score, size, when]
