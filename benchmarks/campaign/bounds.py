"""The tests of layers and models once more, on compiled code that checks every place it touches.

Without the check a place outside of its array is read or written without a word, and perhaps
nothing is seen of it.
"""

import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from common import ROOT, Figures, environment, python

COUNT = 4000
ROOMS = ("tests/ssm", "tests/nn")


def run(count: int, seed: int, workers: int) -> Figures:
    """All tests of the rooms, or, if ``count`` is less than there are, those of the first room."""
    figures = Figures("bounds")
    rooms = ROOMS if count >= COUNT else ROOMS[:1]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        checked = environment(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(Path(folder) / "code"))
        command = python("-m", "pytest", "-q", "-n", str(workers), f"--junitxml={report}", *rooms)
        log = subprocess.run(command, cwd=ROOT, env=checked, capture_output=True, text=True)
        if not report.exists():
            figures.fail(f"the tests could not be run: {log.stdout[-1000:]}{log.stderr[-1000:]}")
            return figures
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                figures.fail(name)
            elif "skipped" not in kinds:
                figures.add("within bounds")
    return figures
