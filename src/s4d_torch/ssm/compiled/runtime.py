"""Running compiled code: whether it can run here, when it is compiled, its threads and its memory.

Without a working numba, off the CPU, in another precision than float32 and float64, or under a
transform of ``torch.func``, :func:`available` says no, and plain torch takes over.
"""

import ctypes
import gc
import importlib
import logging
import mmap
import os
import sys
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import transformed

LOG = logging.getLogger("s4d_torch")
_INSTALLED = os.environ.get("S4D_TORCH_COMPILED", "1") != "0" and find_spec("numba") is not None
# Channels that compiled code takes at once, as float32 in one register of this CPU: those of
# AVX-512 hold 16, and there are 32 of them; elsewhere 8 are one register or two.
LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
_READY: set[tuple[Any, torch.dtype]] = set()  # functions that are compiled for a dtype
PROBED = ("scan", "tables", "vandermonde", "convolution.direct", "convolution.fourier")
SERIAL = 3 * 2**19  # mode steps; for fewer, waking a thread takes longer than the work


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the compiled scan can run here."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling():  # which cannot trace an import
        return _INSTALLED
    return not transformed() and _probe_numba()


@cache
def _probe_numba() -> bool:
    if not _INSTALLED:
        return False
    try:
        for name in PROBED:
            compiled_module(f"{__package__}.{name}_code")
    except Exception as error:  # a broken install, or no folder in which to keep compiled code
        LOG.warning("s4d_torch: plain torch takes over, numba does not work: %s", error)
        return False
    return True


@cache
def compiled_module(name: str) -> ModuleType:
    """A module of compiled code, imported when first needed: numba takes its time."""
    return importlib.import_module(name)


READ = (torch.float32, torch.float64, torch.int64)


def as_read(dtype: torch.dtype, **given: tuple[Tensor, tuple[int, ...]]) -> list[Tensor]:
    """Tensors as compiled code reads them: contiguous, without a negative bit; an error otherwise.

    It reads and writes where the shapes that it is told of say, and looks at nothing else.
    """
    read = []
    for name, (x, shape) in given.items():
        if x.shape != shape or x.dtype != dtype or dtype not in READ or not x.is_cpu:
            raise ValueError(
                f"{name} must be {dtype} of shape {shape} on the CPU, "
                f"got {x.dtype} of shape {tuple(x.shape)} on {x.device}"
            )
        ready = x.is_contiguous() and not x.is_neg()
        read.append(x if ready else x.resolve_neg().contiguous())
    return read


def share(
    kernel: Any,
    tasks: int,
    work: int,
    options: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    room: Sequence[Tensor] = (),
) -> None:
    """``kernel(first, last, *options, *arrays)`` over all tasks, in the threads torch may use.

    ``work`` is about how many mode steps a task takes. The compiled code holds no lock. Each thread
    has for itself, after the others, an array like each of ``room`` to work in.
    """
    arrays = [x.detach().numpy() if x.requires_grad else x.numpy() for x in tensors]
    own = [x.numpy() for x in room]
    arguments = (*options, *arrays)
    if (kernel, tensors[0].dtype) not in _READY:
        _compile(kernel, (*arguments, *own))
        _READY.add((kernel, tensors[0].dtype))
    threads = min(torch.get_num_threads(), tasks) if tasks * work >= SERIAL else 1
    if threads == 1:
        kernel(0, tasks, *arguments, *own)
        return
    edges = [tasks * i // threads for i in range(threads + 1)]
    rooms = [own, *([np.empty_like(x) for x in own] for _ in range(1, threads))]
    parts = zip(pairwise(edges), rooms, strict=True)
    run_in_threads(kernel, [(*edge, *arguments, *each) for edge, each in parts])


def _compile(kernel: Any, arguments: tuple[Any, ...]) -> None:
    """Before any thread runs."""
    name = kernel.py_func.__name__
    first_call(name, lambda: kernel(0, 0, *arguments), [kernel])


def first_call(what: str, call: Callable[[], object], functions: Sequence[Any]) -> None:
    """A call for which ``functions`` are compiled, if they are not on disk; how long it took."""
    before, began = _misses(functions), time.perf_counter()
    with _collection_paused():
        call()
    if _misses(functions) > before:
        LOG.info("s4d_torch: compiled %s in %.1f s", what, time.perf_counter() - began)


@contextmanager
def _collection_paused() -> Iterator[None]:
    """A sixth of the time to compile was a search for garbage among what the compiler makes."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _misses(functions: Sequence[Any]) -> int:
    return sum(sum(function.stats.cache_misses.values()) for function in functions)


# -- threads, woken without the detours of a future ------------------------------------------------

Part = tuple[Any, ...]  # the arguments of one call


class _Call:
    """A call handed to another thread, and how it ended."""

    __slots__ = ("arguments", "done", "error", "function")

    def __init__(self, function: Callable[..., object], arguments: Part) -> None:
        self.function, self.arguments = function, arguments
        self.error: BaseException | None = None
        self.done = allocate_lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            self.function(*self.arguments)
        except BaseException as error:  # it belongs to the thread that waits
            self.error = error
        self.done.release()

    def wait(self) -> BaseException | None:
        self.done.acquire()
        return self.error


class _Workers:
    """As many threads as were ever needed at once, asleep until there is a call."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._count = 0

    def begin(self, function: Callable[..., object], parts: list[Part]) -> list[_Call]:
        while self._count < len(parts):
            self._count += 1
            name = f"s4d-torch-{self._count}"
            Thread(target=self._serve, name=name, daemon=True).start()
        calls = [_Call(function, part) for part in parts]
        for call in calls:
            self._calls.put(call)
        return calls

    def _serve(self) -> None:
        while True:
            self._calls.get().run()


@cache
def _workers(process: int) -> _Workers:
    """One set in each process: threads do not survive a fork."""
    return _Workers()


def run_in_threads(function: Callable[..., object], parts: list[Part]) -> None:
    """``function(*part)`` for every part at the same time, the first of them in this thread."""
    others = _workers(os.getpid()).begin(function, parts[1:]) if len(parts) > 1 else []
    try:
        function(*parts[0])
    finally:  # the others write to the caller's memory: never leave before they end
        errors = [call.wait() for call in others]
    for error in errors:
        if error is not None:
            raise error


# -- large pages -----------------------------------------------------------------------------------
# The C library maps a tensor of 32 MB or more anew at every call, and the system hands out its
# pages of 4 kB as they are first written, to two threads at once where their channels share a page.
# In pages of 2 MB there are few of these interruptions.

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
