"""``s4d methods``: the paper's Table 1, and every choice there is."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from s4d_torch.cli.common.console import plain_table

COLUMNS = ("structure", "kernel", "discretization", "constraint", "train_B", "init")


@dataclass(frozen=True)
class Methods:
    """Show S4, DSS and S4D as combinations of choices, and what there is to choose from."""

    def run(self, console: Console) -> None:
        console.print(methods_table(), choices_table())


def methods_table() -> Table:
    """Table 1: one row for each registered method."""
    from s4d_torch.nn.method import METHODS  # here, as help and mistakes need not wait for torch

    title = "Methods (Table 1 of the paper)"
    table = plain_table("method", *COLUMNS, title=title, title_style="bold")
    for name, method in METHODS.items():
        table.add_row(name, *(_show(getattr(method, column)) for column in COLUMNS))
    return table


def choices_table() -> Table:
    """Each choice by its name, and what it goes together with."""
    from s4d_torch.nn.method import STRUCTURES
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
    return table


def _show(value: object) -> str:
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"
