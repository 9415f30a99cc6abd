"""Where the settings of ``s4d train`` start from: a task, one's own data, or another run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from s4d_torch.cli.common import options, parsing
from s4d_torch.cli.common.parsing import UsageError, misuse
from s4d_torch.data import TASKS, Signature
from s4d_torch.nn.method import METHODS
from s4d_torch.training import METRICS, Config, default_config
from s4d_torch.training.build import build_model
from s4d_torch.training.config import PRESETS
from s4d_torch.training.reports.describe import own_data
from s4d_torch.training.saved.run_folder import CONFIG, RunFolder

INIT_FROM = "--training.init-from"


def of_task(name: str, arguments: Sequence[str]) -> Config:
    """The settings of a task with the preset and the base that the arguments name.

    With the model of a run that they fine-tune.
    """
    task, of_data = options.task_and_options(name)
    preset, base, source = (
        parsing.value_of(flag, arguments) for flag in ("--preset", "--base", INIT_FROM)
    )
    with misuse("--preset: "):  # one that does not exist is left for the parser to refuse
        config = default_config(task, preset if preset in PRESETS else None, **vars(of_data))
    if source is not None:
        if base is not None:
            raise UsageError("--base and --init-from: the method is that of the run; leave one out")
        old = RunFolder(options.named_folder(source)).config()
        return replace(config, model=old.model, method=old.method)
    start, usual = METHODS.get(base or "", METHODS["s4d"]), config.method
    start = start.with_steps(usual.dt_min, usual.dt_max)
    return replace(config, method=start.replace(bidirectional=usual.bidirectional))


def of_run(path: str, arguments: Sequence[str]) -> tuple[str, Config]:
    """The settings in the ``run.json`` of a run, or in its folder, and the name of its data."""
    for flag in ("--preset", "--base"):
        if parsing.value_of(flag, arguments) is not None:
            raise UsageError(f"--replay and {flag}: the run has its settings; leave {flag} out")
    file = Path(path).expanduser()
    folder = file.parent if file.name == CONFIG else file
    config = RunFolder(options.named_folder(folder)).config()
    return str(own_data(config) or config.task), config


def check_model(config: Config, default: Config) -> None:
    """Build one layer, so that a wrong setting is known before any data is fetched."""
    small = replace(config, model=replace(config.model, n_layers=min(1, config.model.n_layers)))
    signature = Signature("classification", features=1, outputs=2, length=16)
    kind = METRICS[TASKS[config.task].metric].kind
    if kind == "generation":
        signature = replace(signature, kind=kind, tokens=True, features=3)
    elif kind == "tracking":
        signature = replace(signature, kind=kind)
    try:
        build_model(small, signature)
    except ValueError as error:
        flags = parsing.changes("model", config.model, default.model)
        flags += parsing.changes("method", config.method, default.method)
        raise parsing.blame(error, flags) from error
