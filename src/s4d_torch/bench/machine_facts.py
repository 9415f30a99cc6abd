"""The facts of the machine that a time depends on."""

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from s4d_torch.bench.measure import call_seconds, memory_of_system
from s4d_torch.paper.experiments.local_workers import count_cores
from s4d_torch.training.saved.run_folder import environment


def machine() -> dict[str, Any]:
    """What a time depends on: processor, threads, versions, and a measure of its speed."""
    known = environment()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": count_cores(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(memory_of_system("MemTotal") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: known[name] for name in ("python", "s4d_torch", "torch", "numpy", "numba")},
        **{name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "S4D_TORCH_COMPILED")},
        "sgemm_gflops": round(sgemm_gflops(), 1),
    }


def sgemm_gflops(size: int = 1024, repeats: int = 10) -> float:
    """Billions of float32 operations per second in a product of square matrices."""
    a, b, out = torch.ones(3, size, size)
    best = min(call_seconds(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
