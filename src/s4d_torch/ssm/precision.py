"""Double precision, where the device has it."""

import torch
from torch import Tensor


def double(x: Tensor) -> Tensor:
    """In double precision, where the device has it."""
    return x.to(double_dtype(x.device))


def double_dtype(device: torch.device) -> torch.dtype:
    # Apple's GPUs have no float64
    return torch.float32 if device.type == "mps" else torch.float64
