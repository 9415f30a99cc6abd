"""What only a fresh process can tell: peak memory, the time to import, the time of a first use.

For memory, inputs, parameters and a first call on a short sequence come first, so that libraries,
threads and compiled code are in place. Then the mark of the highest resident size is reset (Linux),
one call is made, and the rise of the mark above the resident size before it counts. Where the mark
cannot be reset, the rise of the highest size of the whole process stands in for it; on a GPU, what
torch has allocated there.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch

from s4d_torch.bench import contenders, models
from s4d_torch.bench.device import return_memory
from s4d_torch.bench.measure import Call, Case, Contender, call_seconds
from s4d_torch.training.estimate import peak_memory as peak_memory_so_far
from s4d_torch.training.estimate import process_status

IMPORT, FIRST_PUSH = "import", "compile_step"  # beside a training step
EMPTY, FILLED = "first use, nothing compiled", "first use, compiled before"
RESET = Path("/proc/self/clear_refs")
WARM_UP = 512  # samples of the first call
PATIENCE = 900  # seconds
MEASURE = "import sys; from s4d_torch.bench.fresh_process import main; main(sys.argv[1])"


def groups() -> dict[str, dict[str, Contender]]:
    """The contenders whose memory can be asked for, by the name of their work."""
    return {
        "ssm": contenders.state_spaces(),
        "gaps": contenders.irregular(),
        "layer": contenders.layers({**contenders.LAYERS, **contenders.DPLR_LAYERS}),
    }


def peak_memory(group: str, name: str, case: Case) -> tuple[int | None, str]:
    """(bytes beyond inputs and parameters, or why there are none), from a new process."""
    if case.device == "mps":
        return None, "torch does not tell the peak of memory on mps"
    try:
        return int(_ask("memory", case, group, name)), ""
    except (subprocess.SubprocessError, OSError) as error:
        return None, f"failed: {_reason(error)}"


def import_seconds(repeats: int) -> float:
    """The best time to import this package where torch is already imported."""
    code = (
        "import time, torch; start = time.perf_counter(); import s4d_torch;"
        "print(time.perf_counter() - start)"
    )
    return min(float(_python("-c", code)) for _ in range(repeats))


def first_use_seconds(case: Case) -> tuple[float, float]:
    """Seconds of the first use in a process that finds nothing compiled, and in the next one."""
    with tempfile.TemporaryDirectory() as empty:
        before, after = (_ask("first use", case, NUMBA_CACHE_DIR=empty) for _ in range(2))
    return float(before), float(after)


def _ask(question: str, case: Case, *about: str, **environment: str) -> str:
    request = json.dumps({"question": question, "about": about, "case": asdict(case)})
    threads = {"OMP_NUM_THREADS": str(case.threads)}
    return _python("-c", MEASURE, request, **threads, **environment)


def _python(*arguments: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return result.stdout.split()[-1]


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or "").strip().splitlines()
        return lines[-1][:200] if lines else f"ended with {error.returncode}"
    return str(error)[:200]


# -- in the new process ----------------------------------------------------------------------------


def measure_memory(case: Case, group: str, name: str) -> int:
    """Bytes that one call needs at its peak, beyond what was there before it."""
    build = groups()[group][name].build
    build(replace(case, length=min(WARM_UP, case.length)))()
    run = build(case)
    return_memory(case.device)  # freed memory could be used again unseen
    if case.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        allocated = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - allocated
    try:
        RESET.write_text("5", "utf-8")  # the mark is now the resident size
        before = process_status("VmRSS")
    except (OSError, ValueError):
        before = peak_memory_so_far() or 0
    run()
    return max(0, (peak_memory_so_far() or 0) - before)


def measure_first_use(case: Case) -> float:
    """Seconds of the first call of a model; the making of the model does not count."""
    return call_seconds(FIRST_USES[case.way](case))


def _first_push(case: Case) -> Call:
    model, u = models.trained_model(case), torch.zeros(case.batch, 1)
    return lambda: model.compile_step(case.batch).push(u)


FIRST_USES: dict[str, Callable[[Case], Call]] = {
    contenders.TRAINING: models.training_step,
    FIRST_PUSH: _first_push,
}


def main(request: str) -> None:
    asked = json.loads(request)
    answers: dict[str, Callable[..., float]] = {
        "memory": measure_memory,
        "first use": measure_first_use,
    }
    print(answers[asked["question"]](Case(**asked["case"]), *asked["about"]))
