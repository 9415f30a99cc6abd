"""The examples run, each in a fresh interpreter, and end with what they set out to show."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
NEEDS = {"export_and_run": "onnxruntime", "classify_series": "sklearn"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path: Path, tmp_path: Path) -> None:
    package = NEEDS.get(path.stem)
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{path.name} needs {package}, which is not installed")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip()
    assert "False" not in result.stdout  # each says what agrees
    assert list(tmp_path.iterdir()) == []  # and leaves nothing behind


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
