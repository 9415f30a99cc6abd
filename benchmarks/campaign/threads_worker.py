"""Calls from 8 threads at lengths and rates that make each other's tables leave the cache."""

import os
import random
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch

from s4d_torch import S4D, SequenceModel, Stream

THREADS = 8
RATES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
LENGTHS = (1, 5, 33, 64, 100, 257)


def different(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return not torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def shared(kind: str, seed: int, calls: int) -> int:
    """Every answer beside that of a single thread."""
    torch.manual_seed(seed)
    layer, model = S4D(4, 8).eval(), SequenceModel(4, 3, 6, 2, d_state=8).eval()
    u = torch.randn(2, max(LENGTHS), 4)

    def call(length: int, rate: float) -> torch.Tensor:
        if kind == "stream":
            stream = Stream(model, rate=rate)
            return torch.stack([stream.push(part) for part in u[0, :length].split(40)])[-1]
        module = layer if kind == "layer" else model
        y: torch.Tensor = module(u[:, :length], rate=rate)[0]
        return y

    work = [(length, rate) for length in LENGTHS for rate in RATES]
    wanted = {each: call(*each) for each in work}
    chance = random.Random(seed)
    asked = [chance.choice(work) for _ in range(calls)]
    with ThreadPoolExecutor(THREADS) as pool:
        for each, y in zip(asked, pool.map(lambda each: call(*each), asked), strict=True):
            assert not different(y, wanted[each]), f"another answer at {each}"
    return calls


def forked(seed: int, calls: int) -> int:
    """Children that are forked after the compiled code has run go on with it."""
    torch.manual_seed(seed)
    layer, u = S4D(4, 8), torch.randn(2, 100, 4)
    wanted = layer(u)[0]
    for number in range(calls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if not child:
            signal.alarm(60)  # a child that hangs is ended
            y = layer(u)[0]
            y.sum().backward()
            os._exit(1 if different(y, wanted) else 0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, f"child {number} ended with {status}"
    return calls


if __name__ == "__main__":
    name, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(forked(start, count) if name == "fork" else shared(name, start, count))
