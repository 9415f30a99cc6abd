"""The order of the data: decided by seed and epoch alone, so that it can be taken up anywhere."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array, Batch, Dataset
from s4d_torch.training.distributed import Processes

POOL = 16  # batches that are sorted by length together


@dataclass(frozen=True)
class Order:
    """Batches of positions 0 to count - 1, shuffled anew in each epoch.

    With ``lengths``, sequences of like length meet in a batch, so that little of it is padding:
    each pool of ``POOL`` batches is sorted, and the batches are shuffled again.
    """

    count: int
    batch_size: int
    accumulate: int
    seed: int
    lengths: Array | None = None

    @property
    def steps(self) -> int:
        """Steps in an epoch; the last one may see fewer sequences."""
        return -(-self.count // (self.batch_size * self.accumulate))

    def epoch(self, epoch: int) -> list[list[Array]]:
        """For each step of the epoch its batches, as many as are added up before it."""
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = random.permutation(self.count)
        if self.lengths is not None:
            size = POOL * self.batch_size
            pools = [order[i : i + size] for i in range(0, self.count, size)]
            sort = [np.argsort(self.lengths[pool], kind="stable") for pool in pools]
            order = np.concatenate([pool[by] for pool, by in zip(pools, sort, strict=True)])
        batches = [order[i : i + self.batch_size] for i in range(0, self.count, self.batch_size)]
        if self.lengths is not None:
            batches = [batches[i] for i in random.permutation(len(batches))]
        return [batches[i : i + self.accumulate] for i in range(0, len(batches), self.accumulate)]


@dataclass(frozen=True)
class Part:
    """This process's part of a batch; of ``weight`` 0 if it merely repeats another's sequence."""

    batch: Batch
    weight: float


def feed(
    dataset: Dataset, steps: list[list[Array]], processes: Processes
) -> Generator[tuple[list[Part], int], None, None]:
    """For each step its parts and how many targets all processes see in it.

    The next step is read while the current one is computed. Close it: then no thread is left.
    """

    def read(step: list[Array]) -> tuple[list[Part], int]:
        parts = []
        for positions in step:
            mine = processes.share(positions)
            # all processes take part in each backward pass: an idle one repeats another's sequence
            used = mine if len(mine) else positions[:1]
            parts.append(Part(dataset.batch(dataset.train, used), float(len(mine) > 0)))
        return parts, sum(dataset.answers(dataset.train, positions) for positions in step)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="s4d-torch-data") as reader:
        coming = reader.submit(read, steps[0])
        for following in steps[1:]:
            ready, coming = coming.result(), reader.submit(read, following)
            yield ready
        yield coming.result()
