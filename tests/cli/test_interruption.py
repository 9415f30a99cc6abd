"""Ctrl-C at any moment of a command: no traceback, and the exit code of an interrupted one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Python imports this before anything else. It tells when a module is being imported: of what comes
# before torch most is Python's own, and within a few hundredths of a second.
NOTICE = """
import sys, time
class Notice:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            open({file!r}, "w").close()
            exec("time.sleep({pause})")  # source, as that of dataclasses and numba is
sys.meta_path.insert(0, Notice())
"""


def interrupted(
    folder: Path, seconds: float, *arguments: str, module: str = "torch", pause: float = 0
) -> tuple[int, str]:
    """The exit code of a command that gets Ctrl-C so long after it began, and what it said.

    It begins with the import of ``module``, which can be made to take longer.
    """
    begun = folder / "begun"
    begun.unlink(missing_ok=True)
    notice = NOTICE.format(module=module, file=str(begun), pause=pause)
    (folder / "sitecustomize.py").write_text(notice)
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
@pytest.mark.parametrize(
    "command", [["train", "--help"], ["tasks"], ["info", "absent"], ["runs"], ["methods"]], ids=str
)
def test_while_a_command_is_imported(command: list[str], tmp_path: Path) -> None:
    assert interrupted(tmp_path, 0.1, *command) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process")
@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["--help"], "s4d_torch._version"),
        (["--help"], "rich"),
        (["--version"], "importlib.metadata"),
        (["runs", "--help"], "tyro"),
        (["runs"], "s4d_torch.cli.runs"),
    ],
    ids=str,
)
def test_before_torch_is_imported(command: list[str], module: str, tmp_path: Path) -> None:
    """What takes a tenth of a second is held up, so that Ctrl-C comes in its midst."""
    assert interrupted(tmp_path, 0.0, *command, module=module, pause=20) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process")
def test_within_source_that_is_executed(tmp_path: Path) -> None:
    """Python would end the process by the signal, though the interrupt has been caught."""
    train = ("train", "digits", "--epochs", "1000")
    code, said = interrupted(tmp_path, 0.2, *train, module="filelock", pause=20)
    assert "Traceback" not in said
    assert code == 130, said


def test_importing_the_package_changes_no_handler() -> None:
    script = "import signal, s4d_torch; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "default_int_handler\n"
