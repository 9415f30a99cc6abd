"""A cache of compiled code that is damaged, full or not to be written to stops nothing."""

import errno
import os
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from numba.core import config
from numba.core.caching import IndexDataCacheFile

from s4d_torch.ssm.compiled import code_cache

SMALL = """
from s4d_torch.ssm.compiled.code_cache import cached_njit

@cached_njit(nogil=True)
def double(x):
    return 2 * x

@cached_njit(nogil=True)
def triple(x):
    return 3 * x
"""

LAYER = """
import logging, sys
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
import torch
from s4d_torch import S4D
from s4d_torch.ssm.engine import choose

layer = S4D(4, 4, generator=torch.Generator().manual_seed(0))
u = torch.ones(2, 9, 4, requires_grad=True)
layer(u)[0].sum().backward()
assert choose("auto", layer.ssm._stored(1.0), u) == "scan"
print("answer", float(u.grad.abs().sum()))
"""


def hits(folder: Path) -> int:
    """Functions that a new module finds in the cache; they give the right answers."""
    path = folder / "functions.py"
    if not path.exists():
        path.write_text(SMALL, encoding="utf-8")
    spec = spec_from_file_location("functions", path)
    assert spec is not None
    assert spec.loader is not None
    code = module_from_spec(spec)
    spec.loader.exec_module(code)
    assert code.double(2.0) == 4.0
    assert code.triple(2.0) == 6.0
    assert code.double(np.ones(2))[0] == 2.0
    return sum(sum(f.stats.cache_hits.values()) for f in (code.double, code.triple))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if numba had been imported with another NUMBA_CACHE_DIR, and nothing been said yet."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    monkeypatch.setattr(code_cache, "_said", False)
    monkeypatch.setattr(code_cache, "_announced", time.monotonic())  # as if it had been
    monkeypatch.setattr(code_cache, "QUIET", 1e9)
    return tmp_path / "cache"


def test_compiling_is_announced_before_it_begins(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(code_cache, "_announced", None)
    assert hits(tmp_path) == 0
    (said,) = caplog.messages
    assert "compiling for this CPU, once" in said
    assert str(cache) in said
    monkeypatch.setattr(code_cache, "QUIET", 0.0)
    assert hits(tmp_path) == 3
    assert len(caplog.messages) == 1  # nothing was compiled


def test_a_change_in_what_is_called_is_noticed(tmp_path: Path, cache: Path) -> None:
    """Numba's own cache looks at the file of a function alone."""
    inner, outer = tmp_path / "inner_code.py", tmp_path / "outer_code.py"
    outer.write_text(
        "from s4d_torch.ssm.compiled.code_cache import cached_njit\n"
        "from inner_code import NUMBER, grow\n\n"
        "@cached_njit(nogil=True)\ndef run(x):\n    return grow(x) + NUMBER\n"
    )
    run = (
        "import sys; sys.path.insert(0, sys.argv[1]); from outer_code import run; "
        "print(run(2.0), sum(run.stats.cache_hits.values()))"
    )

    def answer(factor: int, number: int) -> list[str]:
        inner.write_text(
            "from s4d_torch.ssm.compiled.code_cache import part\n"
            f"NUMBER = {number}\n\n@part\ndef grow(x):\n    return {factor} * x\n"
        )
        command = [sys.executable, "-c", run, str(tmp_path)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "other")}
        return subprocess.check_output(command, env=environment, text=True, timeout=300).split()

    assert answer(3, 0) == ["6.0", "0"]
    assert answer(3, 0) == ["6.0", "1"]
    assert answer(4, 0) == ["8.0", "0"]
    assert answer(4, 5) == ["13.0", "0"]
    assert answer(3, 0) == ["6.0", "1"]


def flip(content: bytes) -> bytes:
    """The middle of the file, where the machine code is."""
    half = len(content) // 2
    return content[:half] + bytes(x ^ 255 for x in content[half : half + 64]) + content[half + 64 :]


DAMAGE = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "garbage": lambda content: b"\x00garbage" * 100,
    "flipped bits": flip,
}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cache_is_made_anew(
    tmp_path: Path, cache: Path, kind: str, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert hits(tmp_path) == 0
    assert hits(tmp_path) == 3
    files = list(cache.rglob(f"*{suffix}"))
    assert files
    for file in files:
        file.write_bytes(DAMAGE[kind](file.read_bytes()))
    hits(tmp_path)
    if suffix == ".nbc" or kind != "flipped bits":  # flips may leave an index that knows nothing
        (said,) = caplog.messages
        assert "is damaged" in said
        assert "compiled anew" in said
    assert hits(tmp_path) == 3
    assert len(caplog.messages) <= 1


def test_a_full_disk(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(IndexDataCacheFile, "_open_for_write", full)
        assert hits(tmp_path) == 0
    (said,) = caplog.messages
    assert "cannot be kept" in said
    assert "No space left on device" in said
    assert hits(tmp_path) == 0
    assert hits(tmp_path) == 3


def test_no_folder_to_write_to(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_bytes(b"")
    assert hits(tmp_path) == 0
    (said,) = caplog.messages
    assert "cannot be kept" in said
    assert "NUMBA_CACHE_DIR" in said


def test_a_layer_with_a_damaged_cache_keeps_its_engine(tmp_path: Path) -> None:
    def run() -> list[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", LAYER]
        return subprocess.check_output(
            command, env=environment, text=True, timeout=300
        ).splitlines()

    answer = run()[-1]
    for file in (tmp_path / "cache").rglob("*.nb?"):
        file.write_bytes(file.read_bytes()[:100])
    lines = run()
    assert sum("is damaged" in line for line in lines) == 1
    assert lines[-1] == answer
