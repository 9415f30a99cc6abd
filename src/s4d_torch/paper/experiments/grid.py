"""A grid of experiments: what is done is read, what is left is run, and any end is a pause."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

from s4d_torch.data.folder import DataFolder
from s4d_torch.paper.experiments.engines import ENGINES_OF_GRID, run_one
from s4d_torch.paper.experiments.experiment import Experiment, Result, read_result, result_path
from s4d_torch.paper.experiments.local_workers import Plan
from s4d_torch.paper.experiments.watch import Watch

__all__ = ["ENGINES_OF_GRID", "interleave", "run_grid", "run_one"]


def run_grid(
    experiments: Iterable[Experiment],
    results: Path,
    *,
    data: DataFolder,
    work: Path,
    engine: str = "local",
    workers: int | None = None,
    memory_gb: float | None = None,
    address: str | None = None,
    retry_failed: bool = False,
    watch: Watch | None = None,
) -> list[Result]:
    """Run those experiments that have no result in ``results``; all results, in the order given.

    Experiments of one key are one. A failed one keeps its error and does not stop the others;
    ``retry_failed`` tries it again. ``work`` holds what is under way: after any interruption the
    same call goes on from there. ``memory_gb`` replaces what the system says is free, ``workers``
    the number of experiments at a time; ``address`` is that of a Ray cluster.

    The engine ``local`` starts processes: a script that calls this needs the usual
    ``if __name__ == "__main__":``.
    """
    launch = ENGINES_OF_GRID[engine]
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if memory_gb is not None and not memory_gb > 0:
        raise ValueError(f"memory_gb must be above 0, got {memory_gb}")
    wanted = {experiment.key: experiment for experiment in experiments}
    results, work = results.absolute(), work.absolute()
    data = replace(data, root=data.root.absolute())
    done = {}
    for key in wanted:
        result = read_result(results, key)
        if result is not None and result.error is not None and retry_failed:
            result_path(results, key).unlink()
        elif result is not None:
            done[key] = result
    left = interleave([each for key, each in wanted.items() if key not in done])
    watch = watch or Watch()
    memory = None if memory_gb is None else 1e9 * memory_gb
    plan = Plan(tuple(left), results, data, work, watch, workers, memory, address)
    for folder in (results, work) if left else ():
        _require_writable(folder)
    watch.begin(list(wanted.values()), list(done.values()))
    try:
        if left:
            launch(plan)
    finally:
        watch.close()
    found = (read_result(results, key) for key in wanted)
    return [result for result in found if result is not None]


def _require_writable(folder: Path) -> None:
    """Said here once, rather than by every worker after its first epoch."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(b"0" * 4096)
            file.flush()
    except OSError as error:
        raise OSError(f"cannot write into {folder} ({error.strerror}); choose another") from error


def interleave(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Seed by seed, and of each seed one of every task in turn: so all tables fill evenly."""
    turns: Counter[tuple[int, str]] = Counter()
    places = []
    for i, experiment in enumerate(experiments):
        seed, task = experiment.config.training.seed, experiment.config.task
        places.append((seed, turns[seed, task], i))
        turns[seed, task] += 1
    return [experiments[i] for *_, i in sorted(places)]
