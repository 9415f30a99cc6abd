"""Large pages for large outputs: handing out a small page takes longer than writing on it.

The C library maps a tensor of 32 MB or more anew at every call, and the system hands out its pages
of 4 kB as they are first written, to two threads at once where their channels share a page. In
pages of 2 MB there are few of these interruptions.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache

from torch import Tensor

WORTH_IT = 2**22  # bytes; below, few large pages would be whole, and memory is used again anyway


def in_large_pages(new: Tensor) -> Tensor:
    """``new``, not yet written, with the advice to the system to give it large pages.

    Only advice, and only on Linux; what is smaller than 4 MB stays as it is.
    """
    size = new.numel() * new.element_size()
    advise = _advise() if size >= WORTH_IT else None
    if advise is not None:
        first = -(-new.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        whole = (new.data_ptr() + size - first) // mmap.PAGESIZE * mmap.PAGESIZE
        advise(first, whole, mmap.MADV_HUGEPAGE)
    return new


@cache
def _advise() -> Callable[[int, int, int], int] | None:
    """The system's ``madvise``, where it knows of large pages."""
    if not (sys.platform.startswith("linux") and hasattr(mmap, "MADV_HUGEPAGE")):
        return None
    try:
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise
