"""The facts of the machine that a time depends on."""

import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from s4d_torch.bench.device import memory_of_system
from s4d_torch.bench.measure import call_seconds, threads
from s4d_torch.paper.experiments.local_workers import count_cores
from s4d_torch.training.saved.run_folder import environment


def machine(device: str = "cpu", number_of_threads: int | None = None) -> dict[str, Any]:
    """What a time depends on: processor, threads, versions, and a measure of its speed."""
    known, number = environment(), number_of_threads or torch.get_num_threads()
    with threads(number):
        speed = sgemm_gflops()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": known["commit"],  # with "-dirty" where files differ from it
        "cpu": _cpu_model(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": count_cores(),
        "threads": number,
        "memory_gb": round(memory_of_system("MemTotal") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: known[name] for name in ("python", "s4d_torch", "torch", "numpy", "numba")},
        "jax": _installed("jax"),
        **{name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "S4D_TORCH_COMPILED")},
        "sgemm_gflops": round(speed, 1),
    }


def sgemm_gflops(size: int = 1024, repeats: int = 10) -> float:
    """Billions of float32 operations per second in a product of square matrices."""
    a, b, out = torch.ones(3, size, size)
    best = min(call_seconds(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def _installed(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
