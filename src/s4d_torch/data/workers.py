"""Work in blocks, done by several processes, in order, with progress on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")
FEW_BLOCKS = 4  # done here: until other processes are up, these are done too


def in_order(jobs: Sequence[Callable[[], Result]], workers: int) -> Iterator[Result]:
    """The results of ``jobs``, in their order, few of them in memory at a time.

    ``workers`` processes do them, 0 for one per core. Jobs must be picklable, and a script that
    calls this needs the usual ``if __name__ == "__main__":``, as each process imports it.
    """
    count = min(workers or os.cpu_count() or 1, len(jobs))
    if count <= 1 or len(jobs) <= FEW_BLOCKS:
        yield from (job() for job in jobs)
        return
    # Spawned, not forked: a fork of a process in which torch runs threads may hang.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        try:
            rest = iter(jobs)
            waiting: deque[Future[Result]] = deque(
                pool.submit(job) for job in islice(rest, 2 * count)
            )
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(job) for job in islice(rest, 1))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended abruptly; a script that starts workers needs "
                "'if __name__ == \"__main__\":' around what it runs, or use one worker"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with how many more are done: a bar on a terminal, or a line per tenth."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.console import Console  # slow to import, and seldom needed
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _lines(what: str, total: int) -> Callable[[int], None]:
    begun, done = time.monotonic(), 0

    def advance(more: int) -> None:
        nonlocal done
        before, done = done, done + more
        if 10 * done // total > 10 * before // total:
            seconds = time.monotonic() - begun
            print(f"{what}: {done} of {total} in {seconds:.0f} s", file=sys.stderr)

    return advance
