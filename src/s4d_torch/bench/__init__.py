"""What ``s4d bench`` runs: ours and the alternatives, timed side by side on one machine.

Contenders (:mod:`.contenders`, :mod:`.models`; the alternatives in :mod:`.peers`) take turns on a
:class:`Stopwatch`; a work (:mod:`.works`) is a series of such races. A report holds all of it, and
judges it against the targets (:mod:`.targets`).
"""

from s4d_torch.bench.goals import TARGETS, judge
from s4d_torch.bench.machine_facts import machine
from s4d_torch.bench.measure import Case, Contender, Measurement, NotAvailable, Stopwatch, threads
from s4d_torch.bench.report import BenchReport
from s4d_torch.bench.works import QUICK, WORKS, Sizes, run_works

__all__ = ["Case", "Contender", "Measurement", "NotAvailable", "Stopwatch", "threads", "machine"]
__all__ += ["WORKS", "Sizes", "QUICK", "run_works", "BenchReport", "TARGETS", "judge"]
