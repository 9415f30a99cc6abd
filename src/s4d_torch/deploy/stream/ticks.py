"""The times of a stream that comes line by line."""

from s4d_torch.data.clock import Clock
from s4d_torch.data.files.moments import TimeReader


class Ticks:
    """Reads the time of each line, which has to come after that of the line before."""

    def __init__(self, clock: Clock) -> None:
        self._reader, self._before = TimeReader(dates=clock.dates), -float("inf")

    def read(self, cell: str, where: str) -> float:
        time = self._reader.read(cell, where)
        if time <= self._before:
            raise ValueError(
                f"{where}: the time {cell.strip()!r} does not come after that of the line before; "
                "a stream goes on in time: sort the lines, or merge those of one time"
            )
        self._before = time
        return time
