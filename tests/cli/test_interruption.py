"""Ctrl-C at any moment of a command: no traceback, and the exit code of an interrupted one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Python imports this before anything else. It tells when torch is being imported: what comes before
# is Python's own, and within a few hundredths of a second.
NOTICE = """
import sys
class Notice:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            open({file!r}, "w").close()
sys.meta_path.insert(0, Notice())
"""


def interrupted(folder: Path, seconds: float, *arguments: str) -> tuple[int, str]:
    """The exit code of a command that gets Ctrl-C so long after it began, and what it said."""
    begun = folder / "begun"
    begun.unlink(missing_ok=True)
    (folder / "sitecustomize.py").write_text(NOTICE.format(file=str(begun)))
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "s4d_torch", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        while not begun.exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    return process.returncode, said


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process")
@pytest.mark.parametrize("seconds", [0, 0.05, 0.2, 0.5, 1, 1.5, 2, 3])
def test_in_the_first_seconds(seconds: float, tmp_path: Path) -> None:
    code, said = interrupted(tmp_path, seconds, "train", "digits", "--epochs", "1000")
    assert "Traceback" not in said
    assert code == 130, said


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process")
@pytest.mark.parametrize("command", [["--help"], ["tasks"], ["info", "absent"]], ids=str)
def test_while_a_command_is_imported(command: list[str], tmp_path: Path) -> None:
    assert interrupted(tmp_path, 0.1, *command) == (130, "")


def test_importing_the_package_changes_no_handler() -> None:
    script = "import signal, s4d_torch; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "default_int_handler\n"
