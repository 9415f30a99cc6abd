"""Threads that wait for compiled work, woken without the detours of a future."""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any

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
