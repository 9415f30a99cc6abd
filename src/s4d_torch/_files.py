"""Files and folders written whole or not at all, and locks between processes."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


def write_atomically(contents: Mapping[Path, bytes]) -> None:
    """Write all beside their places, then rename: a crash or a full disk leaves the old files."""
    written: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            written[path] = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
            try:
                write_synced(written[path], content)
            except OSError as error:  # of a temporary file, whose name says nothing to anybody
                raise OSError(error.errno, error.strerror, str(path)) from error
        for path, temporary in written.items():
            os.replace(temporary, path)
    except BaseException:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)
        raise


def unfinished(paths: Iterable[Path]) -> list[Path]:
    """What :func:`write_atomically` left beside ``paths`` when its process was killed."""
    return [left for path in paths for left in path.parent.glob(f".{path.name}.????????")]


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, with the permissions of any new file; it is on the disk afterwards."""
    with path.open("xb") as file:
        file.write(content)
        _sync(file)


def append_synced(path: Path, text: str) -> None:
    """Add to a text file, which may be new; it is on the disk afterwards."""
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        _sync(file)


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A new folder at ``path``, removed in the end, as is one that a killed process left there.

    Others may read it as any new folder, unlike those of ``tempfile``.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def folder_in_place_of(place: Path, *, prefix: str, unless: str | None = None) -> Iterator[Path]:
    """A new folder to fill, which takes the place of ``place`` if no error comes up meanwhile.

    It is filled within a folder ``prefix...`` in the nearest parent that is there; only that may
    be left behind by a process that is killed. If ``place`` has a file ``unless`` by then, another
    process was first and has the same to offer.
    """
    place = place.absolute()
    near = next(parent for parent in place.parents if parent.is_dir())
    with temporary_folder(near / f"{prefix}{os.urandom(4).hex()}") as workshop:
        new, old = workshop / "new", workshop / "old"
        new.mkdir()
        yield new
        if unless is not None and (place / unless).exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            os.replace(place, old)
        try:
            os.replace(new, place)
        except OSError:
            if old.exists():
                os.replace(old, place)
            raise
        _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk only once its folder is; Windows cannot, and need not."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems cannot either
                raise
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path, when_busy: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of the file ``path``, which is made; it goes with the process, however it ends.

    If another process holds it, ``when_busy`` is called: it raises an error, or says that this
    process waits. On a file system without locks, as on some clusters, nobody is kept out.
    """
    from filelock import FileLock, Timeout  # slow to import, and seldom needed

    path.parent.mkdir(parents=True, exist_ok=True)
    try:  # a lock that is a mere file would outlive a process that is killed
        lock = FileLock(path, fallback_to_soft=False)
    except TypeError:  # filelock before 4
        lock = FileLock(path)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            when_busy()
            lock.acquire()
    except NotImplementedError:  # filelock's word for no locks, before 3.24
        pass
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
