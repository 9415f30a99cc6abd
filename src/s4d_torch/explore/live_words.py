"""Words as a stream hears them: in chunks, with an answer after each."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.deploy.stream import Stream
from s4d_torch.nn.model import SequenceModel
from s4d_torch.training import Run

CHUNK = 80  # samples: 10 ms at 8 kHz


@dataclass(frozen=True)
class LiveWord:
    """One clip: ``samples`` (length, 1), and the chances (chunks, classes) after each chunk."""

    said: str
    classes: tuple[str, ...]
    samples: Array
    sample_rate: float
    chances: Array
    computing: float
    """seconds, for all chunks"""

    @property
    def heard(self) -> str:
        return self.classes[int(self.chances[-1].argmax())]

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    @property
    def times(self) -> list[float]:
        """The end of each chunk, in seconds."""
        ends = np.arange(1, len(self.chances) + 1) * CHUNK
        return [float(end) for end in np.minimum(ends, len(self.samples)) / self.sample_rate]

    @property
    def decided(self) -> float:
        """Seconds after which the answer was the last one, and stayed so."""
        other = np.flatnonzero(self.chances.argmax(1) != self.chances[-1].argmax())
        return self.times[other[-1] + 1] if len(other) else self.times[0]


def listen(run: Run, data: Dataset, count: int, seed: int) -> list[LiveWord]:
    """Clips of the test split, drawn by the seed and whatever comes of them, through a stream."""
    assert isinstance(run.model, SequenceModel)
    stream = Stream(run.model)
    rate, rows = data.signature.sample_rate or 1.0, data.test.index
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    words = []
    for row in rows[chosen]:
        samples = data.test.inputs[0][int(row)]
        read = data.signature.read(samples)
        stream.push(read[:1])  # what has to be compiled first
        stream.reset()
        began = time.perf_counter()
        scores = torch.stack([stream.push(chunk) for chunk in read.split(CHUNK)])
        spent = time.perf_counter() - began
        stream.reset()
        said = data.signature.classes[int(data.test.targets[row])]
        chances = scores.double().softmax(1).numpy()
        words.append(LiveWord(said, data.signature.classes, samples, rate, chances, spent))
    return words
