"""Where the experiments of a grid run: processes of this machine, a Ray cluster, or Slurm."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from s4d_torch._extras import missing_package
from s4d_torch._files import write_atomically
from s4d_torch._registry import Registry
from s4d_torch.data.folder import DataFolder
from s4d_torch.paper.experiments.cost import needed_memory, too_large
from s4d_torch.paper.experiments.experiment import Experiment, Result, read_result, run_experiment
from s4d_torch.paper.experiments.local_workers import Plan, Pool, interrupted
from s4d_torch.training.saved.run_folder import CONFIG

ENGINES_OF_GRID: Registry[Callable[[Plan], None]] = Registry("engine")


@ENGINES_OF_GRID.register("local")
def local(plan: Plan) -> None:
    """Processes of this machine, one per core unless ``workers`` says otherwise."""
    Pool(plan).run()


# -- Ray -------------------------------------------------------------------------------------------

RETRIES = 3  # how often a task is started again after its process or its machine was lost
POLL_SECONDS, PATIENCE_SECONDS = 1.0, 60.0


@ENGINES_OF_GRID.register("ray")
def on_ray(plan: Plan) -> None:
    """Tasks of a Ray cluster at ``address``, or of one started here. Needs the extra ``ray``.

    All machines see the folders under the same paths. A task whose process dies is started again
    by Ray and goes on from its checkpoint.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise missing_package("grids on many machines", "ray", "ray") from error
    started_here = not ray.is_initialized()
    if started_here:
        _join(ray, plan)
    try:
        _supervise(ray, plan)
    finally:
        if started_here:
            ray.shutdown()


def _join(ray: Any, plan: Plan) -> None:
    """Connect to the cluster, or start one on this machine."""
    if plan.address is not None:
        ray.init(address=plan.address, log_to_driver=False)
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no word to its makers
    memory = None if plan.memory is None else int(plan.memory)
    size = {"num_cpus": plan.workers, "_memory": memory}
    ray.init(address="local", **size, include_dashboard=False, log_to_driver=False)


def _supervise(ray: Any, plan: Plan) -> None:
    needs = needed_memory(plan.experiments, plan.data)
    largest = max(node["Resources"].get("memory", 0.0) for node in ray.nodes() if node["Alive"])
    waiting = []
    for experiment in plan.experiments:
        if needs[experiment.key] > largest:
            plan.watch.message(too_large(experiment, needs[experiment.key], largest))
        else:
            waiting.append(experiment)
    task = ray.remote(run_task)
    # a window, if asked for: the cluster may belong to others as well
    window = plan.workers if plan.workers and plan.address else len(waiting)
    pending: dict[Any, Experiment] = {}
    started: set[str] = set()
    try:
        while waiting or pending:
            while waiting and len(pending) < window:
                experiment = waiting.pop(0)
                memory = needs[experiment.key]
                lasting = task.options(num_cpus=1, memory=memory, max_retries=RETRIES)
                made = lasting.remote(experiment.to_json(), plan.results, plan.data, plan.work)
                pending[made] = experiment
            ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
            for key in {experiment.key for experiment in pending.values()} - started:
                if (plan.work / key / CONFIG).exists():  # Ray does not say which of many run
                    started.add(key)
                    plan.watch.started(key)
            for reference in ready:
                _conclude(ray, plan, pending.pop(reference), reference)
    except KeyboardInterrupt:
        for reference in pending:
            ray.cancel(reference)  # arrives as Ctrl-C does: the run saves itself
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=PATIENCE_SECONDS)
        raise interrupted(plan.work) from None


def run_task(described: dict[str, Any], results: Path, data: DataFolder, work: Path) -> str:
    """What a Ray worker does; the result is in the shared folder, a reason comes back if not."""
    try:
        run_experiment(Experiment.from_json(described), results, data=data, work=work)
    except BlockingIOError as error:
        return str(error)
    return ""


def _conclude(ray: Any, plan: Plan, experiment: Experiment, reference: Any) -> None:
    key = experiment.key
    try:
        reason = ray.get(reference)
    except ray.exceptions.RayError as error:  # lost as often as it may be, or a bug of ours
        reason = str(error).strip()
        experiment.failed(plan.results, reason)
    result = read_result(plan.results, key)
    if result is None:
        plan.watch.put_back(key, reason or f"no result in {plan.results}; is the folder shared?")
    else:
        plan.watch.ended(result)


# -- Slurm -----------------------------------------------------------------------------------------


@ENGINES_OF_GRID.register("slurm")
def slurm(plan: Plan) -> None:
    """Print an array script for ``sbatch``; nothing is run here."""
    print(slurm_script(plan), end="")


def slurm_script(plan: Plan) -> str:
    """One task of the array for each experiment, which is read from a manifest by its index."""
    manifest = write_manifest(plan)
    needs = needed_memory(plan.experiments, plan.data)
    megabytes = -(-max(needs.values()) // 2**20)
    at_once = "" if plan.workers is None else f"%{plan.workers}"
    command = [sys.executable, "-m", "s4d_torch", "paper", "run-one", str(manifest)]
    return f"""#!/bin/bash
# {len(plan.experiments)} experiments; submit with sbatch, as often as needed: finished ones
# return at once, broken off ones go on from their checkpoints. Add --time and --partition.
#SBATCH --job-name=s4d-grid
#SBATCH --array=0-{len(plan.experiments) - 1}{at_once}
#SBATCH --cpus-per-task=1
#SBATCH --mem={megabytes}M
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={shlex.quote(f"{manifest.parent / manifest.stem}-%a.log")}
# a checkpoint is saved two minutes before the time is up
#SBATCH --signal=B:TERM@120
export OMP_WAIT_POLICY=passive
export OMP_NUM_THREADS="${{SLURM_CPUS_PER_TASK:-1}}"
exec {shlex.join(command)} "$SLURM_ARRAY_TASK_ID"
"""


def write_manifest(plan: Plan) -> Path:
    """``work/grid-HASH.json``, named by its content: a later grid moves no index of this one."""
    manifest = {
        "results": str(plan.results),
        "work": str(plan.work),
        "data": {**asdict(plan.data), "root": str(plan.data.root)},
        "experiments": [experiment.to_json() for experiment in plan.experiments],
    }
    text = json.dumps(manifest, indent=1) + "\n"
    path = plan.work / f"grid-{sha256(text.encode()).hexdigest()[:8]}.json"
    plan.work.mkdir(parents=True, exist_ok=True)
    write_atomically({path: text.encode()})
    return path


def run_one(manifest: Path, index: int) -> Result:
    """Run the experiment at ``index`` of a manifest; its result goes to the manifest's folder."""
    try:
        described = json.loads(Path(manifest).read_text(encoding="utf-8"))
        experiments = described["experiments"]
        data = DataFolder(**{**described["data"], "root": Path(described["data"]["root"])})
        results, work = Path(described["results"]), Path(described["work"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{manifest} is no manifest of a grid ({error!r})") from error
    if not 0 <= index < len(experiments):
        raise ValueError(f"index must be 0 to {len(experiments) - 1} in {manifest}, got {index}")
    return run_experiment(Experiment.from_json(experiments[index]), results, data=data, work=work)
