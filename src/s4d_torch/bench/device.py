"""Where contenders run: whether a device is here, waiting for it, and the memory it has."""

import ctypes
import gc
from contextlib import suppress

import torch

from s4d_torch.paper.experiments.cost import counted_memory

DEVICES = ("cpu", "cuda", "mps")


def check_device(name: str) -> None:
    """An error that says which devices are here, unless ``name`` is one of them."""
    if name not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}; got {name!r}")
    here = [each for each in DEVICES if _is_here(each)]
    if name not in here:
        raise ValueError(
            f"device {name!r} is not to be found by torch {torch.__version__}; here there is "
            f"{' and '.join(here)}"
        )


def _is_here(name: str) -> bool:
    if name == "cuda":
        return torch.cuda.is_available()
    return name == "cpu" or torch.backends.mps.is_available()


def wait_for(device: str) -> None:
    """Return when all that was asked of the device is done: its calls return at once."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def free_memory(device: str) -> float:
    """Bytes that could be asked for now."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    return memory_of_system("MemAvailable")  # which mps shares with the processor


def memory_of_system(name: str) -> float:
    """Bytes that Linux counts as MemTotal or MemAvailable; a guess where it does not say."""
    return counted_memory(name) or 8.0 * 2**30


def return_memory(device: str = "cpu") -> None:
    """Give freed memory back to the system, also where it was to be kept for the next call."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
