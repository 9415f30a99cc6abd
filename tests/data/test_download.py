"""Data that is fetched: verified, unpacked, put in its place, or said to be missing."""

import errno
import gzip
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from file_server import NOISE, Shelf, asked, get, offer, serve
from s4d_torch.data import DataFolder, MissingDataError, Source
from s4d_torch.data.files import download, transfer
from s4d_torch.data.files.download import fetch
from test_archive import found, tar_file, zip_file


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(transfer, "PAUSES", (0.0, 0.0, 0.0))
    with serve() as shelf:
        yield shelf


def test_an_archive_is_fetched_verified_and_unpacked_once(shelf: Shelf, tmp_path: Path) -> None:
    packed = tar_file(tmp_path / "set.tar.gz", ("set/a", b"1"), ("set/sub/b", NOISE))
    source = offer(shelf, packed.read_bytes(), "set.tar.gz", into="in/side")
    root = tmp_path / "root"
    folder = DataFolder(root)
    assert folder.require("in/side/set/a", [source]).read_bytes() == b"1"
    assert set(found(root)) == {
        *("in/side/set/a", "in/side/set/sub/b"),
        *("downloads/set.tar.gz", "downloads/.lock"),
    }
    (root / "in/side/set/a").unlink()
    (root / "in/side/set/sub/b").write_bytes(b"my own")
    DataFolder(root, download=False).require("in/side/set/a", [source])
    assert len(shelf.asked) == 1  # the archive was still there
    assert (root / "in/side/set/sub/b").read_bytes() == b"my own"


def test_compressed_single_files_stay_as_they_are(shelf: Shelf, tmp_path: Path) -> None:
    content = gzip.compress(NOISE)
    assert get(offer(shelf, content, "x.gz", into="mnist"), tmp_path, "mnist/x.gz") == content
    tar = gzip.compress(tar_file(tmp_path / "y.tar", ("set/a", b"1")).read_bytes())
    assert get(offer(shelf, tar, "y.gz"), tmp_path, "set/a") == b"1"
    zipped = zip_file(tmp_path / "z.zip", ("b", b"2")).read_bytes()
    assert get(offer(shelf, zipped, "z.zip"), tmp_path, "b") == b"2"


def test_several_files_come_together(shelf: Shelf, tmp_path: Path) -> None:
    sources = [offer(shelf, NOISE[:i], f"{i}.bin", into="all") for i in (10, 20, 30)]
    fetch(sources, tmp_path, download=True, mirror=None, wanted="all")
    assert sorted(file.stat().st_size for file in (tmp_path / "all").iterdir()) == [10, 20, 30]


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_a_wrong_checksum_is_not_accepted(shelf: Shelf, tmp_path: Path, kind: str) -> None:
    source = Source(offer(shelf).url, f"{kind}:00ff")
    with pytest.raises(MissingDataError) as refused:
        get(source, tmp_path)
    got = hashlib.new(kind, NOISE).hexdigest()
    assert f"{source.url} has {kind} {got}, expected 00ff" in str(refused.value)
    assert "'mirror'" in str(refused.value)
    assert set(found(tmp_path)) == {"downloads/.lock"}
    assert get(Source(source.url, f"{kind}:{got.upper()}"), tmp_path) == NOISE


def test_a_file_of_the_user_is_taken_or_left_alone(shelf: Shelf, tmp_path: Path) -> None:
    source = offer(shelf)
    own = tmp_path / "downloads" / "x.bin"
    own.parent.mkdir()
    own.write_bytes(NOISE[::-1])
    with pytest.raises(MissingDataError) as refused:
        get(source, tmp_path)
    assert re.search(
        rf"{own} has md5 \w{{32}}, expected {hashlib.md5(NOISE).hexdigest()}", str(refused.value)
    )
    assert "It is left as it is; replace it by the file of" in str(refused.value)
    assert own.read_bytes() == NOISE[::-1]
    own.write_bytes(NOISE[1:])
    with pytest.raises(MissingDataError, match="has 299999 bytes, expected 300000"):
        get(source, tmp_path)
    own.write_bytes(NOISE)
    assert get(source, tmp_path, download=False) == NOISE
    assert own.read_bytes() == NOISE
    assert asked(shelf) == []


def test_errors_say_what_to_put_where(shelf: Shelf, tmp_path: Path) -> None:
    source = Source(f"{shelf.address}/data/gone.tar.gz")
    root = tmp_path / "root"
    with pytest.raises(MissingDataError, match="downloading is switched off") as off:
        DataFolder(root, download=False).require("set/a", [source])
    assert not root.exists()
    with pytest.raises(MissingDataError, match=r"the server answers 404 \(Not Found\)") as missing:
        DataFolder(root).require("set/a", [source])
    for message in (str(off.value), str(missing.value)):
        assert f"{source.url}\n  as {root / 'downloads' / 'gone.tar.gz'}" in message
        assert f"so that {root / 'set' / 'a'} exists" in message
        assert "the option 'mirror'" in message
    assert len(shelf.asked) == 1
    with pytest.raises(MissingDataError, match="no address is known for it"):
        DataFolder(root).require("set/a", [])


def test_another_file_than_expected_is_to_be_removed(shelf: Shelf, tmp_path: Path) -> None:
    source = offer(shelf, b"<html>log in first</html>", "data.gz")
    folder = DataFolder(tmp_path)
    with pytest.raises(MissingDataError, match=r"downloads/data\.gz, .* another file .* remove it"):
        folder.require("data", [source])


def test_a_folder_that_cannot_be_written_is_said(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"a file")
    with pytest.raises(MissingDataError, match=r"cannot take it: .*choose another data folder"):
        get(offer(shelf), tmp_path / "root")


def test_mirrors_replace_what_is_before_the_name(shelf: Shelf, tmp_path: Path) -> None:
    offer(shelf, name="a%20b.bin")
    source = Source("https://example.org/far/away/a%20b.bin?key=1", size=len(NOISE))
    assert source.name == "a b.bin"
    assert get(source, tmp_path / "1", mirror=f"{shelf.address}/data") == NOISE
    (tmp_path / "a b.bin").write_bytes(NOISE)
    assert get(source, tmp_path / "2", mirror=tmp_path.as_uri()) == NOISE
    with pytest.raises(ValueError, match="mirror must be an address that begins with http://"):
        get(source, tmp_path / "3", mirror="example.org")
    with pytest.raises(ValueError, match=r"digest must be 'sha256:...' or 'md5:...', got 'crc:1'"):
        get(Source(source.url, "crc:1"), tmp_path / "3", mirror=tmp_path.as_uri())


def test_an_interrupted_unpacking_leaves_nothing_that_looks_complete(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tar_file(tmp_path / "set.tar", ("set/a", b"1"), ("set/b", b"2"), ("wide/c", b"3"))
    source, root = offer(shelf, packed.read_bytes(), "set.tar"), tmp_path / "root"
    (root / ".unpacking" / "set").mkdir(parents=True)  # of a process that was killed
    (root / ".unpacking" / "set" / "old").write_bytes(b"")

    def interrupted(path: Path, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        (place / "set").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download, "extract", interrupted)
        with pytest.raises(KeyboardInterrupt):
            DataFolder(root).require("set", [source])
    assert set(found(root)) == {"downloads/set.tar", "downloads/.lock"}
    assert not (root / "set").exists()
    (root / "set").mkdir()  # so that it is merged file by file, what is wanted last
    moved: list[str] = []
    move = download._move

    def noted(entry: Path, target: Path) -> None:
        moved.append(target.name)
        move(entry, target)

    monkeypatch.setattr(download, "_move", noted)
    DataFolder(root).require("set/a", [source])
    assert moved == ["wide", "b", "a"]
    assert set(found(root / "set")) == {"a", "b"}


def test_another_disk_behind_a_link_gets_a_whole_copy(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def across(entry: Path, target: Path) -> None:
        if ".unpacking" in entry.parts:
            raise OSError(errno.EXDEV, "another disk")
        replace(entry, target)

    monkeypatch.setattr(os, "replace", across)
    packed = zip_file(tmp_path / "set.zip", ("set/a", b"1"), ("b", b"2"))
    root = tmp_path / "root"
    assert get(offer(shelf, packed.read_bytes(), "set.zip"), root, "set/a") == b"1"
    assert {"set/a", "b", "downloads/set.zip", "downloads/.lock"} == set(found(root))


def test_of_many_at_once_one_works(shelf: Shelf, tmp_path: Path) -> None:
    source = offer(shelf)
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(get(source, tmp_path))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [NOISE] * 4
    assert len(shelf.asked) == 1
