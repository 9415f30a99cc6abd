"""Files from their official addresses: resumed, verified, unpacked safely."""

import errno
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from s4d_torch._files import locked, temporary_folder
from s4d_torch._progress import note
from s4d_torch.data.files.archive import extract, is_archive
from s4d_torch.data.files.transfer import TransferError, forget, transfer

DOWNLOADS = "downloads"
UNPACKING = ".unpacking"
SCHEMES = ("http://", "https://", "file://")


class MissingDataError(FileNotFoundError):
    """Data that is not in the data folder and cannot be fetched; says what to put where."""


@dataclass(frozen=True)
class Source:
    """A file to download. ``digest`` is "sha256:..." or "md5:...", ``size`` in bytes.

    An archive (.zip, .tar, .tar.gz, .tgz, or a .gz that is a tar) is unpacked into ``into``, a
    folder within the data folder; another file is put there, a .gz as it is.
    """

    url: str
    digest: str | None = None
    size: int | None = None
    into: str = "."

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path).rsplit("/", 1)[-1]

    def address(self, mirror: str | None) -> str:
        """The address to fetch from: with a mirror, the file of the same name there."""
        if mirror is None:
            return self.url
        if not mirror.startswith(SCHEMES):
            raise ValueError(
                f"mirror must be an address that begins with {', '.join(SCHEMES)}, got {mirror!r}"
            )
        return f"{mirror.rstrip('/')}/{urlsplit(self.url).path.rsplit('/', 1)[-1]}"


def fetch(
    sources: Sequence[Source], root: Path, *, download: bool, mirror: str | None, wanted: str
) -> None:
    """Get ``sources`` and lay them out under ``root``, so that ``root / wanted`` is there.

    A file that already lies in ``root / "downloads"`` is taken from there, whoever put it there.
    What is in the data folder is never overwritten. Of several processes one works, the others
    wait for it.
    """
    if not sources:
        raise MissingDataError(f"{root / wanted} is not there, and no address is known for it")
    job = _Job(root, mirror, wanted)
    absent = [source for source in sources if not job.archive(source).is_file()]
    if absent and not download:
        raise job.missing(absent, "downloading is switched off")
    try:
        waiting = f"waiting for another process that fetches into {root / DOWNLOADS}"
        with locked(root / DOWNLOADS / ".lock", lambda: note(waiting)):
            if not (root / wanted).exists():  # otherwise another process was first
                job.lay_out([(source, job.obtain(source)) for source in sources])
    except MissingDataError:
        raise
    except OSError as error:
        raise MissingDataError(
            f"{root / wanted} is not there, and the data folder {root} cannot take it: {error}; "
            "make room or allow writing there, or choose another data folder"
        ) from error


@dataclass(frozen=True)
class _Job:
    root: Path
    mirror: str | None
    wanted: str

    def archive(self, source: Source) -> Path:
        return self.root / DOWNLOADS / source.name

    def obtain(self, source: Source) -> Path:
        """The verified file of ``source`` in the folder of downloads, fetched if it is not there.

        A file that is there under its final name and is not as expected stays untouched: the
        user may have put it there.
        """
        path = self.archive(source)
        if path.is_file():
            if problem := _problem(path, source):
                raise MissingDataError(
                    f"{path} {problem}. It is left as it is; replace it by the file of "
                    f"{source.url}, or remove it to have that downloaded"
                )
            return path
        part, url = path.with_name(f"{path.name}.part"), source.address(self.mirror)
        get = partial(transfer, url, part, size=source.size, verifiable=source.digest is not None)
        try:
            pieced = get()
            problem = _problem(part, source)
            if problem and pieced:  # the pieces may be of two versions
                forget(part)
                get()
                problem = _problem(part, source)
        except TransferError as error:
            raise self.missing([source], f"{url} cannot be downloaded: {error}") from error
        if problem:
            forget(part)
            raise self.missing([source], f"the file from {url} {problem}")
        os.replace(part, path)
        forget(part)  # the note beside it
        return path

    def lay_out(self, files: Sequence[tuple[Source, Path]]) -> None:
        """Unpack all files beside their places, then move them there; what is there stays."""
        with temporary_folder(self.root / UNPACKING) as staged:
            for source, path in files:
                place = staged / source.into
                if is_archive(path):
                    note(f"unpacking {path}")
                    extract(path, place)
                else:
                    place.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, place / path.name)
            _merge(staged, self.root, self.root / self.wanted)

    def missing(self, sources: Sequence[Source], reason: str) -> MissingDataError:
        """The error that says which files to put where."""
        where = "\n".join(f"  {source.url}\n  as {self.archive(source)}" for source in sources)
        return MissingDataError(
            f"{self.root / self.wanted} is not there, and {reason}.\n"
            f"Put, by hand,\n{where}\n"
            "and it is taken from there without a download; or unpack it yourself so that "
            f"{self.root / self.wanted} exists; or give the option 'mirror' (--mirror) the address "
            "of another folder that has the file, such as https://example.org/data"
        )


def _problem(path: Path, source: Source) -> str | None:
    """How the file differs from what ``source`` promises; None if it does not."""
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        return f"has {size} bytes, expected {source.size}"
    if source.digest is None:
        return None
    kind, _, expected = source.digest.partition(":")
    if kind not in ("sha256", "md5"):
        raise ValueError(f"digest must be 'sha256:...' or 'md5:...', got {source.digest!r}")
    with path.open("rb") as file:
        got = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    if got.hexdigest() != expected.lower():
        return f"has {kind} {got.hexdigest()}, expected {expected}"
    return None


def _merge(staged: Path, place: Path, wanted: Path) -> None:
    """Move what is in ``staged`` to ``place``, whole folders at once, ``wanted`` last of all.

    Interrupted, it leaves ``wanted`` missing. What is at ``place`` already is kept.
    """
    place.mkdir(parents=True, exist_ok=True)
    for entry in sorted(staged.iterdir(), key=lambda e: wanted.is_relative_to(place / e.name)):
        target = place / entry.name
        if not target.exists():
            _move(entry, target)
        elif entry.is_dir() and target.is_dir():
            _merge(entry, target, wanted)


def _move(entry: Path, target: Path) -> None:
    try:
        os.replace(entry, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # the folder is a link to another disk: copy there, then rename, so nothing is half there
        near = target.with_name(f".{target.name}.part")
        shutil.copytree(entry, near) if entry.is_dir() else shutil.copyfile(entry, near)
        os.replace(near, target)
