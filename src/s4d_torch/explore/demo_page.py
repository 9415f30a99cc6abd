"""The page of ``s4d demo``: scores, accuracy over time, words as a stream hears them, kernels."""

import io
import platform
from collections.abc import Mapping, Sequence

import torch

from s4d_torch.data.files.sound import full_scale, write_wav
from s4d_torch.explore.interactive import state_spaces
from s4d_torch.explore.live_words import CHUNK, LiveWord
from s4d_torch.explore.side_by_side import COLUMNS, OURS, Trial, result_rows, verdict
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.paper.report import Chart, Code, Heading, Line, Page, Paragraph, Sound, Table
from s4d_torch.training.build import build_model

KERNELS, KERNEL_LENGTH = 4, 200  # features shown, and samples: 25 ms
LIKELIEST = 4  # digits whose chances are drawn

DATA = (
    "Spoken digits as raw audio, up to 4000 samples at 8 kHz: no spectrograms, no features. 420 "
    "clips to learn from, 60 to validate and 120 to test, by the same three speakers, with other "
    "takes in each: this tells words apart, not unknown voices. One run of each model; of the 120 "
    "test clips one is 0.8 points."
)
RATE = (
    "At half the rate, every second sample of the test clips is left out, and nothing is trained "
    "again. A state space model is told so (rate=2), as its parameters are those of a system in "
    "continuous time; an LSTM knows no time."
)
TIME = (
    "Both see the clips as often and have about as many parameters. An LSTM's gradient has to go "
    "back through thousands of steps. Neither has finished learning: --epochs gives both more time."
)
LIVE = (
    "Clips of the test split, drawn at random and shown whatever came of them, go through a "
    f"Stream in chunks of {CHUNK} samples (10 ms). After each chunk the model says what it has "
    "heard so far; it looks only back."
)


def demo_page(trials: Mapping[str, Trial], words: Sequence[LiveWord]) -> Page:
    """What ``compare`` and ``listen`` found."""
    ours = trials[OURS].run
    curves = [Line(name, trial.seconds, trial.curve) for name, trial in trials.items()]
    page = Page("Spoken digits, sample by sample")
    page.add(
        Paragraph(verdict(trials)),
        Table(list(COLUMNS), result_rows(trials), "Weights that did best on the validation clips"),
        Paragraph(DATA),
        Paragraph(RATE),
        Heading("Accuracy over time"),
        Chart(
            curves,
            "seconds of training, validation included",
            "validation accuracy",
            "After each epoch",
            percent=True,
        ),
        Paragraph(TIME),
        *_live(words),
        Heading("Kernels"),
        Paragraph(
            "A state space layer is a convolution. These are the kernels of the first features of "
            f"{OURS}'s first layer over 25 ms, at the start and as learned."
        ),
        _kernels(build_model(ours.config, ours.signature), "At the start"),
        _kernels(ours.model, "Learned"),
        *_colophon(ours.config.training.seed),
    )
    return page


def _live(words: Sequence[LiveWord]) -> list[Heading | Paragraph | Table | Sound | Chart]:
    shown = words[0]
    rows = [
        [
            word.said,
            word.heard,
            f"{word.chances[-1].max():.0%}",
            f"{1e3 * word.decided:.0f} of {1e3 * word.seconds:.0f} ms",
            f"{1e3 * word.computing:.1f} ms",
        ]
        for word in words
    ]
    header = ["said", "heard", "how sure", "settled after", "computing"]
    right = sum(word.said == word.heard for word in words)
    order = shown.chances.max(0).argsort()[::-1][:LIKELIEST]
    lines = [
        Line(f"“{shown.classes[k]}”", [1e3 * t for t in shown.times], shown.chances[:, k].tolist())
        for k in order
    ]
    file = io.BytesIO()
    loudest = full_scale(shown.samples.dtype)
    write_wav(file, shown.samples[:, 0] / loudest, round(shown.sample_rate))
    caption = f"The first of them as it comes in: {shown.said}, heard as {shown.heard}"
    return [
        Heading("Live"),
        Paragraph(LIVE),
        Table(header, rows, f"{right} of {len(words)} words heard as they were said"),
        Sound(file.getvalue(), f"The first of them: {shown.said}"),
        Chart(lines, "milliseconds", "probability", caption, percent=True),
    ]


def _kernels(model: Pretrained, caption: str) -> Chart:
    kernels = state_spaces(model)[0].kernel(KERNEL_LENGTH).detach()[:KERNELS]
    lines = [
        Line(f"feature {i}", list(range(KERNEL_LENGTH)), kernel.tolist())
        for i, kernel in enumerate(kernels)
    ]
    return Chart(lines, "samples ago", "weight", caption, title=f"Kernels: {caption}")


def _colophon(seed: int) -> list[Heading | Paragraph | Code]:
    machine = f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    return [
        Heading("Machine, command and data"),
        Paragraph(f"{machine}, {torch.get_num_threads()} thread(s)"),
        Code(f"s4d demo --seed {seed}"),
        Paragraph(
            "Data: a part of the Free Spoken Digit Dataset by Zohar Jackson and contributors, "
            "CC BY-SA 4.0, which comes with the package."
        ),
    ]
