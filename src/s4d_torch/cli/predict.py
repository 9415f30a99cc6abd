"""``s4d predict``: what a trained run makes of files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s4d_torch._progress import Meter, note, progress
from s4d_torch.cli.common.display import as_json, say
from s4d_torch.cli.common.flags import Device, RunPath, Switch, shown
from s4d_torch.cli.common.options import check_options, load_named
from s4d_torch.cli.common.parsing import CommandError, UsageError
from s4d_torch.data import TASKS
from s4d_torch.data.user_files import Item, files_below, read_items
from s4d_torch.deploy import inference
from s4d_torch.training import Run
from s4d_torch.training.distributed import local_device

HELD_BYTES = 1 << 25  # of sequences that are read before they are predicted
SHOWN = 20  # files named in a message


@dataclass(frozen=True)
class _Sequence:
    """What is read of a file, the name it goes by, and the rate it is computed with."""

    item: Item
    label: str
    rate: float


@dataclass(frozen=True)
class _Row:
    """A prediction, and of what."""

    file: str
    case: str
    rate: float
    sample_rate: float | None
    found: dict[str, Any]

    @property
    def is_one_of_several(self) -> bool:
        """Whether the name says more than that of the file."""
        return not self.file.endswith(self.case)

    def as_data(self) -> dict[str, Any]:
        return {"file": self.file, "case": self.case, "rate": self.rate, **self.found}


@dataclass(frozen=True)
class Predict:
    """Predict the class of sequences, or a number, with the best weights of a run.

    Files are sounds (.wav, .flac, .ogg, .mp3), arrays (.npy, .npz) or tables (.csv, .tsv) of one
    sequence or of several, in the unit of the run's data; for runs on tokens, text files. Columns
    with names are put in the order of training; a run that was told the times of its samples reads
    them where training did. A file that cannot be read does not keep others from being predicted,
    but the command ends with 1.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, or a name that 's4d models' lists"""
    files: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE|FOLDER ...", help_behavior_hint="(required)"),
    ]
    """what to predict from, or folders of it; for a run on pairs, the two of each pair one after
    the other"""
    rate: Annotated[float | None, shown("FLOAT", "by the rates of the sounds")] = None
    """samples of the training data that one sample stands for: 2 for half the sampling rate"""
    device: Device = "auto"
    """cpu, cuda, ...; auto takes a GPU of CUDA if there is one"""
    json: Switch = False
    """print a JSON object for each sequence"""

    def run(self, console: Console) -> None:
        if not self.files:
            raise UsageError("name a file to predict from: s4d predict RUN FILE ...")
        check_options(self, above_zero=["rate"])
        run = load_predictor(self.run_folder)
        files = list(self._expanded(run))
        bad: dict[Path, str] = {}
        rows: list[_Row] = []
        with nullcontext() if self.json else progress("predicting", brief=True) as shown:
            for block, left in self._blocks(run, files, bad):
                if shown is not None:  # as far as it is known before the files are read
                    shown.total = shown.done + len(block) // run.signature.towers + left
                for row in self._predict(run, block, shown):
                    rows.append(row)
                    if self.json:
                        print(as_json(row.as_data()), flush=True)
        if self.json:
            for file, error in bad.items():
                print(as_json({"file": file, "error": error}))
        elif rows:
            _say_rates(rows, run, console)
            console.print(_table(rows))
        if bad:
            raise CommandError(_complaint(bad, len(files)))

    def _expanded(self, run: Run) -> Iterator[tuple[Path, str]]:
        """The files, those of folders among them, with the names they go by."""
        for given in self.files:
            if not given.is_dir():
                yield given, given.name
                continue
            found, others = files_below(given, run.signature)
            if not found:
                raise CommandError(f"the folder {given} has no file that can be predicted from")
            if others:
                names = [str(other.relative_to(given)) for other in others]
                note(f"s4d: {given}: {len(others)} files are not read: {_listed(names)}")
            yield from ((file, file.relative_to(given).as_posix()) for file in found)

    def _blocks(
        self, run: Run, files: Sequence[tuple[Path, str]], bad: dict[Path, str]
    ) -> Iterator[tuple[list[_Sequence], int]]:
        """The sequences of the files, as many as are held in memory together; the files left."""
        about = (run.signature, TASKS[run.config.task], run.config.data)
        held: list[_Sequence] = []
        for left, (file, label) in zip(range(len(files) - 1, -1, -1), files, strict=True):
            try:
                items = read_items(file, *about)
                held += [
                    _Sequence(item, item.case or label, self._rate(item, run)) for item in items
                ]
            except (ValueError, OSError, CommandError) as error:
                if len(files) == 1 or run.signature.towers > 1:  # pairs would no longer be pairs
                    raise
                bad[file] = str(error)
            enough = sum(each.item.values.nbytes for each in held) >= HELD_BYTES
            if held and (enough or not left) and len(held) % run.signature.towers == 0:
                yield held, left
                held = []
        if held:
            raise CommandError("the run reads pairs; got an odd number of sequences")

    def _predict(self, run: Run, block: Sequence[_Sequence], shown: Meter | None) -> Iterator[_Row]:
        size = run.signature.towers  # sequences come one by one, or in pairs
        groups = [block[i : i + size] for i in range(0, len(block), size)]
        values = [tuple(each.item.values for each in group) for group in groups]
        sequences = values if size > 1 else [only for (only,) in values]
        outputs = inference.predict_at_rates(
            run,
            sequences,
            [group[0].rate for group in groups],
            local_device(self.device),
            times=None if run.signature.clock is None else [each[0].item.times for each in groups],
            advance=None if shown is None else shown.advance,
        )
        for group, output in zip(groups, outputs, strict=True):
            yield _Row(
                " + ".join(str(each.item.file) for each in group),
                " + ".join(each.label for each in group),
                group[0].rate,
                group[0].item.sample_rate,
                inference.labelled(output, run.signature),
            )

    def _rate(self, item: Item, run: Run) -> float:
        rate, architecture = self.rate, run.config.model.architecture
        if rate is None:
            rate = inference.relative_rate(run.signature, item.sample_rate)
        if rate != 1 and architecture != "ssm":
            given = "" if item.sample_rate is None else f" is at {item.sample_rate:g} Hz,"
            raise CommandError(
                f"{item.name}{given} and a model of the kind {architecture!r} "
                "cannot change its sampling rate; resample the file to that of its training"
            )
        return rate


def load_predictor(folder: str) -> Run:
    """A run that answers sequences with a class or a number."""
    run = load_named(folder)
    if run.signature.kind == "generation":
        raise CommandError(f"{folder} predicts the next symbol of a sequence; use 's4d generate'")
    if run.signature.kind == "tracking":
        raise CommandError(
            f"{folder} answers at each sample of a sequence; use "
            f"s4d_torch.load_run({folder!r}).predict(x, times=times)"
        )
    return run


def _complaint(bad: Mapping[Path, str], count: int) -> str:
    listed = _listed([str(error) for error in bad.values()])
    return f"{len(bad)} of {count} files could not be predicted from: {listed}"


def _listed(what: Sequence[str]) -> str:
    more = f"; and {len(what) - SHOWN} more" if len(what) > SHOWN else ""
    return "; ".join(what[:SHOWN]) + more


def _say_rates(rows: Iterable[_Row], run: Run, console: Console) -> None:
    others = [row for row in rows if row.rate != 1]
    for rate in sorted({row.rate for row in others}):
        which = [row for row in others if row.rate == rate]
        name = which[0].file if len(which) == 1 else f"{len(which)} sequences"
        why = inference.describe_rate(rate, run.signature, which[0].sample_rate)
        say(console, f"{name}: {why}")


def _table(rows: Sequence[_Row]) -> Table:
    table, cases = Table(box=box.SIMPLE), any(row.is_one_of_several for row in rows)
    table.add_column("file", overflow="fold")
    if cases:
        table.add_column("case", overflow="fold")
    numbers = "value" in rows[0].found
    names = ("prediction",) if numbers else ("class", "probability", "next")
    for name in names:
        table.add_column(name, justify="right" if name in ("prediction", "probability") else "left")
    for row in rows:
        cells = [escape(row.file), *([escape(row.case)] if cases else [])]
        if numbers:
            table.add_row(*cells, f"{row.found['value']:.5g}")
            continue
        second = inference.runner_up(row.found)
        after = "" if second is None else escape(f"{second[0]} ({second[1]:.1%})")
        table.add_row(*cells, escape(row.found["class"]), f"{row.found['probability']:.1%}", after)
    return table
