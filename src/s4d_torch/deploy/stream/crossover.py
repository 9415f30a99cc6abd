"""From which chunk on a sequence takes less time than its steps, measured.

``python -m s4d_torch.deploy.stream.crossover`` prints the table of docs/streaming.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from s4d_torch.deploy.stream.runner import usual_crossover
from s4d_torch.deploy.stream.stream import Stream
from s4d_torch.nn.model import SequenceModel

LENGTHS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096)
NEVER = 2**62
SIZES = (  # method, layers, d_model, d_state
    *(("s4d", 4, 32, 32), ("s4d", 4, 64, 64), ("s4d", 6, 128, 64), ("s4d", 6, 256, 64)),
    ("s4", 4, 64, 32),
)


def crossover_of(model: SequenceModel, repeats: int = 5) -> int:
    """For ``Stream(model, crossover=...)``: measured for this model on this machine.

    The smallest power of two of samples for which the sequence takes less time, up to 2^14.
    """
    streams = Stream(model, crossover=NEVER), Stream(model, crossover=1)
    for length in (2**k for k in range(4, 15)):
        step, whole = (seconds(stream, _chunk(model, length), repeats) for stream in streams)
        if whole < step:
            return length
    return 2**15


def seconds(stream: Stream, chunk: Tensor, repeats: int) -> float:
    """Of this thread's CPU for one push, which others on the machine hardly change; the best."""
    calls = max(1, 64 // len(chunk))
    best = float("inf")
    with _one_thread():
        stream.push(chunk)
        for _ in range(repeats):
            began = time.thread_time()
            for _ in range(calls):
                stream.push(chunk)
            best = min(best, (time.thread_time() - began) / calls)
    return best


def _chunk(model: SequenceModel, length: int) -> Tensor:
    if isinstance(model.encoder, nn.Embedding):
        return torch.arange(length) % model.d_input
    weight = next(model.parameters())
    return torch.ones(length, model.d_input, dtype=weight.dtype, device=weight.device)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _table(repeats: int = 15) -> Iterator[str]:
    yield f"| us per sample, chunk of | {' | '.join(map(str, LENGTHS))} | rule |"
    yield "|---" * (len(LENGTHS) + 2) + "|"
    for method, layers, width, size in SIZES:
        options = {"d_state": size, "norm": "batch", "method": method}
        model = SequenceModel(1, 10, width, layers, **options)  # type: ignore[arg-type]
        rule = usual_crossover(model)
        for name, crossover in (("steps", NEVER), ("sequence", 1)):
            stream = Stream(model, crossover=crossover)
            found = [seconds(stream, _chunk(model, n), repeats) / n for n in LENGTHS]
            cells = " | ".join(f"{1e6 * each:.3g}" for each in found)
            yield f"| {method} {layers} x {width} x {size}, {name} | {cells} | {rule} |"


if __name__ == "__main__":
    for line in _table():
        print(line, flush=True)
