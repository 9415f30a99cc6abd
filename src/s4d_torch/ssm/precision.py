"""Double precision, where the device has it, and none lower than that of the signals."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import traced


def double(x: Tensor) -> Tensor:
    """In double precision, where the device has it."""
    return x.to(double_dtype(x.device))


def double_dtype(device: torch.device) -> torch.dtype:
    # Apple's GPUs have no float64
    return torch.float32 if device.type == "mps" else torch.float64


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """No autocast; devices such as meta have none, and mostly there is none to be without."""
    if device.type == "meta" or not (traced() or torch.is_autocast_enabled(device.type)):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
