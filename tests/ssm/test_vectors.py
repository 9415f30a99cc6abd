"""Vectors of compiled code: places are checked where that is asked for."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

# writes to one place of an array of 100 numbers, one vector or four, or adds in double precision
SCRIPT = """
import sys
import numpy as np
from numba import njit
from s4d_torch.ssm.compiled.runtime import LANES
from s4d_torch.ssm.compiled.vectors import add_wide, fill, load, load_four, store, store_four

@njit
def one(x, place): store(x, place, load(x, 0))
@njit
def read(x, place): store(x, 0, load(x, place))
@njit
def four(x, place): store_four(x, place, load_four(x, 0))
@njit
def wide(x, place): add_wide(x, place, load(x, 0))

for name, vectors in (("one", 1), ("read", 1), ("four", 4), ("wide", 1)):
    x = np.zeros(100, np.float64 if name == "wide" else np.float32)
    call, last = globals()[name], 100 - vectors * LANES
    call(x, 0), call(x, last)
    for place in (-1, last + 1, 100):
        try:
            call(x, place)
        except IndexError as error:
            assert "out of bounds" in str(error)
        else:
            sys.exit(f"{name}: nothing is said of place {place}")
"""


def test_places_are_checked_on_request() -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
