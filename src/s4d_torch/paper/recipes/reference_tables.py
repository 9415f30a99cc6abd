"""The paper's tables that need no training: the choices of each method, the hyper-parameters."""

from dataclasses import dataclass

from s4d_torch.data.task import TASKS
from s4d_torch.nn.method import METHODS, TABLE_1
from s4d_torch.paper.recipes.benchmark_tables import ARENA

HYPERPARAMETERS = {"sCIFAR": "scifar", "SC": "sc35", "BIDMC": "bidmc-hr", **ARENA}
NORMS = {"batch": "BN", "layer": "LN"}


@dataclass(frozen=True)
class ReferenceTable:
    """A table as text."""

    title: str
    where: str
    header: list[str]
    rows: list[list[str]]


def choices() -> ReferenceTable:
    """Table 1, from :class:`Method`: what S4, DSS and S4D choose."""
    header = ["method", "structure", "kernel", "discretisation", "Re(A)", "trainable B", "A starts"]
    rows = [
        [
            *(name.upper(), method.structure, method.kernel, method.discretization),
            *(method.constraint, "yes" if method.train_B else "no", method.init),
        ]
        for name, method in ((name, METHODS[name]) for name in TABLE_1)
    ]
    where = "Table 1, where the paper leaves some of S4D open; here its base"
    return ReferenceTable("Parameterisation choices", where, header, rows)


def hyperparameters() -> ReferenceTable:
    """The hyper-parameter table, from the tasks."""
    header = ["task", "depth", "H", "N", "norm", "pre-norm", "dropout", "lr", "batch", "epochs"]
    header += ["weight decay", "dt"]
    rows = []
    for shown, name in HYPERPARAMETERS.items():
        row = TASKS[name].paper
        assert row is not None
        cells = [row.n_layers, row.d_model, row.d_state, NORMS[row.norm], row.prenorm, row.dropout]
        cells += [row.lr, row.batch_size, row.epochs, row.weight_decay]
        rows.append([shown, *map(str, cells), f"({row.dt_min}, {row.dt_max})"])
    title = "Hyper-parameters of the large models"
    return ReferenceTable(title, "the appendix's last table", header, rows)


REFERENCE_TABLES = {"methods": choices, "hyperparameters": hyperparameters}
