"""What is kept of a run, and where: checkpoints in a folder, or the best weights in memory."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.distributed import Processes, unsharded
from s4d_torch.training.saved.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    newest_step,
    prune,
    read_checkpoint,
    save_checkpoint,
)
from s4d_torch.training.saved.run_folder import SUMMARY, RunFolder


class MemoryStore:
    """Keeps the best weights in memory, and nothing that would survive the process."""

    def __init__(self) -> None:
        self._best: Pretrained | None = None
        self.rows: list[dict[str, Any]] = []

    def newest(self) -> Checkpoint | None:
        """The checkpoint to go on from; None for a run that begins."""
        return None

    def begin(self, step: int) -> None:
        """The run goes on after this step."""

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint."""

    def keep_best(self, model: Pretrained) -> None:
        """Keep these weights as the best so far."""
        weights = {name: unsharded(x).clone() for name, x in model.state_dict().items()}
        self._best = with_weights(model, weights)

    def best_model(self) -> Pretrained | None:
        """A model with the best weights."""
        return self._best

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Keep the scores of an epoch."""
        self.rows.append(dict(row))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The run is done; this came of it."""

    def where_to_go_on(self) -> str:
        """A sentence for a run that stops early."""
        return "Nothing was saved: the run has no folder."

    def where_to_try_again(self, lr: str) -> str:
        """A sentence for a run that has diverged, with a learning rate that may do."""
        return (
            f"{self.where_to_go_on()} A smaller --optimizer.lr (say {lr}) or --optimizer.clip 1 "
            "may help; --training.skip-bad-batches leaves bad batches out."
        )


class FolderStore(MemoryStore):
    """Keeps everything in the folder of the run; only rank 0 writes."""

    def __init__(self, folder: RunFolder, minutes: float, processes: Processes) -> None:
        super().__init__()
        self.folder, self.minutes, self.processes = folder, minutes, processes
        self.saved_at = time.monotonic()

    def newest(self) -> Checkpoint | None:
        found = newest_checkpoint(self.folder.checkpoints) if self.processes.writes else None
        step = self.processes.from_first(None if found is None else found.step)
        if step is not None and found is None:
            try:
                found = read_checkpoint(self.folder.checkpoints, step)
            except (OSError, ValueError) as error:
                raise FileNotFoundError(
                    f"process {self.processes.rank} cannot read the checkpoint of step {step} in "
                    f"{self.folder.path} ({error}); all machines need the same folder"
                ) from error
        return found

    def begin(self, step: int) -> None:
        if self.processes.writes:
            prune(self.folder.checkpoints, step)
            self.folder.keep_rows(step)
        self.rows = [dict(row) for row in self.folder.rows()] if self.processes.writes else []
        self.saved_at = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= 60 * self.minutes

    def save(self, checkpoint: Checkpoint) -> None:
        what = f"the checkpoint of step {checkpoint.step}"
        self._write(what, save_checkpoint, self.folder.checkpoints, checkpoint)
        self.saved_at = time.monotonic()

    def keep_best(self, model: Pretrained) -> None:
        weights = {name: unsharded(x) for name, x in model.state_dict().items()}
        best = self.folder.best
        self._write("the best weights", lambda: with_weights(model, weights).save_pretrained(best))
        self.processes.wait()

    def best_model(self) -> Pretrained | None:
        return self.folder.best_model()

    def add_row(self, row: Mapping[str, Any]) -> None:
        super().add_row(row)
        self._write("the scores", self.folder.add_row, row)

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._write("the summary", self.folder.write_json, SUMMARY, summary)

    def _write(self, what: str, write: Callable[..., object], *content: Any) -> None:
        """A disk that is full, or gone, ends the run; what was saved before is as it was."""
        try:
            if self.processes.writes:
                write(*content)
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

    def where_to_try_again(self, lr: str) -> str:
        step, path = newest_step(self.folder.checkpoints), self.folder.path
        again = f"the same command with --out {path} --optimizer.lr {lr}"
        how = "--optimizer.clip 1, or --training.skip-bad-batches to leave bad batches out, "
        how += "can be given in the same way."
        if step is None:
            return f"There is no checkpoint yet: {again} begins anew with a smaller rate; {how}"
        return (
            f"The checkpoint of step {step} is in {path}: {again} goes on from there with a "
            f"smaller learning rate; {how}"
        )


def with_weights(model: Pretrained, weights: Mapping[str, Tensor]) -> Pretrained:
    """A new model of the same config with these weights, on the CPU and on its own."""
    config = json.loads(json.dumps(model.config))
    dtype = next(x.dtype for x in weights.values() if x.is_floating_point())
    made = cast(Any, type(model))(**config, generator=torch.Generator(), dtype=dtype)
    names = made.state_dict().keys()  # an average has a buffer more
    made.load_state_dict({name: x for name, x in weights.items() if name in names})
    made.preprocessing = model.preprocessing
    return cast(Pretrained, made)
