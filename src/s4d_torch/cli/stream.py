"""``s4d stream``: a trained run on a source that is still going on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

from s4d_torch.cli.parsing import CommandError, Switch, UsageError
from s4d_torch.cli.stream_display import Changing, Json, Lines
from s4d_torch.cli.stream_session import Session
from s4d_torch.cli.stream_sources import Format, Source, sound_file, standard_input
from s4d_torch.deploy.stream.stream import Stream as LiveStream
from s4d_torch.training import Run


def _shown(metavar: str, default: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class Stream:
    """Predict from a source as it goes on, and say how long each answer took.

    A sound file is read as fast as it would sound. Standard input has lines of numbers in the unit
    of the run's data, raw samples, or bytes for runs on text. Each answer is that for all samples
    so far. Ctrl-C ends the stream; then, as at its end, comes a summary.
    """

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the folder that 's4d train' made, of a model that is not bidirectional"""
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")] = "-"
    """a sound file (.wav, .flac, .ogg), or - for standard input"""
    format: Format = "numbers"
    """of standard input: a line of numbers for each sample; raw samples of 16 bits, or of float32
    with full scale at 1, little endian, channels in turn; or bytes of text"""
    sample_rate: Annotated[float | None, _shown("HZ", "that of the run")] = None
    """samples per second of standard input"""
    rate: Annotated[float | None, _shown("FLOAT", "by the sampling rates")] = None
    """samples of the training data that one sample stands for: 2 for half the sampling rate"""
    chunk: Annotated[int | None, _shown("SAMPLES", "10 ms of sound, else 1")] = None
    """samples that are waited for and computed together"""
    every: Annotated[int | None, _shown("SAMPLES", "10 results per second, else each chunk")] = None
    """how often a result is shown"""
    restart: Annotated[int | None, _shown("SAMPLES", "never")] = None
    """begin again after so many samples: an answer for each second, not for all time"""
    fast: Switch = False
    """read a sound file as fast as it can be computed"""
    restore: Annotated[Path | None, _shown("FILE", "none")] = None
    """go on where the stream of this snapshot was"""
    snapshot: Annotated[Path | None, _shown("FILE", "none")] = None
    """where the state is written at the end"""
    threads: int = 1
    """threads of the computation"""
    json: Switch = False
    """print a JSON object for each result, and one at the end"""

    def run(self, console: Console) -> None:
        self._check()
        run = Run.load(self.run_folder)
        if run.signature.kind == "generation":
            raise CommandError(
                f"{self.run_folder} predicts the next symbol of a sequence; use 's4d generate'"
            )
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            self._run(run, console)
        finally:
            torch.set_num_threads(before)

    def _check(self) -> None:
        for name in ("chunk", "every", "restart", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} must be at least 1, got {value}")
        for name in ("rate", "sample_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value}")
        if self.source != "-":
            if self.format != "numbers" or self.sample_rate is not None:
                raise UsageError("--format and --sample-rate are for standard input, not for files")
        elif self.fast:
            raise UsageError("--fast is for sound files; standard input is read as it comes")

    def _run(self, run: Run, console: Console) -> None:
        stream = _stream(run)
        source = self._source(run)
        rate = self._rate(source, run)
        stream.rate = rate
        session = Session(run, stream, source, self.every, self.restart)
        session.warm_up()
        if self.restore is not None:
            stream.restore(self.restore)
            if stream.rate != rate:
                raise CommandError(
                    f"{self.restore} is of a stream with rate {stream.rate:g}, this one has "
                    f"{rate:g}; give --rate {stream.rate:g} to go on with it"
                )
        display = Json(console) if self.json else _display(console)
        if rate != 1:
            display.message(_rate_line(source, run, rate))
        try:
            interrupted = session.follow(display, paced=source.is_file and not self.fast)
            if self.snapshot is not None:
                stream.snapshot(self.snapshot)
        finally:
            display.close()
        where = None if self.snapshot is None else str(self.snapshot)
        display.end({**session.summary(), "interrupted": interrupted, "snapshot": where})

    def _source(self, run: Run) -> Source:
        if self.source != "-":
            return sound_file(Path(self.source), run.signature, self.chunk)
        return standard_input(
            sys.stdin.buffer, self.format, run.signature, self.chunk, self.sample_rate
        )

    def _rate(self, source: Source, run: Run) -> float:
        trained = run.signature.sample_rate
        if self.rate is not None or source.sample_rate is None or trained is None:
            return self.rate or 1.0
        return trained / source.sample_rate


def _stream(run: Run) -> LiveStream:
    if run.config.method.bidirectional and run.config.model.architecture == "ssm":
        raise CommandError(
            f"the model of {run.folder} is bidirectional: it looks ahead, to the end of a stream "
            "that has none; train one with --method.no-bidirectional"
        )
    try:
        return LiveStream(run.model)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise CommandError(f"{run.folder}: {error}") from error


def _display(console: Console) -> Lines:
    return Changing(console) if console.is_terminal else Lines(console)


def _rate_line(source: Source, run: Run, rate: float) -> str:
    actual, trained = source.sample_rate, run.signature.sample_rate
    if actual is None or trained is None or rate != trained / actual:
        return f"computed with rate {rate:g}"
    return f"at {actual:g} Hz, trained at {trained:g} Hz; computed with rate {rate:g}"
