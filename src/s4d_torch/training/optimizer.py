"""The optimiser on its schedule, and a moving average of what it makes of the weights."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW

from s4d_torch.nn.parameter_groups import parameter_groups
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import OptimizerConfig
from s4d_torch.training.distributed import sharded_like, unsharded
from s4d_torch.training.schedule import factor

FUSED = ("cpu", "cuda")  # devices
FEW = 2**20  # parameters; for fewer, waking threads for each of their tensors takes longer


class FusedAdamW(AdamW):
    """AdamW in one pass over all parameters where torch has it: small models have many small ones.

    On a CPU that pass wakes its threads anew for each tensor; few parameters take one thread.
    """

    def __init__(self, groups: Any, lr: float) -> None:
        groups = list(groups)
        parameters = [p for each in groups for p in _members(each)]
        fused = all(p.device.type in FUSED for p in parameters)
        super().__init__(groups, lr=lr, fused=fused)
        on_cpu = all(p.device.type == "cpu" for p in parameters)
        self.alone = on_cpu and sum(p.numel() for p in parameters) < FEW

    def step(self, closure: Any = None) -> Any:
        if not self.alone:
            return super().step(closure)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return super().step(closure)
        finally:
            torch.set_num_threads(threads)


def _members(group: Any) -> list[Tensor]:
    """The parameters of a group, or a parameter that stands for itself."""
    return list(group["params"]) if isinstance(group, dict) else [group]


class Optimizer:
    """AdamW with the learning rates, the schedule and the limit on gradients of a config."""

    def __init__(self, model: Pretrained, config: OptimizerConfig, steps: int) -> None:
        self.model, self.config, self.steps = model, config, steps
        groups = parameter_groups(model, config.lr, config.weight_decay, config.ssm_lr)
        self.adamw = FusedAdamW(groups, lr=config.lr)
        self.rates = [group["lr"] for group in self.adamw.param_groups]

    def begin(self, step: int) -> float:
        """Get ready for a step, counted from 0; its learning rate."""
        self.adamw.zero_grad()
        now = factor(step, self.steps, self.config)
        for group, rate in zip(self.adamw.param_groups, self.rates, strict=True):
            group["lr"] = rate * now
        return self.config.lr * now

    def gradient_norm(self) -> Tensor:
        """Of all gradients together; all processes have to ask."""
        gradients = (p.grad for p in self.model.parameters() if p.grad is not None)
        return unsharded(get_total_norm(gradients))

    def step(self, norm: Tensor) -> None:
        """Take the step that the gradients, whose norm is ``norm``, ask for."""
        if self.config.clip is not None:
            clip_grads_with_norm_(self.model.parameters(), self.config.clip, norm)
        self.adamw.step()

    def tensors(self) -> dict[str, Tensor]:
        """The state as whole tensors; all processes have to ask."""
        return {name: unsharded(x) for name, x in optimizer_tensors(self.adamw).items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        restore_optimizer(self.adamw, tensors)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as tensors, named ``index.key``."""
    return {
        f"{index}.{key}": torch.as_tensor(value)
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo :func:`optimizer_tensors`; learning rates and decays are the config's business."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        parameter = parameters[int(index)]
        cut = sharded_like(tensor, parameter) if tensor.shape == parameter.shape else tensor
        state.setdefault(int(index), {})[key] = cut
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


class MovingAverage:
    """``average <- decay average + (1 - decay) weights`` after each step.

    In the first steps the decay is smaller, (1 + k)/(10 + k), so that the random start is soon
    forgotten. Running statistics are taken as they are. Unlike torch's ``AveragedModel`` it is
    whole where the model is sharded, and its first update is an average too.
    """

    def __init__(self, model: Pretrained, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.model.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, model: Pretrained) -> None:
        updates = self.model.get_buffer("updates")
        updates += 1
        weight = 1 - min(self.decay, (1 + int(updates)) / (10 + int(updates)))
        for mean, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(unsharded(parameter.detach()).to(mean.dtype), weight)
        buffers = dict(model.named_buffers())
        for name, buffer in self.model.named_buffers():
            if name in buffers:
                buffer.copy_(unsharded(buffers[name]))
