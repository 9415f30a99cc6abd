"""``s4d tasks``: what there is to train on, and everything about one of them."""

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s4d_torch.cli.common.display import plain_table, say
from s4d_torch.cli.common.flags import DataDir
from s4d_torch.cli.common.options import data_folder
from s4d_torch.cli.common.parsing import explanations, misuse
from s4d_torch.data import TASKS, DataFolder, Hyperparameters, Source, Task
from s4d_torch.training.config import PRESETS

OURS = "S4D-LegS"  # the paper's main row


@dataclass(frozen=True)
class Tasks:
    """List the tasks there are, or show everything about one of them."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """the task to show"""
    data_dir: DataDir = None
    """where data is looked for"""

    def run(self, console: Console) -> None:
        folder = data_folder(self.data_dir, download=False)
        if not self.name:
            console.print(tasks_table(folder))
            say(console, f"{OURS}: the paper's result, accuracy in % or RMSE")
            say(console, f"here: in {folder.root}; 's4d tasks NAME' shows all about a task")
            return
        with misuse():
            task = TASKS[self.name]
        show_task(task, folder, console)


def tasks_list() -> str:
    """The tasks as plain text, for the help of other commands."""
    width = max(map(len, TASKS))
    return "tasks:\n" + "\n".join(f"  {name:{width}}  {t.summary}" for name, t in TASKS.items())


def tasks_table(folder: DataFolder) -> Table:
    table = plain_table(title="Tasks")
    table.add_column("name", no_wrap=True)
    table.add_column("length", justify="right")
    table.add_column(OURS, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what it is, size and licence")
    for name, task in TASKS.items():
        result, digits = task.published.get(OURS), ".2f" if task.metric == "accuracy" else "g"
        terms = "; ".join(dict.fromkeys(text for text in (task.size, task.licence) if text))
        table.add_row(
            name,
            "any" if task.length is None else f"{task.length}",
            "" if result is None else format(result, digits),
            _presence(task, folder),
            f"{escape(task.summary)}\n[dim]{escape(terms)}[/dim]",
        )
    return table


def show_task(task: Task[Any], folder: DataFolder, console: Console) -> None:
    """Everything about one task."""
    say(console, f"{task.name}: {task.summary}\n")
    about = {
        "length": "as the data has it" if task.length is None else f"{task.length:,} samples",
        "size": task.size,
        "licence": task.licence,
        "cite": task.citation,
        "metric": task.metric,
        "here": _presence(task, folder),
    }
    for name, text in about.items():
        if text:
            say(console, f"{name:<8} {text}")
    if task.sources or task.files:
        say(console, f"\nfiles, in {folder.root}:")
    for file, there in task.places(folder):
        say(console, f"  {file} ({'here' if there else 'missing'})")
    if task.sources:
        say(console, "downloaded by 's4d train', or put into its folder 'downloads' by you, from:")
    for source in task.sources:
        say(console, f"  {source.url}{_source_notes(source)}")
    console.print(_presets_table(task), _options_table(task))
    if task.published:
        unit = "accuracy in %" if task.metric == "accuracy" else task.metric
        table = plain_table("model", unit, title="Published results")
        for model, result in task.published.items():
            table.add_row(escape(model), f"{result:g}")
        console.print(table)


def _source_notes(source: Source) -> str:
    notes = [] if source.size is None else [f"{source.size / 1e6:,.1f} MB"]
    notes += [] if source.into == "." else [f"into {source.into}/"]
    return f" ({', '.join(notes)})" if notes else ""


def _presets_table(task: Task[Any]) -> Table:
    rows = {"small": task.small, "paper": task.paper}
    chosen = {name: row for name in sorted(PRESETS, reverse=True) if (row := rows.get(name))}
    table = plain_table("setting", *chosen, title="Presets (--preset)")
    for field in fields(Hyperparameters):
        table.add_row(field.name, *(str(getattr(row, field.name)) for row in chosen.values()))
    return table


def _options_table(task: Task[Any]) -> Table:
    table = plain_table("option", "default", "what it does", title="Options of the data")
    said = explanations(task.options)
    for field in fields(task.options):
        flag, value = f"--data.{field.name.replace('_', '-')}", field.default
        default = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        default = "(needed)" if value is MISSING else default
        text = said.get(field.name, "").replace("\n", " ")
        table.add_row(flag, escape(default), escape(text))
    return table


def _presence(task: Task[Any], folder: DataFolder) -> str:
    if any(field.default is MISSING for field in fields(task.options)):
        return "yours"  # a reader, which has to be told where
    if not task.files:
        return "always"
    return "yes" if task.is_here(folder) else "no"
