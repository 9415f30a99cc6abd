"""Data as tensors with fixed splits, one file per family."""

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.data.digits import load_digits

__all__ = ["Dataset", "Split", "load_digits"]
