"""The training loop: one for the command line, the estimators and the paper's recipes.

Nothing in it depends on what happened before a step except the weights, the optimiser's state and
a few numbers: the data of a step follow from seed and epoch, its random numbers from seed and step.
So a run that was broken off goes on bit by bit as if it had not been.
"""

from __future__ import annotations

import math
import time
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import AdamW

from s4d_torch._interruption import Interrupted
from s4d_torch.data.dataset import Dataset
from s4d_torch.nn.parameter_groups import parameter_groups
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training import guard, sharing
from s4d_torch.training.average import Average
from s4d_torch.training.batches import Order, Part, feed
from s4d_torch.training.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer
from s4d_torch.training.config import Config
from s4d_torch.training.evaluation import Evaluation, call, loss_sum, predict, score
from s4d_torch.training.keeper import Keeper
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.processes import Processes
from s4d_torch.training.progress import Progress, Reporter
from s4d_torch.training.schedule import factor

PATIENCE = 20  # bad batches in a row that are skipped, if they are, before giving up


@dataclass
class Standing:
    """How far a run has come, apart from its tensors."""

    step: int = 0
    loss_sum: float = 0.0
    """of the epoch so far, over ``loss_count`` targets"""
    loss_count: int = 0
    best_score: float | None = None
    best_epoch: int = 0
    score: float | None = None
    skipped: int = 0
    skipped_in_a_row: int = 0
    finished: bool = False
    seconds: float = 0.0


class Trainer:
    """A model, its data and its optimiser on their way through a config."""

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        model: Pretrained,
        *,
        keeper: Keeper,
        device: torch.device,
        processes: Processes = Processes(),  # noqa: B008  frozen
        reporter: Reporter | None = None,
        shard: bool = False,
    ) -> None:
        for name, split in dataset.splits.items():
            if not len(split):
                raise ValueError(f"there is nothing to train on: the {name} split is empty")
        training, optimizer = config.training, config.optimizer
        self.config, self.dataset, self.keeper = config, dataset, keeper
        self.device, self.processes = device, processes
        self.reporter = reporter or Reporter()
        self.model = model.to(device)
        self.average = None if training.ema is None else Average(self.model, training.ema)
        self.wrapped = sharing.distribute(self.model, processes, device, shard=shard)
        groups = parameter_groups(
            self.model, optimizer.lr, optimizer.weight_decay, optimizer.ssm_lr
        )
        self.optimizer = AdamW(groups, lr=optimizer.lr)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.order = Order(
            len(dataset.train),
            training.batch_size,
            optimizer.accumulate,
            training.seed,
            dataset.train.lengths(),
        )
        self.steps = training.epochs * self.order.steps
        self.metric_name = config.metric(dataset.signature.kind)
        self.metric = METRICS[self.metric_name]
        self.standing = Standing()
        self.loss = self.lr = float("nan")  # of the last step
        self.rate = 1.0  # what dt is multiplied by in this step
        self.first: tuple[int, float] | None = None  # step of this process, and seconds after it

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> None:
        """All epochs that are left; the best weights are with the keeper then."""
        one = Part(self.dataset.batch(self.dataset.train, np.arange(1)), 1.0)
        sharing.settle(self.wrapped, self.processes, lambda: self._backward(one, 1))
        self._resume()
        now = self.standing
        with guard.listening() as stop:
            while not now.finished:
                epoch, done = divmod(now.step, self.order.steps)
                batches = feed(self.dataset, self.order.epoch(epoch)[done:], self.processes)
                with closing(batches):
                    for parts, count in batches:
                        began = time.perf_counter()
                        self._step(parts, count)
                        now.step += 1
                        if now.step % self.order.steps == 0:
                            self._end_epoch(epoch)
                        now.seconds += time.perf_counter() - began
                        self._keep(stop.asked)
                        self._report(epoch, count, time.perf_counter() - began)

    def _step(self, parts: list[Part], count: int) -> None:
        now, step = self.standing, self.standing.step
        self.loss = float("nan")
        torch.manual_seed(_mix(self.config.training.seed, step, self.processes.rank))
        self.lr = self._set_rates(step)
        self.rate = _jittered(self.config.training.rate_jitter, self.config.training.seed, step)
        self.model.train()
        self.optimizer.zero_grad()
        statistics = [buffer.clone() for buffer in self.model.buffers()]
        loss = torch.zeros((), dtype=torch.float64)
        for i, part in enumerate(parts):
            quiet = sharing.without_sync(self.wrapped) if i < len(parts) - 1 else nullcontext()
            with quiet:
                loss += self._backward(part, count)
        total = float(self.processes.sum(loss)) / count
        norm = sharing.whole(
            get_total_norm(p.grad for p in self.model.parameters() if p.grad is not None)
        )
        # a value whose square overflows spoils the statistics of a norm, not yet the loss
        if not (np.isfinite(total) and torch.isfinite(norm) and guard.sound(self.model.buffers())):
            self._bad_batch(parts, total, norm)
            for buffer, before in zip(self.model.buffers(), statistics, strict=True):
                buffer.copy_(before)  # a batch that is left out leaves no trace
            return
        now.skipped_in_a_row = 0
        self._clip(norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)
        now.loss_sum += total * count
        now.loss_count += count
        self.loss = total

    def _backward(self, part: Part, count: int) -> Tensor:
        """Add the gradients of one part; its loss, summed."""
        outputs, targets = self._outputs(self.wrapped, part)
        loss = part.weight * self.loss_sum(outputs, targets)
        # processes average their gradients: then the factor makes it the mean over all targets
        (loss * (self.processes.count / count)).backward()
        return loss.detach().double().cpu()

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What outputs cost, summed over a batch."""
        smoothing = self.config.training.label_smoothing
        return loss_sum(outputs, targets, self.dataset.signature, smoothing)

    def _clip(self, norm: Tensor) -> None:
        largest = self.config.optimizer.clip
        if largest is not None and norm > largest:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(largest / (norm + 1e-12))

    def _set_rates(self, step: int) -> float:
        optimizer = self.config.optimizer
        now = factor(optimizer.schedule, step, self.steps, optimizer.warmup, optimizer)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * now
        return optimizer.lr * now

    def _bad_batch(self, parts: list[Part], loss: float, norm: Tensor) -> None:
        now = self.standing
        seen = guard.blame(self.model, lambda: [self._outputs(self.model, part) for part in parts])
        _, where = min(self.processes.each(seen), key=lambda one: one[0])
        found = f"step {now.step + 1}: the loss is {loss:.3g}, the gradient's norm {norm:.3g}; "
        found += f"the first that is not finite is {where}"
        now.skipped += 1
        now.skipped_in_a_row += 1
        if not self.config.training.skip_bad_batches or now.skipped_in_a_row >= PATIENCE:
            raise self._diverged(found)
        self.reporter.message(f"{found}; the batch was skipped")
        self.optimizer.zero_grad()

    def _diverged(self, found: str) -> guard.DivergenceError:
        return guard.DivergenceError(
            f"{found}. {self.keeper.where_to_go_on()} A smaller --optimizer.lr or "
            "--optimizer.clip 1 may help; --training.skip-bad-batches leaves bad batches out."
        )

    def _outputs(self, model: torch.nn.Module, part: Part) -> tuple[Tensor, Tensor]:
        """What ``model`` makes of a part, and what it should."""
        batch = part.batch.to(self.device)
        with sharing.taking_part(self.model, part.weight > 0):
            precision = self.config.training.precision
            return call(model, batch, precision=precision, rate=self.rate), batch.targets

    # -- epochs ------------------------------------------------------------------------------------

    def _end_epoch(self, epoch: int) -> None:
        now, training = self.standing, self.config.training
        judged = self.model if self.average is None else self.average.model
        found = self.evaluate(judged, "validation")
        now.score = found.scores[self.metric_name]
        row: dict[str, Any] = {
            "epoch": epoch + 1,
            "step": now.step,
            "lr": self.lr,
            "train_loss": now.loss_sum / now.loss_count if now.loss_count else math.nan,
            "validation_loss": found.loss,
            **{f"validation_{name}": value for name, value in found.scores.items()},
        }
        if self.metric.better(now.score, now.best_score):
            now.best_score, now.best_epoch = now.score, epoch + 1
            self.keeper.keep_best(judged, self.processes)
        now.loss_sum, now.loss_count = 0.0, 0
        tired = training.patience is not None and epoch + 1 - now.best_epoch >= training.patience
        now.finished = epoch + 1 == training.epochs or tired
        self.keeper.add_row(row, self.processes)
        self.reporter.epoch(row)

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
        )
        found = score(outputs, targets, self.dataset.signature)
        return self.processes.from_first(found)  # decisions follow from it

    # -- keeping and going on ----------------------------------------------------------------------

    def _keep(self, asked_to_stop: bool) -> None:
        ended = self.standing.step % self.order.steps == 0
        stop, due = self.processes.any(asked_to_stop, self.keeper.is_due())
        if stop or due or ended:
            self.keeper.save(self._checkpoint(), self.processes)
        if stop and not self.standing.finished:
            self.processes.wait()  # until the checkpoint is written
            raise Interrupted(
                f"stopped after step {self.standing.step} of {self.steps}. "
                f"{self.keeper.where_to_go_on()}"
            )

    def _checkpoint(self) -> Checkpoint:
        tensors = {
            "model": {name: sharing.whole(x) for name, x in self.model.state_dict().items()},
            "optimizer": {
                k: sharing.whole(x) for k, x in optimizer_tensors(self.optimizer).items()
            },
        }
        if self.average is not None:
            tensors["average"] = dict(self.average.model.state_dict())
        if bad := guard.first_bad(tensors["model"]):
            raise self._diverged(f"step {self.standing.step}: {bad} is not finite any more")
        return Checkpoint(self.standing.step, tensors, asdict(self.standing))

    def _resume(self) -> None:
        checkpoint = self.keeper.newest(self.processes)
        if checkpoint is not None:
            sharing.load_into(self.model, checkpoint.tensors["model"])
            restore_optimizer(self.optimizer, checkpoint.tensors["optimizer"])
            if self.average is not None:
                self.average.model.load_state_dict(checkpoint.tensors["average"])
            self.standing = Standing(**checkpoint.state)
            self.reporter.message(f"going on after step {self.standing.step} of {self.steps}")
        self.keeper.begin(self.standing.step, self.processes)

    def _report(self, epoch: int, count: int, seconds: float) -> None:
        now = self.standing
        # in its first step a process loads and compiles much: it tells nothing about the others
        step, before = self.first or (0, 0.0)
        self.first = self.first or (now.step, now.seconds)
        per_step = (now.seconds - before) / (now.step - step)
        self.reporter.step(
            Progress(
                step=now.step,
                steps=self.steps,
                epoch=epoch + 1,
                epochs=self.config.training.epochs,
                loss=self.loss,
                lr=self.lr,
                examples_per_second=count / seconds,
                seconds_left=per_step * (self.steps - now.step),
                score=now.score,
            )
        )


def _mix(seed: int, step: int, rank: int) -> int:
    """One seed of 64 bits for each step and process."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def _jittered(most: float, seed: int, step: int) -> float:
    """A rate between ``1 / (1 + most)`` and ``1 + most``, the same in all processes."""
    if not most:
        return 1.0
    own = np.random.SeedSequence([seed, step], spawn_key=(1,))
    return float((1 + most) ** np.random.default_rng(own).uniform(-1, 1))
