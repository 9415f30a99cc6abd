"""One file from a server: whole, resumed, broken, changed on the way, and not at all."""

import io
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from file_server import NOISE, Shelf, asked, get, offer, serve
from s4d_torch import _progress
from s4d_torch.data import MissingDataError, Source
from s4d_torch.data.files import transfer
from test_archive import found


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(transfer, "PAUSES", (0.0, 0.0, 0.0))
    with serve() as shelf:
        yield shelf


def test_a_dropped_connection_is_resumed(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cuts = [1000, 50_000, 1]
    assert get(offer(shelf), tmp_path) == NOISE
    assert asked(shelf) == [None, "bytes=1000-", "bytes=51000-", "bytes=51001-"]


def test_a_connection_that_falls_silent_is_left_and_resumed(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.1)
    shelf.cuts, shelf.stall = [1000], 0.4
    assert get(offer(shelf), tmp_path) == NOISE
    assert asked(shelf) == [None, "bytes=1000-"]


def test_an_earlier_run_is_resumed(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PAUSES", ())
    shelf.cuts = [1000]
    with pytest.raises(MissingDataError, match="ended after 1000 of 300000 bytes; gave up after 1"):
        get(offer(shelf), tmp_path)
    assert (tmp_path / "downloads/x.bin.part").stat().st_size == 1000
    assert not (tmp_path / "x.bin").exists()
    assert get(offer(shelf), tmp_path) == NOISE
    assert asked(shelf) == [None, "bytes=1000-"]
    assert set(found(tmp_path / "downloads")) == {"x.bin", ".lock"}


def leave_part(shelf: Shelf, root: Path, source: Source, length: int = 1000) -> None:
    """As a run that was killed after so many bytes leaves it."""
    shelf.cuts = [length]
    pauses, transfer.PAUSES = transfer.PAUSES, ()
    try:
        with pytest.raises(MissingDataError):
            get(source, root)
    finally:
        transfer.PAUSES = pauses
    shelf.asked.clear()


def test_without_ranges_it_starts_over(shelf: Shelf, tmp_path: Path) -> None:
    shelf.ranges = False
    shelf.cuts = [200_000]
    assert get(offer(shelf), tmp_path) == NOISE
    assert asked(shelf) == [None, "bytes=200000-"]


def test_without_ranges_a_server_that_always_breaks_is_given_up(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.ranges = False
    shelf.cuts = [2000, 2500, 1000, 2000, 2400, 2500, 1, 1, 1]
    with pytest.raises(MissingDataError, match="gave up after 4 attempts"):
        get(offer(shelf), tmp_path)
    assert len(shelf.asked) == 5  # the second went further than the first


@pytest.mark.parametrize("heeds_if_range", [True, False])
def test_a_file_that_changed_on_the_server_starts_over(
    shelf: Shelf, tmp_path: Path, heeds_if_range: bool
) -> None:
    unchecked = Source(offer(shelf).url)
    leave_part(shelf, tmp_path, unchecked)
    offer(shelf, NOISE[::-1])
    shelf.etag, shelf.heeds_if_range = '"2"', heeds_if_range
    assert get(unchecked, tmp_path) == NOISE[::-1]
    assert asked(shelf) == ["bytes=1000-"] + [None] * (not heeds_if_range)


def test_another_size_on_the_server_starts_over(shelf: Shelf, tmp_path: Path) -> None:
    shelf.etag = None
    leave_part(shelf, tmp_path, offer(shelf, NOISE[:5000]))
    source = offer(shelf, NOISE[:6000][::-1])
    assert get(source, tmp_path) == NOISE[:6000][::-1]
    assert asked(shelf) == ["bytes=1000-", None]


def test_a_file_that_became_shorter_starts_over(shelf: Shelf, tmp_path: Path) -> None:
    shelf.etag = None
    leave_part(shelf, tmp_path, offer(shelf, NOISE[:5000]))
    assert get(offer(shelf, NOISE[:300]), tmp_path) == NOISE[:300]
    assert asked(shelf) == ["bytes=1000-", None]


def test_without_version_and_checksum_nothing_is_continued(shelf: Shelf, tmp_path: Path) -> None:
    shelf.etag = 'W/"weak"'
    unchecked = Source(offer(shelf).url)
    leave_part(shelf, tmp_path, unchecked)
    assert get(unchecked, tmp_path) == NOISE
    assert asked(shelf) == [None]


def test_pieces_of_two_versions_are_noticed_and_fetched_anew(shelf: Shelf, tmp_path: Path) -> None:
    shelf.etag = None
    leave_part(shelf, tmp_path, offer(shelf))
    assert get(offer(shelf, NOISE[::-1]), tmp_path) == NOISE[::-1]
    assert asked(shelf) == ["bytes=1000-", None]


def test_a_mirror_continues_what_the_official_address_began(shelf: Shelf, tmp_path: Path) -> None:
    source = offer(shelf)
    leave_part(shelf, tmp_path, source)
    shelf.files["/elsewhere/x.bin"] = shelf.files.pop("/data/x.bin")
    shelf.etag = '"named differently"'
    assert get(source, tmp_path, mirror=f"{shelf.address}/elsewhere/") == NOISE
    assert shelf.asked == [("/elsewhere/x.bin", "bytes=1000-")]


def test_a_complete_part_needs_no_server(shelf: Shelf, tmp_path: Path) -> None:
    source = offer(shelf)
    leave_part(shelf, tmp_path, source)
    (tmp_path / "downloads/x.bin.part").write_bytes(NOISE)
    assert get(source, tmp_path) == NOISE
    assert asked(shelf) == []


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "nowhere.invalid"])
def test_an_address_without_an_answer_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    with socket.socket() as bound:  # the port is taken, and nobody listens
        bound.bind(("127.0.0.1", 0))
        url = f"http://{host.format(port=bound.getsockname()[1])}/x.bin"
        with pytest.raises(MissingDataError, match=f"{url} cannot be downloaded: no connection"):
            get(Source(url), tmp_path)


def test_busy_servers_are_tried_again(shelf: Shelf, tmp_path: Path) -> None:
    shelf.answers = [503, 429, 500]
    assert get(offer(shelf), tmp_path) == NOISE
    shelf.answers = [503] * 9
    with pytest.raises(MissingDataError, match=r"answers 503 .*; gave up after 4 attempts"):
        get(offer(shelf, name="y"), tmp_path)
    assert len(shelf.asked) == 8


def test_pauses_grow_and_begin_anew_after_progress(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(transfer, "PAUSES", (1.0, 2.0, 4.0))
    monkeypatch.setattr(time, "sleep", slept.append)
    shelf.cuts = [0, 0, 10, 0, 5]
    assert get(offer(shelf), tmp_path) == NOISE
    assert slept == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_another_file_under_the_name_is_refused_before_it_is_loaded(
    shelf: Shelf, tmp_path: Path
) -> None:
    source = offer(shelf)
    shelf.files["/data/x.bin"] = b"<html>please log in</html>"
    with pytest.raises(MissingDataError, match="offers 26 bytes there, not the 300000 expected"):
        get(source, tmp_path)
    shelf.files["/data/x.bin"], shelf.says_length = NOISE + NOISE, False
    with pytest.raises(MissingDataError, match="sends more than the 300000 bytes expected"):
        get(source, tmp_path)


def test_a_full_disk_is_said_before_it_begins(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=299_999))
    with pytest.raises(MissingDataError, match=r"300.0 kB are still to come and 300.0 kB are free"):
        get(offer(shelf), tmp_path)
    assert set(found(tmp_path)) == {"downloads/.lock"}


def test_progress_is_told_in_lines(
    shelf: Shelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_progress, "LINES_EVERY", 0.0)
    shelf.cuts = [100_000]
    source = offer(shelf)
    get(source, tmp_path)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"downloading {source.url}\n")
    assert re.search(r"x.bin: 100.0 kB of 300.0 kB, .*/s, \d+ s left\n", err)
    assert "x.bin: the connection ended after 100000 of 300000 bytes; next attempt in 0 s" in err
    assert re.search(r"x.bin: 300.0 kB in \d+ s\n$", err)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    shelf.cuts = [1000]
    get(offer(shelf), tmp_path)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "300.0/300.0 kB" in shown
    assert "x.bin: the connection ended after 1000 of 300000 bytes" in shown
