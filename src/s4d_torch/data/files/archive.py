"""Archives (zip, tar) unpacked safely: nothing outside the folder, no links out of it, no bombs."""

import errno
import gzip
import math
import posixpath
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from lzma import LZMAError
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from rich.filesize import decimal

CHUNK = 1 << 20
LONGEST_PATH = 4096
HEADERS = 1 << 20  # bytes that may say what one member of a tar file is; names and times need few
BLOCK = 512  # of a tar file, which ends with blocks of zeros
DAMAGED = (  # the last two as tarfile reads numbers without a check
    *(zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, LZMAError, OSError),
    *(RuntimeError, ValueError, OverflowError),
)


class ArchiveError(ValueError):
    """An archive that is damaged, or holds what must not be unpacked; names the member."""


class Limits(NamedTuple):
    """What one archive may become: ample for data sets, and far from filling a disk unasked."""

    total: int = 256 << 30  # bytes of all files
    files: int = 5_000_000  # files, folders and links
    ratio: float = 100.0
    """bytes of all files for each byte of the archive; noise-free text reaches about 20"""
    unquestioned: int = 64 << 20  # bytes of all files below which the ratio does not matter


class _Member(NamedTuple):
    """``name`` as the archive has it; ``target`` of a link counts from the archive's root."""

    name: str
    kind: Literal["file", "folder", "link"]
    open: Callable[[], IO[bytes] | None] = lambda: None
    target: str = ""


def is_archive(path: Path) -> bool:
    """Whether ``path`` holds many files: .zip, .tar, .tar.gz, .tgz, or a .gz with a tar inside."""
    name = path.name.lower()
    if not name.endswith(".gz") or name.endswith(".tar.gz"):
        return name.endswith((".zip", ".tar", ".tar.gz", ".tgz"))
    try:
        with _tar(path) as (tar, _):
            return tar.next() is not None  # zeros alone would pass for an empty tar
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except DAMAGED:
        return False


def extract(archive: Path, folder: Path, limits: Limits | None = None) -> None:
    """Unpack ``archive`` into ``folder``, which is made.

    Links to files within the archive become copies of them. Absolute paths, ``..``, links that
    leave the folder or lead to folders, devices, and more than ``limits`` allow are refused with
    an :class:`ArchiveError`; what was unpacked until then stays, so unpack into a new folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = _Writer(archive, folder, limits or Limits())
    for member in _members(archive):
        writer.add(member)
    writer.resolve_links()


def _members(archive: Path) -> Iterator[_Member]:
    read = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    try:
        yield from read(archive)
    except ArchiveError:
        raise
    except DAMAGED as error:
        raise _damaged(archive, error) from error


def _damaged(archive: Path, error: Exception, member: str = "") -> ArchiveError:
    where = f" at {member!r}" if member else ""
    return ArchiveError(
        f"{archive} is damaged, incomplete or not what its name says{where}: {error}; "
        "remove it and fetch it again"
    )


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            mode = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                yield _Member(info.filename, "folder")
            elif mode == stat.S_IFLNK:
                with zipped.open(info) as content:
                    target = content.read(LONGEST_PATH).decode("utf-8", "replace")
                yield _Member(info.filename, "link", target=_from_root(info.filename, target))
            elif mode in (0, stat.S_IFREG):
                yield _Member(info.filename, "file", partial(zipped.open, info))
            else:
                raise _refused(archive, info.filename, "is a device or another special file")


def _tar_members(archive: Path) -> Iterator[_Member]:
    with _tar(archive) as (tar, stream):
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # there may be millions
            stream.left = math.inf  # for its content, which the writer counts
            if info.isdir():
                yield _Member(info.name, "folder")
            elif info.issym():
                yield _Member(info.name, "link", target=_from_root(info.name, info.linkname))
            elif info.islnk():
                yield _Member(info.name, "link", target=info.linkname)
            elif info.isreg():
                yield _Member(info.name, "file", partial(tar.extractfile, info))
            else:
                raise _refused(archive, info.name, "is a device or another special file")
            stream.left = HEADERS
        # tarfile takes a header that it cannot read for the end; the end is zeros, or nothing
        stream.seek(tar.offset)
        if stream.read(BLOCK) not in (b"", bytes(BLOCK)):
            raise tarfile.ReadError(f"no member begins at byte {tar.offset}")


@contextmanager
def _tar(path: Path) -> Iterator[tuple[tarfile.TarFile, "_LimitedHeaders"]]:
    """A tar file, compressed by gzip or not, before its first member."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if compressed else path.open("rb") as opened:
        stream = _LimitedHeaders(cast(IO[bytes], opened))
        yield tarfile.TarFile(fileobj=stream), stream  # type: ignore[arg-type]


class _LimitedHeaders:
    """The bytes of a tar file, of which ``left`` may still be read.

    tarfile reads long names and what else precedes a member into memory, of any length.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read
        self.left: float = HEADERS

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise tarfile.ReadError(f"the header of a member has more than {decimal(HEADERS)}")
        return self._read(size)


def _from_root(link: str, target: str) -> str:
    return target if target.startswith("/") else posixpath.join(posixpath.dirname(link), target)


def _refused(archive: Path, member: str, reason: str) -> ArchiveError:
    return ArchiveError(
        f"{archive}: member {member!r} {reason}; it is not unpacked, for the archive may be "
        "hostile: check where it comes from"
    )


class _Writer:
    """Writes members below ``folder``; it makes no links, so that no path leads out of it."""

    def __init__(self, archive: Path, folder: Path, limits: Limits) -> None:
        self.archive, self.folder, self.limits = archive, folder, limits
        self.free = shutil.disk_usage(folder).free
        self.inflated = max(limits.unquestioned, int(limits.ratio * archive.stat().st_size))
        self.refused = partial(_refused, archive)
        self.members = self.bytes = 0
        self.links: dict[Path, tuple[str, Path]] = {}

    def add(self, member: _Member) -> None:
        self.members += 1
        if self.members > self.limits.files:
            raise self.refused(member.name, f"is one too many: at most {self.limits.files}")
        path = self._path(member.name, member.name)
        try:
            if member.kind == "folder":
                path.mkdir(parents=True, exist_ok=True)
            elif path == self.folder:
                raise self.refused(member.name, "is a file without a name")
            elif member.kind == "link":
                self.links[path] = (member.name, self._path(member.target, member.name))
            else:
                self._write(member, path)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise self.refused(member.name, "is both a file and a folder") from error

    def resolve_links(self) -> None:
        """Give each link the content of the file that it leads to, over other links if need be."""
        for path, (name, target) in self.links.items():
            seen = {path}
            while target in self.links and target not in seen:
                seen.add(target)
                target = self.links[target][1]
            if target in self.links or not target.is_file():
                raise self.refused(name, "is a link to something that is no file of the archive")
            self._write(_Member(name, "file", partial(FileIO, target)), path)

    def _path(self, name: str, member: str) -> Path:
        """Where ``name`` belongs; both kinds of slashes separate, as each system reads them."""
        unified = posixpath.normpath(re.sub(r"\\", "/", name))
        leaves = unified == ".." or unified.startswith(("/", "../"))
        climbs = name == member and ".." in re.split(r"[/\\]", name)
        if len(name) > LONGEST_PATH:
            raise self.refused(f"{member[:60]}...", f"has a path of {len(name)} letters")
        if leaves or climbs or "\0" in name or re.match(r"[A-Za-z]:", unified):
            what = "has a path" if name == member else f"is a link to {name!r},"
            raise self.refused(member, f"{what} that leaves the folder")
        return self.folder / unified

    def _write(self, member: _Member, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for chunk in self._chunks(member):
                self.bytes += len(chunk)
                self._check_size(member.name)
                file.write(chunk)

    def _chunks(self, member: _Member) -> Iterator[bytes]:
        try:
            stream = member.open()
            if stream is None:
                raise EOFError("it has no content")
            with stream:
                while chunk := stream.read(CHUNK):
                    yield chunk
        except DAMAGED as error:
            raise _damaged(self.archive, error, member.name) from error

    def _check_size(self, member: str) -> None:
        if self.bytes > self.limits.total:
            limit = f"the limit of {decimal(self.limits.total)}"
        elif self.bytes > self.inflated:
            limit = f"{decimal(self.inflated)}, the limit for an archive of this size"
        elif self.bytes > self.free:
            full = f"{self.archive} unpacks to more than the {decimal(self.free)} free on the disk"
            raise OSError(errno.ENOSPC, full)
        else:
            return
        raise self.refused(member, f"makes the files larger than {limit}")
