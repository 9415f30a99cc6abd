"""What a run shows of itself: live bars in a terminal, plain lines elsewhere, or JSON."""

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import progress
from rich.console import Console

from s4d_torch._progress import amount, clock, say, visible
from s4d_torch.cli.common.console import VisibleConsole, as_json, plain_table
from s4d_torch.training.config import Config, flat_options
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.reports.intervals import show_score
from s4d_torch.training.reports.reporter import Progress, Reporter

__all__ = ["Final", "Json", "Lines", "Live", "TensorBoard", "VisibleConsole"]
__all__ += ["amount", "as_json", "plain_table", "say"]

QUIET_SECONDS = 30.0  # in a long epoch, before another plain line


class Final(Reporter):
    """Only the result, in one line."""

    def __init__(self, console: Console, out: Path) -> None:
        self.console, self.out = console, out

    def end(self, summary: Mapping[str, Any]) -> None:
        name, show = summary["metric"], METRICS[summary["metric"]].show
        test = show_score(name, summary)
        say(
            self.console,
            f"{summary['task']}: test {name} {test}, "
            f"validation {show(summary['validation'])} after epoch {summary['best_epoch']}, "
            f"{amount(summary['seconds'])}; weights in {self.out / 'best'}",
        )


class Lines(Final):
    """A line for each epoch, and one now and then within a long one."""

    def __init__(self, console: Console, out: Path) -> None:
        super().__init__(console, out)
        self.metric, self.epochs = "accuracy", 0
        self.rate: float | None = None  # sequences per second, smoothed
        self.left = math.nan
        self._row: Mapping[str, Any] | None = None
        self._spoken = time.monotonic()

    def begin(self, about: Mapping[str, Any]) -> None:
        self.metric, self.epochs = about["metric"], about["epochs"]
        self._spoken = time.monotonic()

    def step(self, now: Progress) -> None:
        self.left = now.seconds_left
        ended = now.step * now.epochs % now.steps == 0
        if not ended or self.rate is None:  # the last step of an epoch also waits for validation
            new = now.examples_per_second
            self.rate = new if self.rate is None else 0.9 * self.rate + 0.1 * new
        self.moved(now)
        self._finish_epoch()

    def moved(self, now: Progress) -> None:
        """Show how far the run is, if it is time to."""
        if self._row is None and time.monotonic() - self._spoken >= QUIET_SECONDS:
            each = now.steps // now.epochs
            step = f"step {(now.step - 1) % each + 1}/{each}"
            self._line(f"epoch {self._of(now.epoch)}  {step}  loss {now.loss:.4f}  lr {now.lr:.3g}")

    def epoch(self, row: Mapping[str, Any]) -> None:
        self._row = row  # shown with the speed, which is reported next

    def message(self, text: str) -> None:
        say(self.console, text)
        self._spoken = time.monotonic()

    def close(self) -> None:
        self._finish_epoch()

    def _finish_epoch(self) -> None:
        if (row := self._row) is not None:
            self._row = None
            score = METRICS[self.metric].show(row[f"validation_{self.metric}"])
            self._line(
                f"epoch {self._of(row['epoch'])}  loss {row['train_loss']:.4f}  "
                f"validation {self.metric} {score:>7}  lr {row['lr']:.3g}"
            )

    def _line(self, text: str) -> None:
        speed = "" if self.rate is None else f"  {self.rate:,.0f}/s"
        left = "" if math.isnan(self.left) else f"  {clock(self.left)} left"
        self.message(text + speed + left)

    def _of(self, epoch: int) -> str:
        return f"{epoch:>{len(str(self.epochs))}}/{self.epochs}"


class Live(Lines):
    """A bar that moves, below a line for each finished epoch."""

    def __init__(self, console: Console, out: Path) -> None:
        super().__init__(console, out)
        self.bar: progress.Progress | None = None

    def begin(self, about: Mapping[str, Any]) -> None:
        super().begin(about)
        self.bar = progress.Progress(
            progress.TextColumn("epoch {task.fields[epoch]}"),
            progress.BarColumn(bar_width=None),
            progress.TextColumn("{task.completed}/{task.total}  {task.fields[state]}"),
            console=self.console,
            expand=True,
            transient=True,
            refresh_per_second=4,
        )
        self.bar.add_task("", total=about["steps"], epoch=self._of(1), state="")
        self.bar.start()

    def moved(self, now: Progress) -> None:
        if self.bar is None:
            return
        score = "" if now.score is None else f"  {METRICS[self.metric].show(now.score)}"
        speed = f"{self.rate:,.0f}/s  {clock(now.seconds_left)} left"
        state = f"loss {now.loss:.3f}{score}  lr {now.lr:.2g}  {speed}"
        (task,) = self.bar.task_ids
        self.bar.update(task, completed=now.step, epoch=self._of(now.epoch), state=state)

    def close(self) -> None:
        super().close()
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def end(self, summary: Mapping[str, Any]) -> None:
        self.close()
        super().end(summary)


class Json(Reporter):
    """An object for each epoch and one for the result, on standard output and nothing else."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def epoch(self, row: Mapping[str, Any]) -> None:
        print(as_json({"event": "epoch", **row}), flush=True)

    def message(self, text: str) -> None:
        print(visible(f"s4d: {text}"), file=sys.stderr)

    def end(self, summary: Mapping[str, Any]) -> None:
        print(as_json({"event": "end", **summary, "folder": str(self.out)}), flush=True)


class TensorBoard(Reporter):
    """Events of the run in ``folder``; a run that goes on replaces what comes after its step."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.writer: Any = None

    def step(self, now: Progress) -> None:
        self._write({"train/loss": now.loss, "train/lr": now.lr}, now.step)

    def epoch(self, row: Mapping[str, Any]) -> None:
        names = [name for name in row if name.startswith("validation_")]
        named = {name.replace("_", "/", 1): row[name] for name in names}
        self._write({**named, "epoch": row["epoch"]}, row["step"])

    def end(self, summary: Mapping[str, Any]) -> None:
        """The options and the test scores, for the tab in which runs are compared."""
        if self.writer is None:  # the run was finished before, and is written there
            return
        kinds = bool, int, float, str
        options = {
            name: value if isinstance(value, kinds) else str(value)
            for name, value in flat_options(self.config.to_json())
        }
        scores = {f"test/{name}": value for name, value in summary["test"].items()}
        self.writer.add_hparams(options, scores, run_name=".", global_step=summary["steps"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _write(self, scalars: Mapping[str, float], step: int) -> None:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)
