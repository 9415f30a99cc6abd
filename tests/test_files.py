"""Files and folders: whole or as they were; one process at a time."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from s4d_torch._files import (
    folder_in_place_of,
    locked,
    temporary_folder,
    unfinished,
    write_atomically,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def never() -> None:
    raise AssertionError("nobody else holds the lock")


# -- files -----------------------------------------------------------------------------------------


def test_files_appear_together_with_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_atomically({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    (tmp_path / "plain").touch()
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"1", b"2"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_an_error_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere/b'"):
        write_atomically({tmp_path / "a": b"1", tmp_path / "nowhere" / "b": b"2"})
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_found(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from s4d_torch._files import write_atomically\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "write_atomically({Path(sys.argv[1]): b'content'})"
    )
    path = tmp_path / "run.json"
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 9
    (tmp_path / ".run.json.swp").touch()  # an editor's
    (left,) = unfinished([path, tmp_path / "other"])
    assert left.read_bytes() == b"content"


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    place = tmp_path / "place"
    for content in ("old", "new"):
        with folder_in_place_of(place, prefix=".making-") as folder:
            (folder / content).touch()
            assert folder.parent.name.startswith(".making-")
    assert (names(tmp_path), names(place)) == (["place"], ["new"])


def test_after_an_error_the_old_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, replace = tmp_path / "place", os.replace
    place.mkdir()
    (place / "old").touch()
    with pytest.raises(KeyboardInterrupt), folder_in_place_of(place, prefix=".x-"):
        raise KeyboardInterrupt

    def full(source: Path, target: Path) -> None:
        if source.name == "new":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"), folder_in_place_of(place, prefix=".x-"):
        pass
    assert (names(tmp_path), names(place)) == (["place"], ["old"])


def test_of_two_that_make_the_same_the_first_stays(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with folder_in_place_of(place, prefix=".x-", unless="index") as folder:
        (folder / "index").write_text("mine")
        place.mkdir()
        (place / "index").write_text("theirs")
    assert (place / "index").read_text() == "theirs"
    assert names(tmp_path) == ["place"]


def test_a_temporary_folder_replaces_what_was_left_behind(tmp_path: Path) -> None:
    (tmp_path / "place" / "left").mkdir(parents=True)
    with temporary_folder(tmp_path / "place") as folder:
        assert names(folder) == []
    assert names(tmp_path) == []


# -- locks -----------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from s4d_torch._files import locked
with locked(Path(sys.argv[1]), sys.exit):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_keeps_other_processes_out_and_dies_with_its_own(tmp_path: Path) -> None:
    path = tmp_path / "new" / ".lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        def refuse() -> None:
            raise BlockingIOError("somebody is there")

        with pytest.raises(BlockingIOError, match="somebody is there"), locked(path, refuse):
            pass
        asked = []

        def kill() -> None:
            asked.append("wait")
            holder.kill()

        with locked(path, kill):  # waits for the end of the other
            assert asked == ["wait"]
    with locked(path, never):
        pass


@pytest.mark.skipif(os.name != "posix", reason="flock is of POSIX")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / ".lock", never), locked(tmp_path / ".lock", never):
        pass


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), locked(tmp_path / "file" / ".lock", never):
        pass
