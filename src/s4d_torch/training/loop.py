"""The training loop: one for the command line, the estimators and the paper's recipes.

Nothing in it depends on what happened before a step except the weights, the optimiser's state and
a few numbers: the data of a step follow from seed and epoch, its random numbers from seed and step.
So a run that was broken off goes on bit by bit as if it had not been.
"""

import math
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch._interruption import Interrupted
from s4d_torch.data.dataset import Dataset
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training import distributed, divergence
from s4d_torch.training.batches import Order, Part, feed, read_part
from s4d_torch.training.config import Config
from s4d_torch.training.distributed import Processes
from s4d_torch.training.evaluation import Evaluation, class_weights, go_on, loss_sum, predict, score
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.optimizer import MovingAverage, Optimizer
from s4d_torch.training.pieces import CarriedStates
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.saved.checkpoint import Checkpoint
from s4d_torch.training.saved.store import MemoryStore

PATIENCE = 20  # bad batches in a row that are skipped, if they are, before giving up
MOST_EVALUATIONS = 200  # of one run: an epoch of small data is a step or two, and soon over


@dataclass
class TrainingState:
    """How far a run has come, apart from its tensors."""

    step: int = 0
    loss_sum: float = 0.0
    """of the epoch so far, over ``loss_count`` targets"""
    loss_count: int = 0
    best_score: float | None = None
    best_loss: float | None = None
    """which tells equal scores apart; unknown in checkpoints of earlier releases"""
    best_epoch: int = 0
    score: float | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0
    finished: bool = False
    seconds: float = 0.0
    epochs: int = 0
    """that were asked for when this was saved; more may be asked for later"""


class Trainer:
    """A model, its data and its optimiser on their way through a config."""

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        model: Pretrained,
        *,
        store: MemoryStore,
        device: torch.device,
        processes: Processes = Processes(),  # noqa: B008  frozen
        reporter: Reporter | None = None,
        shard: bool = False,
    ) -> None:
        for name, split in dataset.splits.items():
            if not len(split):
                raise ValueError(f"there is nothing to train on: the {name} split is empty")
        training = config.training
        self.config, self.dataset, self.store = config, dataset, store
        self.device, self.processes, self.reporter = device, processes, reporter or Reporter()
        self.model = model.to(device)
        self.average = None if training.ema is None else MovingAverage(self.model, training.ema)
        self.distributed = distributed.distribute(self.model, processes, device, shard=shard)
        self.order = Order.of(config, dataset)
        self.carried = CarriedStates(self.model, device)
        self.epochs = training.epochs_for(self.order.steps)
        self.steps = self.epochs * self.order.steps
        self.steps_between_evaluations = self.order.steps * evaluation_interval(self.epochs)
        self.optimizer = Optimizer(self.model, config.optimizer, self.steps)
        self.metric_name = config.metric(dataset.signature.kind)
        self.metric = METRICS[self.metric_name]
        self.class_weights = class_weights(training.class_weight, dataset)
        self.state = TrainingState(epochs=self.epochs)
        self.loss = self.lr = math.nan  # of the last step
        self.rate = 1.0  # what dt is multiplied by in this step
        self.first: tuple[int, float] | None = None  # step of this process, and seconds after it

    def run(self) -> None:
        """All epochs that are left; the best weights are in the store then."""
        self._fix_gradient_order()
        self._resume()
        state = self.state
        with distributed.stop_requests() as stop:
            while not state.finished:
                epoch, done = divmod(state.step, self.order.steps)
                steps, pack = self.order.plan(epoch)[done:], self.order.pack
                batches = feed(self.dataset, steps, self.processes, pack=pack)
                with closing(batches):
                    for parts, count in batches:
                        began = time.perf_counter()
                        self._step(parts, count)
                        state.step += 1
                        if self._evaluation_is_due():
                            self._end_epoch(epoch)
                        state.seconds += time.perf_counter() - began
                        self._save(stop.asked)
                        self._report(epoch, count, time.perf_counter() - began)

    def _fix_gradient_order(self) -> None:
        def backward() -> None:
            piece, pack = self.order.plan(0)[0].piece, self.order.pack
            self._backward(read_part(self.dataset, np.arange(1), piece, Processes(), pack), 1)

        distributed.fix_gradient_order(self.distributed, self.processes, backward)

    def _step(self, parts: list[Part], count: int) -> None:
        """Forward, backward and a step of the optimiser, for ``count`` targets in some parts."""
        state, training = self.state, self.config.training
        torch.manual_seed(_mix(training.seed, state.step, self.processes.rank))
        self.loss, self.lr = math.nan, self.optimizer.begin(state.step)
        piece = parts[0].piece
        began = state.step - (piece.number if piece is not None else 0)  # one rate for a sequence
        self.rate = _jittered(training.rate_jitter, training.seed, began)
        self.model.train()
        statistics = [buffer.clone() for buffer in self.model.buffers()]
        loss = torch.zeros((), dtype=torch.float64)
        for i, part in enumerate(parts):
            with distributed.averaging(self.distributed, i == len(parts) - 1):
                loss += self._backward(part, count)
        total = float(self.processes.sum(loss)) / count
        norm = self.optimizer.gradient_norm()
        # a value whose square overflows spoils the statistics of a norm, not yet the loss
        finite = math.isfinite(total) and torch.isfinite(norm)
        if not (finite and divergence.all_finite(self.model.buffers())):
            self._skip(parts, total, norm)
            for buffer, before in zip(self.model.buffers(), statistics, strict=True):
                buffer.copy_(before)  # a batch that is left out leaves no trace
            self.carried.advance(parts[0], made=False)
            return
        self.optimizer.step(norm)
        self.carried.advance(parts[0], made=True)
        if self.average is not None:
            self.average.update(self.model)
        state.skipped_in_a_row = 0
        state.loss_sum += total * count
        state.loss_count += count
        self.loss = total

    def _backward(self, part: Part, count: int) -> Tensor:
        """Add the gradients of one part; its loss, summed."""
        outputs, targets = self._outputs(self.distributed, part)
        loss = part.weight * self.loss_sum(outputs, targets)
        # processes average their gradients: then the factor makes it the mean over all targets
        (loss * (self.processes.count / count)).backward()
        return loss.detach().double().cpu()

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What outputs cost, summed over a batch."""
        smoothing = self.config.training.label_smoothing
        signature = self.dataset.signature
        return loss_sum(outputs, targets, signature, smoothing, self.class_weights)

    def _skip(self, parts: list[Part], loss: float, norm: Tensor) -> None:
        """Leave a bad batch out, or stop, with a word on where the numbers went wrong."""
        state = self.state
        model = self.model
        seen = divergence.trace(model, lambda: [self._outputs(model, part) for part in parts])
        _, where = min(self.processes.each(seen), key=lambda one: one[0])
        found = f"step {state.step + 1}: the loss is {loss:.3g}, the gradient's norm {norm:.3g}; "
        found += f"the first that is not finite is {where}"
        state.skipped += 1
        state.skipped_in_a_row += 1
        if not self.config.training.skip_bad_batches or state.skipped_in_a_row >= PATIENCE:
            raise self._diverged(found)
        self.reporter.message(f"{found}; the batch was skipped")

    def _diverged(self, found: str) -> divergence.DivergenceError:
        lr = f"{self.config.optimizer.lr / 4:.2g}"
        return divergence.DivergenceError(f"{found}. {self.store.where_to_try_again(lr)}")

    def _outputs(self, model: torch.nn.Module, part: Part) -> tuple[Tensor, Tensor]:
        """What ``model`` makes of a part, and what it should."""
        batch = part.batch.to(self.device)
        with distributed.taking_part(self.model, part.weight > 0):
            y, end = go_on(
                model,
                batch,
                self.carried.before(part),
                precision=self.config.training.precision,
                rate=self.rate,
                return_state=part.piece is not None and not part.piece.last,
            )
        self.carried.after(end)
        return y, batch.targets

    def _evaluation_is_due(self) -> bool:
        step = self.state.step
        return step % self.steps_between_evaluations == 0 or step == self.steps

    def _end_epoch(self, epoch: int) -> None:
        state, training = self.state, self.config.training
        evaluated = self.model if self.average is None else self.average.model
        found = self.evaluate(evaluated, "validation")
        state.score = found.scores[self.metric_name]
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            "step": state.step,
            "lr": self.lr,
            "train_loss": state.loss_sum / state.loss_count if state.loss_count else math.nan,
            "validation_loss": found.loss,
            **{f"validation_{name}": value for name, value in found.scores.items()},
        }
        if self._is_best(found.loss):
            state.best_score, state.best_loss = state.score, found.loss
            state.best_epoch = epoch + 1
            self.store.keep_best(evaluated)
        state.loss_sum, state.loss_count = 0.0, 0
        stale = epoch + 1 - state.best_epoch  # epochs without a better score
        given_up = training.patience is not None and stale >= training.patience
        state.finished = epoch + 1 == self.epochs or given_up
        self.store.add_row(row)
        self.reporter.epoch(row)

    def _is_best(self, loss: float) -> bool:
        """Whether the last score beats the best, or equals it at a lower loss.

        A small validation split has few scores: among equals the first would often be a model that
        has not learned much yet.
        """
        state = self.state
        assert state.score is not None
        if state.score == state.best_score:  # of an unknown loss: the later one learned for longer
            return state.best_loss is None or loss < state.best_loss
        return self.metric.better(state.score, state.best_score)

    def evaluate(self, model: torch.nn.Module, split: str, *, rate: float = 1.0) -> Evaluation:
        """The scores of ``model`` on a split, computed by all processes together."""
        outputs, targets = predict(
            model,
            self.dataset,
            self.dataset.splits[split],
            batch_size=max(1, self.config.training.batch_size // self.processes.count),
            device=self.device,
            precision=self.config.training.precision,
            rate=rate,
            processes=self.processes,
            piece=self.config.training.tbptt,
        )
        tested: Any = {"intervals": split == "test", "groups": self.dataset.splits[split].owners}
        found = score(outputs, targets, self.dataset.signature, **tested)
        return self.processes.from_first(found)  # decisions follow from it

    def _save(self, asked_to_stop: bool) -> None:
        """A checkpoint after each evaluation, when time is up, and before the run stops."""
        state = self.state
        stop, due = self.processes.any(asked_to_stop, self.store.is_due())
        if stop or due or self._evaluation_is_due():
            self.store.save(self._checkpoint())
        if stop and not state.finished:
            self.processes.wait()  # until the checkpoint is written
            raise Interrupted(
                f"stopped after step {state.step} of {self.steps}. {self.store.where_to_go_on()}"
            )

    def _checkpoint(self) -> Checkpoint:
        weights = {name: distributed.unsharded(x) for name, x in self.model.state_dict().items()}
        tensors = {"model": weights, "optimizer": self.optimizer.tensors()}
        if self.average is not None:
            tensors["average"] = dict(self.average.model.state_dict())
        if carried := self.carried.tensors(self.processes):
            tensors["carried"] = carried
        if bad := divergence.first_nonfinite(weights):
            raise self._diverged(f"step {self.state.step}: {bad} is not finite any more")
        return Checkpoint(self.state.step, tensors, asdict(self.state))

    def _resume(self) -> None:
        checkpoint = self.store.newest()
        if checkpoint is not None:
            distributed.load_into(self.model, checkpoint.tensors["model"])
            self.optimizer.load(checkpoint.tensors["optimizer"])
            if self.average is not None:
                self.average.model.load_state_dict(checkpoint.tensors["average"])
            if carried := checkpoint.tensors.get("carried"):
                self.carried.load(carried, self.processes)
            try:
                self.state = TrainingState(**checkpoint.state)
            except TypeError as error:
                raise ValueError(
                    f"the checkpoint of step {checkpoint.step} is of another release ({error}); "
                    "go on with that one, or begin anew in another folder"
                ) from error
            self.reporter.message(f"going on after step {self.state.step} of {self.steps}")
            self._raise_epochs()
        self.store.begin(self.state.step)

    def _raise_epochs(self) -> None:
        """Go on with a run that was meant to be shorter, on the schedule of the longer one."""
        state, before = self.state, self.state.epochs
        state.epochs = self.epochs
        if not 0 < before < self.epochs:
            return
        state.finished = state.finished and state.step >= self.steps
        lr = self.optimizer.begin(state.step)
        self.reporter.message(
            f"epochs {before} -> {self.epochs}: the learning rate goes on as in the "
            f"{self.config.optimizer.schedule} schedule of {self.epochs} epochs, {lr:.3g} now"
        )

    def _report(self, epoch: int, count: int, seconds: float) -> None:
        state = self.state
        # in its first step a process loads and compiles much: it tells nothing about the others
        step, before = self.first or (0, 0.0)
        self.first = self.first or (state.step, state.seconds)
        per_step = (state.seconds - before) / (state.step - step)
        self.reporter.step(
            Progress(
                step=state.step,
                steps=self.steps,
                epoch=epoch + 1,
                epochs=self.epochs,
                loss=self.loss,
                lr=self.lr,
                examples_per_second=count / seconds,
                seconds_left=per_step * (self.steps - state.step),
                score=state.score,
            )
        )


def evaluation_interval(epochs: int) -> int:
    """Epochs from one evaluation to the next."""
    return math.ceil(epochs / MOST_EVALUATIONS)


def _mix(seed: int, step: int, rank: int) -> int:
    """One seed of 64 bits for each step and process."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def _jittered(most: float, seed: int, step: int) -> float:
    """A rate between ``1 / (1 + most)`` and ``1 + most``, the same in all processes."""
    if not most:
        return 1.0
    seeds = np.random.SeedSequence([seed, step], spawn_key=(1,))
    return float((1 + most) ** np.random.default_rng(seeds).uniform(-1, 1))
