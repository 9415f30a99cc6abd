"""The order of the data: decided by seed and epoch alone, so that it can be taken up anywhere."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array, Batch, Dataset
from s4d_torch.training.config import Config
from s4d_torch.training.distributed import Processes

POOL = 16  # batches that are sorted by length together


@dataclass(frozen=True)
class Piece:
    """Of a batch of long sequences the samples from ``first`` on, ``size`` at most.

    ``last`` is the one after which no sequence of the batch goes on.
    """

    number: int
    size: int
    last: bool

    @property
    def first(self) -> int:
        return self.number * self.size


@dataclass(frozen=True)
class Step:
    """The batches of positions whose gradients are added up; or a piece of one batch."""

    batches: list[Array]
    piece: Piece | None = None


@dataclass(frozen=True)
class Order:
    """Batches of positions 0 to count - 1, shuffled anew in each epoch.

    With ``lengths``, sequences of like length meet in a batch, so that little of it is padding:
    each pool of ``POOL`` batches is sorted, and the batches are shuffled again. To ``pack`` them,
    batches hold about the same number of samples instead, ``batch_size`` sequences in the mean.

    ``pieces`` (count,) are how many pieces of ``piece_size`` samples each sequence has. Those with
    as many pieces meet, so that an epoch has as many steps as any other.
    """

    count: int
    batch_size: int
    accumulate: int
    seed: int
    lengths: Array | None = None
    pack: bool = False
    pieces: Array | None = None
    piece_size: int = 0

    @staticmethod
    def of(config: Config, dataset: Dataset) -> "Order":
        """That of a run; an error if its data cannot be packed or cut as its config asks."""
        training, split = config.training, dataset.train
        _check(config, dataset)
        lengths, pieces, size = split.lengths(), None, training.tbptt or 0
        if size:
            pieces = -(-split.inputs[0].lengths(split.index) // size)
        sizes = (training.batch_size, config.optimizer.accumulate, training.seed)
        return Order(len(split), *sizes, lengths, training.pack, pieces, size)

    @property
    def steps(self) -> int:
        """Steps in an epoch; the last one may see fewer sequences."""
        if self.pieces is None:
            return -(-self.count // (self.batch_size * self.accumulate))
        last = np.minimum(np.arange(0, self.count, self.batch_size) + self.batch_size, self.count)
        return int(np.sort(self.pieces)[last - 1].sum())

    def plan(self, epoch: int) -> list[Step]:
        """The steps of an epoch."""
        steps = self.epoch(epoch)
        if self.pieces is None:
            return [Step(batches) for batches in steps]
        counts = [int(self.pieces[batches[0]].max()) for batches in steps]
        return [
            Step(batches, Piece(i, self.piece_size, i == count - 1))
            for batches, count in zip(steps, counts, strict=True)
            for i in range(count)
        ]

    def epoch(self, epoch: int) -> list[list[Array]]:
        """The batches of the epoch, as many together as are added up before a step."""
        random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = random.permutation(self.count)
        if self.pieces is not None:
            order = order[np.argsort(self.pieces[order], kind="stable")]
        if self.pack:
            batches = self._even(order)
        else:
            order = order if self.lengths is None else self._sorted_in_pools(order, self.lengths)
            batches = np.split(order, range(self.batch_size, self.count, self.batch_size))
            if self.lengths is not None:
                batches = [batches[i] for i in random.permutation(len(batches))]
        return [batches[i : i + self.accumulate] for i in range(0, len(batches), self.accumulate)]

    def _sorted_in_pools(self, order: Array, lengths: Array) -> Array:
        pools = np.split(order, range(POOL * self.batch_size, self.count, POOL * self.batch_size))
        return np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])

    def _even(self, order: Array) -> list[Array]:
        """As many batches as without packing, cut where each has its part of all samples."""
        assert self.lengths is not None
        count = -(-self.count // self.batch_size)
        ends = np.cumsum(self.lengths[order])
        middles = ends - self.lengths[order] / 2
        inner = np.arange(1, count)
        cuts = np.searchsorted(middles, inner * (ends[-1] / count))
        # no batch is empty, not even beside a sequence that is longer than the others together
        cuts = np.maximum.accumulate(np.maximum(cuts - inner, 0)) + inner
        return np.split(order, np.minimum(cuts, self.count - count + inner))


def _check(config: Config, dataset: Dataset) -> None:
    """Refuse what cannot be packed, or cut into pieces."""
    training, signature = config.training, dataset.signature
    architecture = config.model.architecture
    if training.pack:
        if signature.towers > 1:
            raise ValueError("pack is not for pairs of sequences; leave it out")
        if dataset.train.lengths() is None:
            raise ValueError(
                f"pack is for sequences of unlike lengths; all of these have {signature.length} "
                "samples, and no padding: leave it out"
            )
        if architecture != "ssm":
            raise ValueError(
                f"pack is not for architecture {architecture!r}, which reads one sequence in a "
                "row; leave it out, or use architecture 'ssm'"
            )
    if training.tbptt is None:
        return
    if signature.kind not in ("generation", "tracking"):
        raise ValueError(
            "tbptt is for tasks with an answer at each sample, as those that generate; this is "
            f"{signature.kind}, with one answer at the end: leave it out"
        )
    if config.method.bidirectional:
        raise ValueError(
            "tbptt carries the state from piece to piece, and a bidirectional model looks ahead "
            "over all of them; use bidirectional False"
        )
    if config.optimizer.accumulate > 1:
        raise ValueError(
            f"tbptt makes a step after every piece, and accumulate {config.optimizer.accumulate} "
            "adds up batches before a step; use a larger batch_size instead"
        )


@dataclass(frozen=True)
class Part:
    """This process's part of a batch; of ``weight`` 0 if it merely repeats another's sequence.

    Of a ``piece``, ``rows`` are the places of those sequences that go on in it, among ``share``
    of this process; ``total`` is how many the batch has in all processes.
    """

    batch: Batch
    weight: float
    piece: Piece | None = None
    rows: Array | None = None
    share: int = 0
    total: int = 0


def read_part(
    dataset: Dataset, positions: Array, piece: Piece | None, processes: Processes, pack: bool
) -> Part:
    """What this process reads of a batch."""
    mine, split = processes.share(positions), dataset.train
    if piece is None:
        # all processes take part in each backward pass: an idle one repeats another's sequence
        used = mine if len(mine) else positions[:1]
        batch = dataset.packed(split, used) if pack else dataset.batch(split, used)
        return Part(batch, float(len(mine) > 0))
    rows = np.flatnonzero(dataset.sample_counts(split, mine) > piece.first)
    used, first = (mine[rows], piece.first) if len(rows) else (positions[:1], 0)
    batch = dataset.piece(split, used, first, piece.size)
    return Part(batch, float(len(rows) > 0), piece, rows, len(mine), len(positions))


def feed(
    dataset: Dataset, steps: list[Step], processes: Processes, *, pack: bool = False
) -> Generator[tuple[list[Part], int], None, None]:
    """For each step its parts and how many targets all processes see in it.

    The next step is read while the current one is computed. Close it: then no thread is left.
    """

    def read(step: Step) -> tuple[list[Part], int]:
        piece, split = step.piece, dataset.train
        parts = [read_part(dataset, batch, piece, processes, pack) for batch in step.batches]
        if piece is None:
            return parts, sum(dataset.answers(split, positions) for positions in step.batches)
        left = dataset.sample_counts(split, step.batches[0]) - piece.first
        return parts, int(left.clip(0, piece.size).sum())

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="s4d-torch-data") as reader:
        coming = reader.submit(read, steps[0])
        for following in steps[1:]:
            ready, coming = coming.result(), reader.submit(read, following)
            yield ready
        yield coming.result()
