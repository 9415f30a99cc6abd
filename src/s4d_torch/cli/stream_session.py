"""A live stream, followed from its source to its display, until it ends or the user ends it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from torch import Tensor

from s4d_torch._interruption import interruptions
from s4d_torch.cli.predict import described
from s4d_torch.cli.stream_display import Latencies, Lines
from s4d_torch.cli.stream_sources import Source
from s4d_torch.data import TASKS
from s4d_torch.data.dataset import Array
from s4d_torch.deploy.stream.stream import Stream
from s4d_torch.training import Run
from s4d_torch.training.evaluation import physical

RESULTS_PER_SECOND = 10  # unless the user says otherwise


class Session:
    """A stream, followed to the end of its source."""

    def __init__(
        self, run: Run, stream: Stream, source: Source, every: int | None, restart: int | None
    ) -> None:
        self.run, self.stream, self.source, self.restart = run, stream, source, restart
        usual = (source.sample_rate or 0) / RESULTS_PER_SECOND
        self.every = every or max(source.chunk, round(usual))
        self.at = self.chunks = 0
        self.computing = 0.0
        self.latencies = Latencies()
        self._answer: Tensor | None = None
        self._unseen = self._open = False  # there is more to show, and as a last result

    def warm_up(self) -> None:
        """Have everything compiled and in memory before the first sample."""
        signature = self.run.signature
        shape = (self.source.chunk, *([] if signature.tokens else [signature.features]))
        for _ in range(2):
            self._compute(np.zeros(shape))
        self.stream.reset()

    def follow(self, display: Lines, *, paced: bool) -> bool:
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
                    self._fill()
                    break
                self._push(chunk, ready, display)
            self._show(display, last=True)
            return stop.asked

    def _push(self, chunk: Array, ready: float, display: Lines) -> None:
        """``ready`` is when the chunk was there; its latency has no part of what is shown."""
        before, waited, computed = self.at, time.perf_counter() - ready, 0.0
        while len(chunk):
            room = len(chunk) if self.restart is None else self.restart - self.stream.samples
            part, chunk = chunk[: max(1, room)], chunk[max(1, room) :]
            started = time.perf_counter()
            self._answer = self._compute(part)
            computed += time.perf_counter() - started
            self._unseen = self._open = True
            self.at += len(part)
            if self.restart is not None and self.stream.samples >= self.restart:
                self._show(display, last=True)
                self.stream.reset()
        self.chunks += 1
        self.computing += computed
        self.latencies.add(waited + computed)
        if self.at // self.every > before // self.every:
            self._show(display, last=False)

    def _compute(self, values: Array) -> Tensor:
        u = self.run.signature.read(values)
        dtype = next(self.run.model.parameters()).dtype
        answer: Tensor = self.stream.push(u.to(dtype) if u.is_floating_point() else u)
        return answer

    def _fill(self) -> None:
        """Silence up to the length that all clips of the task have, as in training."""
        signature = self.run.signature
        filled = TASKS[self.run.config.task].fixed_length
        if not filled or not self.source.is_sound or self._answer is None:
            return
        rate = self.source.sample_rate or 1.0
        length = round(signature.length * rate / (signature.sample_rate or rate))
        length = length if self.restart is None else min(length, self.restart)
        missing = length - self.stream.samples
        if self.stream.samples and missing > 0:
            self._answer = self._compute(np.zeros((missing, signature.features), np.float32))
            self._unseen = self._open = True

    def _show(self, display: Lines, *, last: bool) -> None:
        if self._answer is None or not (self._open if last else self._unseen):
            return
        signature = self.run.signature
        output = (
            self._answer.double().softmax(-1)
            if signature.kind == "classification"
            else physical(self._answer, signature)
        )
        display.result(
            {
                "at": self.at,
                "seconds": self._seconds(),
                "samples": self.stream.samples,
                **described(output, self.run),
            },
            last,
        )
        self._unseen, self._open = False, self._open and not last

    def _seconds(self) -> float | None:
        return self.at / self.source.sample_rate if self.source.sample_rate else None

    def summary(self) -> dict[str, Any]:
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
