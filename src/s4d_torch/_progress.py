"""How far something has come: a bar in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Escape sequences, which a terminal obeys; marks that turn letters round; halves of letters, which
# no file takes. Labels and names of files may hold them, and they may come from anywhere.
HIDDEN = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))
HIDDEN += (*range(0x2066, 0x206A), *range(0xD800, 0xE000))
ESCAPES = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in HIDDEN}

LINES_EVERY = 10.0
"""seconds between lines of progress, where there is no terminal"""


class Meter:
    """Shows on the standard error stream what is done of ``total``: a line now and then.

    A brief one has nothing to say of what is done before a line was due.
    """

    def __init__(self, name: str, total: int | None, in_bytes: bool, brief: bool = False) -> None:
        self.name, self.total, self.in_bytes, self.brief = name, total, in_bytes, brief
        self.done = 0
        self._first: int | None = None  # what was there before, as of a download that goes on
        self._begun = self._last = time.monotonic()

    def at(self, done: int, total: int | None) -> None:
        """So much is done, of so much if that is known."""
        self._first = done if self._first is None else self._first
        self.done, self.total = done, total
        self._show()

    def advance(self, more: int) -> None:
        self._first = 0
        self.done += more
        self._show()

    def say(self, text: str) -> None:
        """A line about it."""
        note(f"{self.name}: {text}")

    def _show(self) -> None:
        now = time.monotonic()
        if self.done == self.total:
            if self.brief and now - self._begun < LINES_EVERY:
                return
            done = self._size(self.total) if self.in_bytes else f"{self.done} of {self.total}"
            self.say(f"{done} in {now - self._begun:.0f} s")
        elif now - self._last >= LINES_EVERY:
            self._last = now
            speed = (self.done - (self._first or 0)) / max(now - self._begun, 1e-9)
            of = left = ""
            if self.total is not None:
                of = f" of {self._size(self.total)}"
                left = f", {(self.total - self.done) / speed:.0f} s left" if speed > 0 else ""
            self.say(f"{self._size(self.done)}{of}, {self._size(int(speed))}/s{left}")

    def _size(self, amount: int) -> str:
        if not self.in_bytes:
            return str(amount)
        from rich.filesize import decimal

        return decimal(amount)


class _Bar(Meter):
    def __init__(self, name: str, total: int | None, in_bytes: bool, bars: Any) -> None:
        super().__init__(name, total, in_bytes)
        self.bars, self.task = bars, bars.add_task(visible(name), total=total)

    def say(self, text: str) -> None:
        say(self.bars.console, f"{self.name}: {text}")

    def _show(self) -> None:
        self.bars.update(self.task, completed=self.done, total=self.total)


@contextmanager
def progress(
    name: str, total: int | None = None, *, in_bytes: bool = False, brief: bool = False
) -> Iterator[Meter]:
    """Show how far ``name`` has come, for as long as the block lasts; ``brief``: no longer."""
    if not sys.stderr.isatty():
        yield Meter(name, total, in_bytes, brief)
        return
    from rich import progress as rich  # slow to import, and seldom needed
    from rich.console import Console

    units = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
    columns = [
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        *(units if in_bytes else [rich.MofNCompleteColumn()]),
        rich.TimeRemainingColumn(),
    ]
    with rich.Progress(*columns, console=Console(stderr=True), transient=brief) as bars:
        yield _Bar(name, total, in_bytes, bars)


def note(text: str) -> None:
    """A line on the standard error stream, for what takes its time."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def say(console: "Console", text: str) -> None:
    """A line as it is: no colours for numbers, no breaks within a path."""
    console.print(visible(text), highlight=False, markup=False, soft_wrap=True)


def visible(text: str) -> str:
    """What a terminal would obey, or not show, as ``\\x1b``; lines and tabs stay."""
    return text.translate(ESCAPES)


def clock(seconds: float) -> str:
    """``0:08``, ``12:30`` or ``1:02:30``."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def amount(seconds: float) -> str:
    """``40 ms``, ``8.2 s``, ``3 min`` or ``5.1 h``: a time of which two digits matter."""
    for unit, size, most in (("ms", 1e-3, 1.0), ("s", 1.0, 90.0), ("min", 60.0, 5400.0)):
        if seconds < most:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds / 3600)} h"


def _two_digits(x: float) -> str:
    return f"{x:.0f}" if x >= 10 else f"{x:.2g}"


def duration(seconds: float) -> str:
    """``8 s``, ``12 min``, ``3.5 h``, ``20 days`` or ``3.1 years``: a time to plan with."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 5400)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    days = seconds / 86400
    if days < 2:
        return f"{seconds / 3600:.1f} h"
    return f"{days:.0f} days" if days < 730 else f"{days / 365:.1f} years"
