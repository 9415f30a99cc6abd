"""The C library's memory: kept for the next step rather than given back and fetched again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # of glibc's mallopt


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process; whether that could be arranged.

    A step allocates the same large tensors again and again. glibc maps each of them anew, and the
    system fills every page with zeros first. Meant for a process that trains, called once at its
    start; elsewhere than on glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 * 2**20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
