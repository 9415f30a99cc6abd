"""Packed rows against padding: real samples per second of whole training steps.

``python benchmarks/packing.py fsdd text`` takes the laptop settings of these tasks. The three ways
to make batches take turns, some steps each, and the best turn of each counts. Padding is not
counted as samples; seconds are those of the processor. ``--data-dir`` names the folder with the
data, as for ``s4d train``.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from s4d_torch.data import DataFolder, Dataset
from s4d_torch.data.folder import default_root
from s4d_torch.data.task import TASKS
from s4d_torch.training import default_config
from s4d_torch.training.batches import Order, Part, feed
from s4d_torch.training.build import build_model
from s4d_torch.training.config import Config
from s4d_torch.training.distributed import Processes
from s4d_torch.training.loop import Trainer
from s4d_torch.training.run import keep_freed_memory, load_dataset
from s4d_torch.training.saved.store import MemoryStore

PADDED, SORTED, PACKED = "padded, random order", "padded, sorted by length", "packed"


def orders(config: Config, dataset: Dataset) -> dict[str, Order]:
    """How each way orders the data; the last but one is what training does without being asked."""
    plain = Order.of(config, dataset)
    return {
        PADDED: replace(plain, lengths=None),
        SORTED: plain,
        PACKED: replace(plain, pack=True),
    }


class Way:
    """A model that is trained on the first steps of an epoch, over and over."""

    def __init__(self, config: Config, dataset: Dataset, order: Order, steps: int) -> None:
        model = build_model(config, dataset.signature)
        device = torch.device("cpu")
        self.trainer = Trainer(config, dataset, model, store=MemoryStore(), device=device)
        self.parts = list(feed(dataset, order.plan(0)[:steps], Processes(), pack=order.pack))
        self.samples = sum(samples(part) for parts, _ in self.parts for part in parts)
        places = sum(
            part.batch.inputs.shape[:2].numel() for parts, _ in self.parts for part in parts
        )
        self.padding = 1 - self.samples / places
        self.best = 0.0

    def turn(self) -> None:
        began = time.process_time()  # of the processor: others may use the machine too
        for parts, count in self.parts:
            self.trainer._step(parts, count)
        self.best = max(self.best, self.samples / (time.process_time() - began))


def samples(part: Part) -> int:
    lengths = part.batch.lengths
    return part.batch.inputs.shape[1] if lengths is None else int(lengths.sum())


def rows(name: str, norm: str | None, folder: DataFolder, steps: int, turns: int) -> Iterator[str]:
    config = default_config(name, "small")
    if norm is not None:
        config = replace(config, model=replace(config.model, norm=norm))
    dataset = load_dataset(TASKS[name], config.data, config, folder)
    ways = {
        which: Way(config, dataset, order, steps)
        for which, order in orders(config, dataset).items()
    }
    for way in ways.values():
        way.turn()
        way.best = 0.0  # the first turn warms up
    for _ in range(turns):
        for way in ways.values():
            way.turn()
    for which, way in ways.items():
        faster = f"{ways[PACKED].best / way.best:.2f}x"
        yield f"| {name} | {which} | {way.padding:.0%} | {way.best:,.0f} | {faster} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--turns", type=int, default=4, help="after one that warms up")
    parser.add_argument("--norm", help="layer, batch or none, instead of the task's own")
    parser.add_argument("--data-dir", type=Path, default=default_root())
    given = parser.parse_args()
    keep_freed_memory()
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}\n", flush=True)
    print("| data | batches | padding | samples/s | packed is faster |\n|---|---|---:|---:|---:|")
    for name in given.tasks:
        folder = DataFolder(given.data_dir, download=False)
        for row in rows(name, given.norm, folder, given.steps, given.turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
