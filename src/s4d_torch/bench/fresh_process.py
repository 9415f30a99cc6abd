"""What only a fresh process can tell: peak memory, the time to import, the time to compile.

For memory, inputs, parameters and a first call on a short sequence come first, so that libraries,
threads and compiled code are in place. Then the mark of the highest resident size is reset (Linux),
one call is made, and the rise of the mark above the resident size before it counts. Where the mark
cannot be reset, the rise of the highest size of the whole process stands in for it.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from s4d_torch.bench import contenders
from s4d_torch.bench.measure import Case, Contender
from s4d_torch.training.estimate import peak_memory as peak_memory_so_far
from s4d_torch.training.estimate import process_status

RESET = Path("/proc/self/clear_refs")
WARM_UP = 512  # samples of the first call
PATIENCE = 900  # seconds
MEASURE = "import sys; from s4d_torch.bench.fresh_process import main; main(sys.argv[1])"


def groups() -> dict[str, dict[str, Contender]]:
    """The contenders whose memory can be asked for, by the name of their work."""
    return {
        "ssm": contenders.state_spaces(),
        "layer": contenders.layers({**contenders.LAYERS, **contenders.DPLR_LAYERS}),
    }


def peak_memory(group: str, name: str, case: Case) -> tuple[int | None, str]:
    """(bytes beyond inputs and parameters, or why there are none), from a new process."""
    request = json.dumps({"group": group, "name": name, "case": asdict(case)})
    try:
        answer = _python("-c", MEASURE, request)
    except (subprocess.SubprocessError, OSError) as error:
        return None, f"failed: {_reason(error)}"
    return int(answer), ""


def import_seconds(repeats: int) -> float:
    """The best time to import this package where torch is already imported."""
    code = (
        "import time, torch; start = time.perf_counter(); import s4d_torch;"
        "print(time.perf_counter() - start)"
    )
    return min(float(_python("-c", code)) for _ in range(repeats))


def compile_seconds(d_model: int, d_state: int) -> float:
    """How much longer the first forward and backward pass takes than the next, with no cache."""
    code = (
        "import time, torch; from s4d_torch import SSM;"
        f"ssm = SSM({d_model}, {d_state}); u = torch.randn(1, 64, {d_model});\n"
        "def run():\n"
        "    start = time.perf_counter(); ssm(u)[0].sum().backward()\n"
        "    return time.perf_counter() - start\n"
        "print(run() - run())"
    )
    with tempfile.TemporaryDirectory() as empty:
        return float(_python("-c", code, NUMBA_CACHE_DIR=empty))


def _python(*arguments: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), **environment},
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


def measure(group: str, name: str, case: Case) -> int:
    """Bytes that one call needs at its peak, beyond what was there before it."""
    build = groups()[group][name].build
    build(replace(case, length=min(WARM_UP, case.length)))()
    run = build(case)
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # freed memory could be used again unseen
    try:
        RESET.write_text("5", "utf-8")  # the mark is now the resident size
        before = process_status("VmRSS")
    except (OSError, ValueError):
        before = peak_memory_so_far() or 0
    run()
    return max(0, (peak_memory_so_far() or 0) - before)


def main(request: str) -> None:
    asked = json.loads(request)
    print(measure(asked["group"], asked["name"], Case(**asked["case"])))
