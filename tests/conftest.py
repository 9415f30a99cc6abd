"""What every test needs: calm threads, reproducible examples, the folder of external files."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Before torch is imported: idle OpenMP threads that spin make parallel tests many times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A shell that starts the tests in the background has them, and all they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start

import pytest
import torch
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# The same examples in every run, and no verdict that depends on the clock.
settings.register_profile(
    "s4d",
    deadline=None,
    derandomize=True,
    max_examples=30,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("s4d")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of external files: `S4D_TEST_SHARED`, or `shared` beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("S4D_TEST_SHARED") or beside)
    if not folder.is_dir():
        pytest.skip(f"no folder of external files at {folder}; set S4D_TEST_SHARED to one")
    return folder


@pytest.fixture(scope="session")
def real_data(shared: Path) -> Callable[..., Path]:
    """`real_data("mnist", ...)`: a folder with these packs, laid out as the official downloads.

    Unpacked once and kept among the temporary files; the packs do not change.
    """
    packs = shared / "data"
    if not (packs / "unpack").is_file():
        pytest.skip(f"no packs of real data at {packs}")
    root = Path(tempfile.gettempdir()) / f"s4d-torch-real-data-{os.getuid()}"
    root.mkdir(exist_ok=True)

    def lay_out(*names: str) -> Path:
        with (root / ".lock").open("w") as lock:  # the workers of one run share the folder
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in names:
                done = root / f".{name}"
                if not done.exists():
                    subprocess.run([sys.executable, packs / "unpack", root, name], check=True)
                    done.touch()
        return root

    return lay_out
