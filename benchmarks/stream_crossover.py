"""Time per sample of streams, by chunk size, as steps and as sequences.

Prints the table of docs/streaming.md.
"""

import argparse
from collections.abc import Iterator

from s4d_torch import SequenceModel, Stream
from s4d_torch.deploy.stream.live import NEVER, push_seconds, sample_chunk
from s4d_torch.deploy.stream.runner import Runner

LENGTHS = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096)
SIZES = (  # method, layers, d_model, d_state
    *(("s4d", 4, 32, 32), ("s4d", 4, 64, 64), ("s4d", 6, 128, 64), ("s4d", 6, 256, 64)),
    ("s4", 4, 64, 32),
)


def table(repeats: int = 15) -> Iterator[str]:
    yield f"| us per sample, chunk of | {' | '.join(map(str, LENGTHS))} | rule |"
    yield "|---" * (len(LENGTHS) + 2) + "|"
    for method, layers, width, size in SIZES:
        options = {"d_state": size, "norm": "batch", "method": method}
        model = SequenceModel(1, 10, width, layers, **options)  # type: ignore[arg-type]
        rule = Runner(model).enough
        for name, crossover in (("steps", NEVER), ("sequence", 1)):
            stream = Stream(model, crossover=crossover)
            found = [push_seconds(stream, sample_chunk(model, n), repeats) / n for n in LENGTHS]
            cells = " | ".join(f"{1e6 * each:.3g}" for each in found)
            yield f"| {method} {layers} x {width} x {size}, {name} | {cells} | {rule} |"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for line in table():
        print(line, flush=True)
