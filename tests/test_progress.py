"""Progress in lines, and the words for times."""

import sys

import pytest

from s4d_torch import _progress
from s4d_torch._progress import amount, clock, duration, progress


def test_lines_come_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    with progress("images", 100) as shown:
        for seconds, more in ((4.0, 10), (10.0, 10), (15.0, 30), (20.0, 50)):
            now[0] = seconds
            shown.advance(more)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["images: 20 of 100, 2/s, 40 s left", "images: 100 of 100 in 20 s"]


def test_a_download_that_goes_on_has_the_speed_of_what_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    with progress("x.bin", in_bytes=True) as shown:
        for seconds, done, total in ((0.0, 4000, None), (10.0, 5000, None), (20.0, 6000, 8000)):
            now[0] = seconds
            shown.at(done, total)
    assert capsys.readouterr().err.splitlines() == [
        "x.bin: 5.0 kB, 100 bytes/s",
        "x.bin: 6.0 kB of 8.0 kB, 100 bytes/s, 20 s left",
    ]


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("images", 10) as shown:
        shown.advance(10)
        shown.say("done [all]")
    err = capsys.readouterr().err
    assert "10/10" in err
    assert "images: done [all]" in err


def test_times_in_words() -> None:
    assert [clock(x) for x in (8, 750, 3750, float("nan"))] == ["0:08", "12:30", "1:02:30", "-:--"]
    assert [amount(x) for x in (0.04, 8.24, 180, 18360)] == ["40 ms", "8.2 s", "3 min", "5.1 h"]
    days = [duration(x * 86400) for x in (0.0001, 0.01, 0.1, 20, 1131.5)]
    assert days == ["9 s", "14 min", "2.4 h", "20 days", "3.1 years"]
