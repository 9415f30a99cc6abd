"""A live stream, followed from its source until it ends or the user ends it."""

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from s4d_torch._interruption import interruptions
from s4d_torch.data.dataset import Array
from s4d_torch.data.task import TASKS
from s4d_torch.deploy.inference import labelled
from s4d_torch.deploy.stream.live import Stream
from s4d_torch.deploy.stream.sources import ChunkSource
from s4d_torch.training.evaluation import physical
from s4d_torch.training.run import Run

RESULTS_PER_SECOND = 10  # unless the user says otherwise
PERCENTILES = (50, 95, 99)
STEP = 1.01  # each bin of the histogram of latencies is so much longer than the one before
SHORTEST, LONGEST = 1e-6, 1e4  # seconds

ShowResult = Callable[[dict[str, Any], bool], None]
"""Is given a result, and whether it is the last of its stream (or before it begins again)."""


class Latencies:
    """Percentiles of any number of times in a fixed amount of memory, to 1%."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()  # by bin
        self.count, self.longest = 0, 0.0

    def add(self, seconds: float) -> None:
        seconds = max(seconds, SHORTEST)
        self._counts[math.ceil(math.log(min(seconds, LONGEST) / SHORTEST, STEP))] += 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def percentile(self, percent: float) -> float:
        """The time that so many per cent of all do not exceed; NaN where there are none."""
        needed, seen = max(1, math.ceil(percent / 100 * self.count)), 0
        for place, count in sorted(self._counts.items()):
            seen += count
            if seen >= needed:
                return min(SHORTEST * STEP**place, self.longest)
        return math.nan

    def in_milliseconds(self) -> dict[str, float]:
        found = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        found["max"] = self.longest if self.count else math.nan
        return {name: round(1e3 * seconds, 4) for name, seconds in found.items()}


class StreamSession:
    """The stream of a run, followed to the end of its source.

    A result comes after each ``every`` samples, by default ten times a second; after ``restart``
    samples the stream begins again.
    """

    def __init__(
        self,
        run: Run,
        stream: Stream,
        source: ChunkSource,
        every: int | None = None,
        restart: int | None = None,
    ) -> None:
        self.run, self.stream, self.source, self.restart = run, stream, source, restart
        usual = (source.sample_rate or 0) / RESULTS_PER_SECOND
        self.every = every or max(source.chunk, round(usual))
        self.at, self.chunks, self.computing, self.latencies = 0, 0, 0.0, Latencies()
        self._answer: Tensor | None = None
        self._unseen = self._open = False  # there is more to show, and as a last result

    def warm_up(self) -> None:
        """Have everything compiled and in memory before the first sample."""
        signature = self.run.signature
        shape = (self.source.chunk, *([] if signature.tokens else [signature.features]))
        for _ in range(2):
            self._compute(np.zeros(shape))
            if self.source.timed:
                self._compute_timed(np.zeros(shape), np.full(shape[0], 2.0))
        self.stream.reset()

    def follow(self, show: ShowResult, *, paced: bool) -> bool:
        """Push all chunks, each at its time if ``paced``; True if the user ended it before."""
        with interruptions() as stop:
            began, chunks = time.perf_counter(), iter(self.source.chunks)
            while not stop.asked:
                try:
                    with stop.waiting():
                        chunk = next(chunks, None)
                        ready = time.perf_counter()
                        if chunk is not None and paced and self.source.sample_rate:
                            ready = began + (self.at + len(chunk)) / self.source.sample_rate
                            time.sleep(max(0.0, ready - time.perf_counter()))
                except KeyboardInterrupt:
                    break
                if chunk is None:
                    self._pad()
                    break
                self._push(chunk, ready, show)
            self._show(show, last=True)
            return stop.asked

    def _push(self, chunk: Array, ready: float, show: ShowResult) -> None:
        """``ready`` is when the chunk was there; its latency has no part of what is shown."""
        before, waited, computed = self.at, time.perf_counter() - ready, 0.0
        while len(chunk):
            room = len(chunk) if self.restart is None else self.restart - self.stream.samples
            part, chunk = chunk[: max(1, room)], chunk[max(1, room) :]
            started = time.perf_counter()
            self._answer = self._timed(part) if self.source.timed else self._compute(part)
            computed += time.perf_counter() - started
            self._unseen = self._open = True
            self.at += len(part)
            if self.restart is not None and self.stream.samples >= self.restart:
                self._show(show, last=True)
                self.stream.reset()
        self.chunks += 1
        self.computing += computed
        self.latencies.add(waited + computed)
        if self.at // self.every > before // self.every:
            self._show(show, last=False)

    def _compute(self, values: Array) -> Tensor:
        return self.stream.push(self._read(values))

    def _read(self, values: Array) -> Tensor:
        u = self.run.signature.read(values)
        dtype = next(self.run.model.parameters()).dtype
        return u.to(dtype) if u.is_floating_point() else u

    def _timed(self, part: Array) -> Tensor:
        """Samples with their times before them; the first of a stream has the usual gap."""
        clock, before, times = self.run.signature.clock, self.stream.time, part[:, 0]
        assert clock is not None
        if before is not None and times[0] <= before:
            raise ValueError(
                f"the time {times[0]:.15g} does not come after {before:.15g}, that of the last "
                "sample of the stream that goes on"
            )
        known = times if before is None else np.append(before, times)
        answer = self._compute_timed(part[:, 1:], clock.gaps(known)[-len(times) :])
        self.stream.time = float(times[-1])
        return answer

    def _compute_timed(self, values: Array, gaps: Array) -> Tensor:
        return self.stream.push(self._read(values), rate=gaps * self.stream.rate)

    def _pad(self) -> None:
        """Silence up to the length that all clips of the task have, as in training."""
        signature = self.run.signature
        padded = TASKS[self.run.config.task].fixed_length and self.source.is_sound
        if not padded or self._answer is None:
            return
        rate = self.source.sample_rate or 1.0
        length = round(signature.length * rate / (signature.sample_rate or rate))
        missing = min(length, self.restart or length) - self.stream.samples
        if self.stream.samples and missing > 0:
            self._answer = self._compute(np.zeros((missing, signature.features), np.float32))
            self._unseen = self._open = True

    def _show(self, show: ShowResult, *, last: bool) -> None:
        if self._answer is None or not (self._open if last else self._unseen):
            return
        signature, output = self.run.signature, self._answer
        chances = signature.kind == "classification"
        output = output.double().softmax(-1) if chances else physical(output, signature)
        place = {"at": self.at, "seconds": self._seconds(), "samples": self.stream.samples}
        show({**place, **labelled(output, signature)}, last)
        self._unseen, self._open = False, self._open and not last

    def _seconds(self) -> float | None:
        return self.at / self.source.sample_rate if self.source.sample_rate else None

    def summary(self) -> dict[str, Any]:
        """How much was heard, and how long it took."""
        seconds = self._seconds()
        return {
            "at": self.at,
            "seconds": seconds,
            "chunks": self.chunks,
            "chunk": self.source.chunk,
            "samples": self.stream.samples,
            "latency_ms": self.latencies.in_milliseconds(),
            "computing_seconds": round(self.computing, 6),
            "real_time_factor": self.computing / seconds if seconds else None,
        }
