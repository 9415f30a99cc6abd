"""Work done by several processes, its results in order."""

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
OrderedMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # as map
FEW_BLOCKS = 4  # done here: until other processes are up, these are done too


@contextmanager
def ordered_map(processes: int) -> Iterator[OrderedMap]:
    """``map`` over processes, a few items ahead of whoever reads the results, in order.

    Work and items must be picklable, and a script that calls this needs the usual
    ``if __name__ == "__main__":``, as each process imports it.
    """
    if processes <= 1:
        yield map
        return
    # Spawned, not forked: a fork of a process in which torch runs threads may hang.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:

        def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
            rest = iter(items)
            waiting: deque[Future[Result]] = deque(
                pool.submit(work, item) for item in islice(rest, 2 * processes)
            )
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(rest, 1))

        try:
            yield ahead
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended abruptly; a script that starts workers needs "
                "'if __name__ == \"__main__\":' around what it runs, or use one worker"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def in_order(jobs: Sequence[Callable[[], Result]], workers: int) -> Iterator[Result]:
    """The results of ``jobs``, done by ``workers`` processes, 0 for one per core."""
    count = min(workers or os.cpu_count() or 1, len(jobs))
    with ordered_map(1 if len(jobs) <= FEW_BLOCKS else count) as run:
        yield from run(operator.call, jobs)
