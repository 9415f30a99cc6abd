"""``s4d methods``: the paper's Table 1, later methods, and every choice there is."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from s4d_torch.cli.common.console import plain_table

COLUMNS = ("structure", "kernel", "discretization", "constraint", "train_B", "init")


@dataclass(frozen=True)
class Methods:
    """Show S4, DSS, S4D and later methods as combinations of choices, and all choices."""

    def run(self, console: Console) -> None:
        console.print(*methods_tables(), choices_table())


def methods_tables() -> list[Table]:
    """Table 1, and the methods that are not the paper's: a row for each."""
    # here, as help and mistakes need not wait for torch
    from s4d_torch.nn.method import METHODS, TABLE_1

    title = "Methods (Table 1 of the paper)"
    table = plain_table("method", *COLUMNS, title=title, title_style="bold")
    for name in TABLE_1:
        table.add_row(name, *(_show(getattr(METHODS[name], column)) for column in COLUMNS))
    others = plain_table("method", "as s4d, but", title="Other methods", title_style="bold")
    usual = vars(METHODS["s4d"])
    for name in (name for name in METHODS if name not in TABLE_1):
        changed = {k: x for k, x in vars(METHODS[name]).items() if x != usual[k]}
        others.add_row(name, ", ".join(f"{k}={_show(x)}" for k, x in changed.items()))
    return [table, others]


def choices_table() -> Table:
    """Each choice by its name, and what it goes together with."""
    from s4d_torch.nn.method import DT_SCALES, EXPONENTIAL, STRUCTURES
    from s4d_torch.ssm.constraint import CONSTRAINTS
    from s4d_torch.ssm.discretization import DISCRETIZATIONS
    from s4d_torch.ssm.hippo import HIPPO
    from s4d_torch.ssm.initialization import INITIALIZATIONS
    from s4d_torch.ssm.state_space import KERNELS

    table = plain_table("choice", "values", "goes with", title="Choices", title_style="bold")
    table.add_row("structure", ", ".join(STRUCTURES), "")
    for name, rule in KERNELS.items():
        needs = [f"structure {' or '.join(rule.structures)}"]
        if rule.discretizations:
            needs.append(f"discretization {' or '.join(rule.discretizations)}")
        if not rule.real_modes:
            needs.append("no init real")
        table.add_row("kernel", name, ", ".join(needs))
    table.add_row("discretization", ", ".join(DISCRETIZATIONS), "")
    table.add_row("constraint", ", ".join(CONSTRAINTS), "")
    table.add_row("init", ", ".join(INITIALIZATIONS), "structure diagonal")
    table.add_row("init", ", ".join(HIPPO), "structure dplr")
    for scale in DT_SCALES:
        starts = [name for name, start in INITIALIZATIONS.items() if scale in start.dt_scales]
        rules = "" if scale == "all" else f", discretization {' or '.join(EXPONENTIAL)}"
        table.add_row("dt_scales", scale, f"init {', '.join(starts)}{rules}")
    return table


def _show(value: object) -> str:
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"
