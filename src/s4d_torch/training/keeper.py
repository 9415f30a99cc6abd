"""What is kept of a run, and where: in a folder, or in memory only."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from s4d_torch.nn.baselines import load_model
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    newest_step,
    read_checkpoint,
    save_checkpoint,
    tidy,
)
from s4d_torch.training.folder import SUMMARY, RunFolder
from s4d_torch.training.processes import Processes
from s4d_torch.training.sharing import whole


class Keeper:
    """Keeps the best weights in memory, and nothing that would survive the process."""

    def __init__(self) -> None:
        self._best: Pretrained | None = None
        self.rows: list[dict[str, Any]] = []

    def newest(self, processes: Processes) -> Checkpoint | None:
        """Where the run stands; None if it is to begin."""
        return None

    def begin(self, step: int, processes: Processes) -> None:
        """The run goes on after this step."""

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return False

    def save(self, checkpoint: Checkpoint, processes: Processes) -> None:
        """Keep a checkpoint."""

    def keep_best(self, model: Pretrained, processes: Processes) -> None:
        """Keep these weights as the best so far."""
        weights = {name: whole(x).clone() for name, x in model.state_dict().items()}
        self._best = with_weights(model, weights)

    def best_model(self) -> Pretrained | None:
        """A model with the best weights."""
        return self._best

    def add_row(self, row: Mapping[str, Any], processes: Processes) -> None:
        """Keep the scores of an epoch."""
        self.rows.append(dict(row))

    def finish(self, summary: Mapping[str, Any], processes: Processes) -> None:
        """The run is done; this came of it."""

    def where_to_go_on(self) -> str:
        """A sentence for a run that stops early."""
        return "Nothing was saved: the run has no folder."


class FolderKeeper(Keeper):
    """Keeps everything in the folder of the run; only rank 0 writes."""

    def __init__(self, folder: RunFolder, minutes: float) -> None:
        super().__init__()
        self.folder, self.minutes = folder, minutes
        self.saved_at = time.monotonic()

    def newest(self, processes: Processes) -> Checkpoint | None:
        found = newest_checkpoint(self.folder.checkpoints) if processes.writes else None
        step = processes.from_first(None if found is None else found.step)
        if step is not None and found is None:
            try:
                found = read_checkpoint(self.folder.checkpoints, step)
            except (OSError, ValueError) as error:
                raise FileNotFoundError(
                    f"process {processes.rank} cannot read the checkpoint of step {step} in "
                    f"{self.folder.path} ({error}); all machines need the same folder"
                ) from error
        return found

    def begin(self, step: int, processes: Processes) -> None:
        if processes.writes:
            tidy(self.folder.checkpoints, step)
            self.folder.keep_rows(step)
        self.rows = [dict(row) for row in self.folder.rows()] if processes.writes else []
        self.saved_at = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= 60 * self.minutes

    def save(self, checkpoint: Checkpoint, processes: Processes) -> None:
        if processes.writes:
            with self._writing(f"the checkpoint of step {checkpoint.step}"):
                save_checkpoint(self.folder.checkpoints, checkpoint, {})
        self.saved_at = time.monotonic()

    def keep_best(self, model: Pretrained, processes: Processes) -> None:
        weights = {name: whole(x) for name, x in model.state_dict().items()}
        if processes.writes:
            with self._writing("the best weights"):
                with_weights(model, weights).save_pretrained(self.folder.best)
        processes.wait()

    def best_model(self) -> Pretrained | None:
        return load_model(self.folder.best) if self.folder.best.is_dir() else None

    def add_row(self, row: Mapping[str, Any], processes: Processes) -> None:
        super().add_row(row, processes)
        if processes.writes:
            with self._writing("the scores"):
                self.folder.add_row(row)

    def finish(self, summary: Mapping[str, Any], processes: Processes) -> None:
        if processes.writes:
            with self._writing("the summary"):
                self.folder.write_json(SUMMARY, summary)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """A disk that is full, or gone, ends the run; what was saved before is as it was."""
        try:
            yield
        except OSError as error:
            message = f"{what} could not be written ({error.strerror}). {self.where_to_go_on()}"
            raise OSError(error.errno, message) from error

    def where_to_go_on(self) -> str:
        step = newest_step(self.folder.checkpoints)
        if step is None:
            return "There is no checkpoint yet; run the same command again to begin anew."
        return (
            f"The checkpoint of step {step} is in {self.folder.path}; run the same command again "
            "to go on from there."
        )


def with_weights(model: Pretrained, weights: Mapping[str, Tensor]) -> Pretrained:
    """A new model of the same config with these weights, on the CPU and on its own."""
    config = copy.deepcopy(json.loads(json.dumps(model.config)))
    dtype = next(x.dtype for x in weights.values() if x.is_floating_point())
    made = cast(Any, type(model))(**config, generator=torch.Generator(), dtype=dtype)
    own = made.state_dict()
    made.load_state_dict({name: x for name, x in weights.items() if name in own})
    return cast(Pretrained, made)
