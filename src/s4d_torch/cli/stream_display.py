"""What a live stream shows: a line that changes in a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from s4d_torch.cli.display import as_json, say

PERCENTILES = (50, 95, 99)
STEP = 1.01  # each bin of a histogram is so much longer than the one before
SHORTEST, LONGEST = 1e-6, 1e4  # seconds


class Latencies:
    """Percentiles of any number of times in a fixed amount of memory, to 1%."""

    def __init__(self) -> None:
        self._counts = [0] * (2 + math.ceil(math.log(LONGEST / SHORTEST, STEP)))
        self.count, self.longest = 0, 0.0

    def add(self, seconds: float) -> None:
        seconds = max(seconds, SHORTEST)
        place = math.ceil(math.log(min(seconds, LONGEST) / SHORTEST, STEP))
        self._counts[place] += 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def percentile(self, percent: float) -> float:
        """The time that so many per cent of all do not exceed; NaN where there are none."""
        if not self.count:
            return math.nan
        needed, seen = math.ceil(percent / 100 * self.count), 0
        for place, count in enumerate(self._counts):
            seen += count
            if seen >= max(1, needed):
                return min(SHORTEST * STEP**place, self.longest)
        return self.longest

    def in_milliseconds(self) -> dict[str, float]:
        found = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        found["max"] = self.longest if self.count else math.nan
        return {name: round(1e3 * seconds, 4) for name, seconds in found.items()}


class Lines:
    """A line for each result."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._latest = ""

    def message(self, text: str) -> None:
        say(self.console, text)

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        """``last`` of its stream, or of the part after which the stream begins again."""
        line = result_line(found)
        if line != self._latest:  # the last one may have been shown before it was known to be
            say(self.console, line)
        self._latest = line

    def end(self, summary: Mapping[str, Any]) -> None:
        for line in summary_lines(summary):
            say(self.console, line)

    def close(self) -> None:
        pass


class Changing(Lines):
    """One line that changes; what is final stays above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.live.start()

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        if last:
            super().result(found, last)
        else:
            self.live.update(Text(result_line(found), no_wrap=True), refresh=True)

    def close(self) -> None:
        self.live.stop()


class Json(Lines):
    """An object for each result and one at the end."""

    def message(self, text: str) -> None:
        pass

    def result(self, found: Mapping[str, Any], last: bool) -> None:
        print(as_json({"event": "result", "last": last, **found}), flush=True)

    def end(self, summary: Mapping[str, Any]) -> None:
        print(as_json({"event": "end", **summary}), flush=True)


def result_line(found: Mapping[str, Any]) -> str:
    """``1.20 s  yes 93.1%  (no 3.2%)``, or ``1200  0.25``."""
    at = f"{found['at']}" if found["seconds"] is None else f"{found['seconds']:.2f} s"
    if "value" in found:
        return f"{at:>10}  {found['value']:.5g}"
    others = {k: p for k, p in found["probabilities"].items() if k != found["class"]}
    second = max(others, key=lambda k: others[k], default="")
    runner_up = f"  ({second} {others[second]:.1%})" if second else ""
    return f"{at:>10}  {found['class']} {found['probability']:.1%}{runner_up}"


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    seconds = summary["seconds"]
    heard = f"{summary['at']} samples" + ("" if seconds is None else f", {seconds:.2f} s")
    stopped = "; stopped by the user" if summary["interrupted"] else ""
    lines = [f"{heard}, in {summary['chunks']} chunks of {summary['chunk']}{stopped}"]
    if summary["chunks"]:
        times = summary["latency_ms"]
        lines.append("latency  " + "  ".join(f"{k} {v:.3g} ms" for k, v in times.items()))
        each = f"{1e6 * summary['computing_seconds'] / summary['at']:.3g} us per sample"
        factor = summary["real_time_factor"]
        lines.append(each if factor is None else f"real-time factor {factor:.3g}, {each}")
    if summary["snapshot"]:
        lines.append(f"the state is in {summary['snapshot']}")
    return lines
