"""The names that options take which are plain text to the parser: those of the registries."""

from collections.abc import Iterable
from functools import cache

from s4d_torch.bench import WORKS
from s4d_torch.cli.completion.words import Values
from s4d_torch.data import TASKS
from s4d_torch.deploy.export.formats import FORMATS
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.method import DT_SCALES, STRUCTURES
from s4d_torch.nn.norm import NORMS
from s4d_torch.paper.figures import FIGURES
from s4d_torch.paper.recipes import RECIPES, REFERENCE_TABLES
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.hippo import HIPPO
from s4d_torch.ssm.initialization import B_STARTS, C_STARTS, INITIALIZATIONS
from s4d_torch.ssm.state_space import KERNELS
from s4d_torch.training import ARCHITECTURES, METRICS, SCHEDULES
from s4d_torch.training.saved import packaged


@cache
def known_values() -> dict[str, Values]:
    """By class and field, or by field alone."""
    task_or_file = Values(tuple(TASKS), files=True)
    model_or_file = Values(tuple(packaged.names()), files=True)
    names: dict[str, Iterable[str]] = {
        "Tasks.name": TASKS,
        "RunTables.names": [*RECIPES, *REFERENCE_TABLES, *FIGURES, "all"],
        "RunTables.tasks": TASKS,
        "Export.to": FORMATS,
        "Bench.work": WORKS,
        "Method.structure": STRUCTURES,
        "Method.kernel": KERNELS,
        "Method.discretization": DISCRETIZATIONS,
        "Method.constraint": CONSTRAINTS,
        "Method.init": dict.fromkeys([*INITIALIZATIONS, *HIPPO]),
        "Method.B_init": B_STARTS,
        "Method.C_init": C_STARTS,
        "Method.dt_scales": DT_SCALES,
        "ModelConfig.architecture": ARCHITECTURES,
        "ModelConfig.norm": NORMS,
        "ModelConfig.activation": ACTIVATIONS,
        "ModelConfig.mixing": MIXINGS,
        "ModelConfig.engine": ENGINES,
        "OptimizerConfig.schedule": SCHEDULES,
        "TrainingConfig.metric": ["auto", *METRICS],
        "device": ["auto", "cpu", "cuda", "mps"],
        "mirror": [],
        "address": [],
        "prefix": [],
    }
    return {
        **{key: Values(tuple(each)) for key, each in names.items()},
        "Train.task": task_or_file,
        "Info.run_folder": task_or_file | model_or_file,
        "run_folder": model_or_file,
        "Compare.runs": model_or_file,
        "Models.name": Values(tuple(packaged.names())),
        "TrainingConfig.init_from": model_or_file,
        "Evaluate.task": task_or_file,
    }
