"""Ctrl-C and SIGTERM, which ask a process to stop where nothing is lost."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Work that was stopped by its user after saving; the message says how to go on."""


class CtrlC(KeyboardInterrupt):
    """A ``KeyboardInterrupt`` that can be caught for good.

    Python notes one of its own that leaves an ``exec`` of source, as those of dataclasses and numba
    are, and lets SIGINT end the process after all, whoever caught it meanwhile.
    """


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler that breaks off what a command is doing."""
    raise CtrlC


def leave_quietly(number: int, frame: FrameType | None) -> None:
    """A handler for a command that has not begun: there is nothing to save, and nothing to say."""
    os._exit(130)


def is_command() -> bool:
    """Whether this process was started as ``s4d`` or ``python -m s4d_torch``, by its arguments.

    While a package is imported for ``python -m``, the name of the script is not known yet; the
    package may also be that of somebody else, who imports this one.
    """
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":
        return any(word.removeprefix("-m") == "s4d_torch" for word in sys.orig_argv)
    return os.path.basename(name).partition(".")[0] == "s4d"


def begin_quietly() -> None:
    """Ctrl-C ends a command that is still being imported; :func:`command_begins` ends that."""
    main = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_command() and main and usual:
        signal.signal(signal.SIGINT, leave_quietly)


def command_begins() -> None:
    """From here on Ctrl-C is a ``KeyboardInterrupt`` again."""
    if signal.getsignal(signal.SIGINT) is leave_quietly:
        signal.signal(signal.SIGINT, interrupt)


class Stop:
    """Whether somebody has ``asked`` to stop; ``before`` are the handlers to be restored."""

    def __init__(self, insist: bool) -> None:
        self.asked = False
        self.before: dict[signal.Signals, Any] = {}
        self._insist, self._waiting = insist, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again = self.asked and number == signal.SIGINT
        self.asked = True
        if self._waiting or (again and self._insist):
            self._break_off()

    def _break_off(self) -> None:
        """As Ctrl-C would have done without this."""
        raise CtrlC if self.before.get(signal.SIGINT) is interrupt else KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In here nothing can be lost: a ``KeyboardInterrupt`` comes at once."""
        self._waiting = True
        try:
            if self.asked:
                self._break_off()
            yield
        finally:
            self._waiting = False


@contextmanager
def interruptions(*signals: signal.Signals, insist: bool = False) -> Iterator[Stop]:
    """Note that one of ``signals``, by default Ctrl-C, has come, rather than break off anywhere.

    With ``insist`` a second Ctrl-C does break off. In a thread that is not the main one, which
    signals never reach, nothing changes.
    """
    stop = Stop(insist)
    with _handled_by(stop, *(signals or (signal.SIGINT,))) as stop.before:
        yield stop


@contextmanager
def ignored_interruptions() -> Iterator[None]:
    """Ctrl-C has no effect, nor has it on processes that are started in here."""
    with _handled_by(signal.SIG_IGN, signal.SIGINT):
        yield


@contextmanager
def _handled_by(handler: Any, *signals: signal.Signals) -> Iterator[dict[signal.Signals, Any]]:
    """The handlers from before, which come back in the end."""
    main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, handler) for each in signals if main}
    try:
        yield before
    finally:
        for number, old in before.items():
            signal.signal(number, old)
