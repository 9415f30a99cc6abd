"""``s4d stream``: a trained run on a source that is still going on."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.live import Live
from rich.text import Text

from s4d_torch.cli.common.display import as_json, say
from s4d_torch.cli.common.flags import RunPath, Switch, shown
from s4d_torch.cli.common.options import check_options
from s4d_torch.cli.common.parsing import CommandError, UsageError, misuse
from s4d_torch.cli.predict import load_predictor
from s4d_torch.deploy.inference import describe_rate, relative_rate, runner_up
from s4d_torch.deploy.stream.live import Stream as LiveStream
from s4d_torch.deploy.stream.session import StreamSession
from s4d_torch.deploy.stream.sources import (
    ChunkSource,
    Format,
    Missing,
    sound_file,
    standard_input,
)
from s4d_torch.training import Run


@dataclass(frozen=True)
class Stream:
    """Predict from a source as it goes on, and say how long each answer took.

    A sound file is read as fast as it would sound. Standard input has lines of numbers in the unit
    of the run's data, raw samples, or bytes for runs on text; under a header with the names of the
    run's columns, numbers go by these. A run that was told the times of its samples reads a time in
    each line, in the column of that name or, without a header, first. Each answer is that for all
    samples so far. Ctrl-C ends the stream; then, as at its end, comes a summary.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, of a model that is not bidirectional, or a name that
    's4d models' lists"""
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")] = "-"
    """a sound file (.wav, .flac, .ogg, .mp3), or - for standard input"""
    format: Format = "numbers"
    """of standard input: a line of numbers for each sample; raw samples of 16 bits, or of float32
    with full scale at 1, little endian, channels in turn; or bytes of text"""
    missing: Missing = "error"
    """a value of standard input that is NaN or infinite: an error that names its line, or hold, the
    last value of its channel again"""
    sample_rate: Annotated[float | None, shown("HZ", "that of the run")] = None
    """samples per second of standard input"""
    rate: Annotated[float | None, shown("FLOAT", "by the sampling rates")] = None
    """samples of the training data that one sample stands for: 2 for half the sampling rate"""
    chunk: Annotated[int | None, shown("SAMPLES", "10 ms of sound, else 1")] = None
    """samples that are waited for and computed together"""
    every: Annotated[int | None, shown("SAMPLES", "10 results per second, else each chunk")] = None
    """how often a result is shown"""
    restart: Annotated[int | None, shown("SAMPLES", "never")] = None
    """begin again after so many samples: an answer for each second, not for all time"""
    fast: Switch = False
    """read a sound file as fast as it can be computed"""
    restore: Annotated[Path | None, shown("FILE", "none")] = None
    """go on where the stream of this snapshot was"""
    snapshot: Annotated[Path | None, shown("FILE", "none")] = None
    """where the state is written at the end"""
    threads: int = 1
    """threads of the computation"""
    json: Switch = False
    """print a JSON object for each result, and one at the end"""

    def run(self, console: Console) -> None:
        self._check()
        run, before = load_predictor(self.run_folder), torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            self._run(run, console)
        finally:
            torch.set_num_threads(before)

    def _check(self) -> None:
        counts, rates = ["chunk", "every", "restart", "threads"], ["rate", "sample_rate"]
        check_options(self, at_least_one=counts, above_zero=rates)
        given = (self.format, self.missing, self.sample_rate) != ("numbers", "error", None)
        if self.source != "-" and given:
            options = "--format, --missing and --sample-rate"
            raise UsageError(f"{options} are for standard input, not for files")
        if self.source == "-" and self.fast:
            raise UsageError("--fast is for sound files; standard input is read as it comes")

    def _run(self, run: Run, console: Console) -> None:
        stream, source = _stream(run), self._source(run)
        rate = self.rate or relative_rate(run.signature, source.sample_rate)
        stream.rate = rate
        session = StreamSession(run, stream, source, self.every, self.restart)
        session.warm_up()
        if self.restore is not None:
            stream.restore(self.restore)
            if stream.rate != rate:
                raise CommandError(
                    f"{self.restore} is of a stream with rate {stream.rate:g}, this one has "
                    f"{rate:g}; give --rate {stream.rate:g} to go on with it"
                )
            if source.timed and stream.samples and stream.time is None:
                raise CommandError(
                    f"{self.restore} does not say when its last sample came, so that the gap to "
                    "the next is unknown; set Stream.time before its snapshot"
                )
        live = ChangingLine if console.is_terminal else ResultLines
        display = (ResultObjects if self.json else live)(console)
        if rate != 1:
            display.message(describe_rate(rate, run.signature, source.sample_rate))
        try:
            interrupted = session.follow(display.result, paced=source.is_file and not self.fast)
            if self.snapshot is not None:
                stream.snapshot(self.snapshot)
        finally:
            display.close()
        where = None if self.snapshot is None else str(self.snapshot)
        display.end({**session.summary(), "interrupted": interrupted, "snapshot": where})

    def _source(self, run: Run) -> ChunkSource:
        if self.source != "-":
            return sound_file(Path(self.source), run.signature, self.chunk, run.config.data)
        with misuse():  # of --format; what is wrong within comes as it is read
            return standard_input(
                sys.stdin.buffer,
                self.format,
                run.signature,
                self.chunk,
                self.sample_rate,
                self.missing,
            )


def _stream(run: Run) -> LiveStream:
    if run.config.method.bidirectional and run.config.model.architecture == "ssm":
        raise CommandError(
            f"the model of {run.folder} is bidirectional: it looks ahead, to the end of a stream "
            "that has none; train one with --causal"
        )
    try:
        return LiveStream(run.model)
    except (TypeError, ValueError) as error:
        raise CommandError(f"{run.folder}: {error}") from error


class ResultLines:
    """A line for each result."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._latest = ""

    def message(self, text: str) -> None:
        say(self.console, text)

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        """``last`` of its stream, or of the part after which the stream begins again."""
        line = result_line(found)
        if line != self._latest:  # the last one may have been shown before it was known to be
            say(self.console, line)
        self._latest = line

    def end(self, summary: Mapping[str, Any]) -> None:
        for line in summary_lines(summary):
            say(self.console, line)

    def close(self) -> None:
        pass


class ChangingLine(ResultLines):
    """One line that changes; what is final stays above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.live.start()

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        if last:
            super().result(found, last)
        else:
            self.live.update(Text(result_line(found), no_wrap=True), refresh=True)

    def close(self) -> None:
        self.live.stop()


class ResultObjects(ResultLines):
    """A JSON object for each result and one at the end."""

    def message(self, text: str) -> None:
        pass

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        print(as_json({"event": "result", "last": last, **found}), flush=True)

    def end(self, summary: Mapping[str, Any]) -> None:
        print(as_json({"event": "end", **summary}), flush=True)


def result_line(found: Mapping[str, Any]) -> str:
    """``1.20 s  yes 93.1%  (no 3.2%)``, or ``1200  0.25``."""
    at = f"{found['at']}" if found["seconds"] is None else f"{found['seconds']:.2f} s"
    if "value" in found:
        return f"{at:>10}  {found['value']:.5g}"
    second = runner_up(found)
    after = "" if second is None else f"  ({second[0]} {second[1]:.1%})"
    return f"{at:>10}  {found['class']} {found['probability']:.1%}{after}"


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    seconds = summary["seconds"]
    heard = f"{summary['at']} samples" + ("" if seconds is None else f", {seconds:.2f} s")
    stopped = "; stopped by the user" if summary["interrupted"] else ""
    lines = [f"{heard}, in {summary['chunks']} chunks of {summary['chunk']}{stopped}"]
    if summary["chunks"]:
        times = summary["latency_ms"]
        lines.append("latency  " + "  ".join(f"{k} {v:.3g} ms" for k, v in times.items()))
        each = f"{1e6 * summary['computing_seconds'] / summary['at']:.3g} us per sample"
        factor = summary["real_time_factor"]
        lines.append(each if factor is None else f"real-time factor {factor:.3g}, {each}")
    if summary["snapshot"]:
        lines.append(f"the state is in {summary['snapshot']}")
    return lines
