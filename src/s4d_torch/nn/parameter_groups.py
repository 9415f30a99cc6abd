"""Parameter groups: A, B and dt learn slowly and without decay; the rest as usual."""

import math
from typing import Any

from torch import nn

from s4d_torch.nn.ssm import SSM

SLOW = ("raw_decay", "frequency", "raw_P", "raw_B", "log_dt")
DECAYS = ("raw_C", "D")


def parameter_groups(
    model: nn.Module, lr: float = 1e-3, weight_decay: float = 0.0, ssm_lr: float | None = None
) -> list[dict[str, Any]]:
    """Groups for any torch optimiser: ``AdamW(parameter_groups(model, 0.01, 0.05))``.

    A, B and dt get ``ssm_lr`` (by default ``min(0.001, lr)``) and no weight decay. C, D, weights
    and embeddings get ``lr`` and ``weight_decay``; biases and norms get ``lr`` and no decay.
    Each trainable parameter is in exactly one group; empty groups are left out.
    """
    ssm_lr = min(1e-3, lr) if ssm_lr is None else ssm_lr
    for rate in (lr, weight_decay, ssm_lr):
        if not 0 <= rate < math.inf:
            raise ValueError(
                f"learning rates and weight decay must be finite and not negative, got lr={lr}, "
                f"weight_decay={weight_decay}, ssm_lr={ssm_lr}"
            )
    of_ssm: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, SSM):
            of_ssm |= {id(p): name for name, p in module.named_parameters(recurse=False)}
    groups: list[dict[str, Any]] = [
        {"name": "ssm", "params": [], "lr": ssm_lr, "weight_decay": 0.0},
        {"name": "decay", "params": [], "lr": lr, "weight_decay": weight_decay},
        {"name": "no_decay", "params": [], "lr": lr, "weight_decay": 0.0},
    ]
    for parameter in model.parameters():  # each once, shared ones too
        if parameter.requires_grad:
            name = of_ssm.get(id(parameter))
            decays = name in DECAYS or (name is None and parameter.ndim > 1)
            groups[0 if name in SLOW else 1 if decays else 2]["params"].append(parameter)
    return [group for group in groups if group["params"]]
