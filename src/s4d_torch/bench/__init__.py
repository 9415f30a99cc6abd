"""What ``s4d bench`` runs: ours and the alternatives, timed side by side on one machine.

Contenders (:mod:`.contenders`, :mod:`.models`, :mod:`.jax_layers`; the alternatives in
:mod:`.peers`) take turns on a :class:`Stopwatch`; a work (:mod:`.works`) is a series of such races
at its :class:`Sizes`. A report holds all of it, and judges it against the targets (:mod:`.goals`);
:mod:`.tables` and :mod:`.page` show it.
"""

from s4d_torch.bench.device import DEVICES, check_device
from s4d_torch.bench.goals import TARGETS, judge
from s4d_torch.bench.machine_facts import machine
from s4d_torch.bench.measure import (
    Case,
    Contender,
    Entrant,
    Measurement,
    NotAvailable,
    Stopwatch,
    threads,
)
from s4d_torch.bench.report import BenchReport
from s4d_torch.bench.sizes import QUICK, Shape, Sizes
from s4d_torch.bench.works import WORKS, run_works

__all__ = ["Case", "Contender", "Entrant", "Measurement", "NotAvailable", "Stopwatch", "threads"]
__all__ += ["DEVICES", "check_device", "machine", "Shape", "Sizes", "QUICK", "WORKS", "run_works"]
__all__ += ["BenchReport", "TARGETS", "judge"]
