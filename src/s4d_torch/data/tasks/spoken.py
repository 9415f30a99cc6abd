"""Spoken digits that come with the package: raw audio at 8 kHz, up to half a second, ragged.

``spoken.npz`` beside this file holds takes 0 to 19 of each digit by three of the six speakers of
the Free Spoken Digit Dataset (Jackson et al., CC BY-SA 4.0; see ``spoken.licence.txt``), cut after
half a second, each raised to full loudness and rounded to 32 levels of the mu-law: ``levels``
(samples,) of all clips one after the other, ``lengths``, ``digits``, ``speakers`` and ``takes``
(600,). ``benchmarks/embed_spoken.py`` makes it of the original recordings.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from s4d_torch.data.dataset import Dataset, Sequences, Signature, Split
from s4d_torch.data.files.sound import root_mean_square
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import LAPTOP, Task, register
from s4d_torch.data.tasks.quantization import decode_mu_law

CLIPS = Path(__file__).with_name("spoken.npz")
RATE, LONGEST = 8000, 4000
RATES = (8000, 4000)
LEVELS, LOUDEST = 32, 2**15 - 1  # as stored, and as int16
TEST_TAKES, VALIDATION_TAKES = 4, 2  # the first of each speaker and digit, and those after them


@dataclass(frozen=True)
class SpokenOptions:
    """600 clips by three speakers: takes 0 to 3 of each digit test, 4 and 5 validate."""

    sample_rate: Literal[8000, 4000] = 8000
    """samples per second; 4000 takes every second sample, without a filter"""

    def __post_init__(self) -> None:
        if self.sample_rate not in RATES:
            raise ValueError(f"sample_rate {self.sample_rate}: choose 8000 or 4000")


def load_spoken(
    options: SpokenOptions = SpokenOptions(),  # noqa: B008  frozen
    folder: DataFolder | None = None,
) -> Dataset:
    """Clips of int16, (samples, 1) each, read with the loudness of training as 1; classes 0 to 9.

    All three speakers are in every split, with other takes: this measures words, not unknown
    voices.
    """
    with np.load(CLIPS) as stored:
        values = np.rint(decode_mu_law(np.arange(LEVELS), LEVELS) * LOUDEST).astype(np.int16)
        offsets = np.concatenate([[0], np.cumsum(stored["lengths"], dtype=np.int64)])
        clips = Sequences(values[stored["levels"]][:, None], offsets)
        digits, takes = stored["digits"].astype(np.int64), stored["takes"]
    after = TEST_TAKES + VALIDATION_TAKES
    rows = (takes >= after, (takes >= TEST_TAKES) & (takes < after), takes < TEST_TAKES)
    train, validation, test = map(np.flatnonzero, rows)
    signature = Signature.of_classes(
        "0123456789",
        length=clips.longest,
        input_scale=(1 / root_mean_square(clips, train),),
        sample_rate=RATE,
    )
    splits = map(Split.whole(clips, digits).part, (train, validation, test))
    dataset = Dataset.of(splits, signature).grouped()
    return dataset if options.sample_rate == RATE else dataset.decimated(RATE // 4000)


register(
    Task(
        name="spoken",
        summary="spoken digits, raw audio at 8 kHz, up to half a second",
        options=SpokenOptions,
        load=load_spoken,
        metric="accuracy",
        length=LONGEST,
        size="embedded",
        licence="CC BY-SA 4.0",
        citation="Jackson et al., Free Spoken Digit Dataset",
        small=replace(
            LAPTOP,
            n_layers=2,
            d_model=32,
            d_state=16,
            norm="batch",
            dropout=0.0,
            lr=0.015,
            batch_size=8,
            epochs=12,
            bidirectional=False,
        ),
    )
)
