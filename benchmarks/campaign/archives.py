"""Hostile archives: paths and links that lead out, bombs, headers without end, devices.

Nothing is written outside of the folder, no more memory and time is used than an honest archive
would need, and the error names the member.
"""

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import HERE, Figures, environment, python

from s4d_torch.data.files.archive import ArchiveError, extract

COUNT = 60

PATHS = ("../x", "/x", "a/../../x", "..\\x", "C:\\x", "C:x", "//x", "a/./../../x", "..", "")
LINKS = ("/etc/passwd", "../../x", "..", ".", "missing", "/", "a/../..", "self")


def tar(*members: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as packed:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                packed.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                packed.addfile(info, io.BytesIO(member[1]))
    return content.getvalue()


def special(name: str, kind: bytes, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def long_header(kind: bytes, size: int) -> bytes:
    """A header that announces ``size`` bytes of names, and zeros for as long, packed."""
    info = special("x", kind, size=size)
    content = io.BytesIO()
    with gzip.open(content, "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size >> 24):
            file.write(bytes(1 << 24))
    return content.getvalue()


def zipped(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, inside in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            packed.writestr(info, inside)
    return content.getvalue()


def bomb_zip() -> bytes:
    return zipped(("a", bytes(200 << 20)))


def overlapping() -> bytes:
    """Many entries of the directory that share one packed file."""
    raw = zipped(("a", bytes(20 << 20)))
    start = raw.rindex(b"PK\x01\x02")
    end = raw.rindex(b"PK\x05\x06")
    entries = b"".join(raw[start:end].replace(b"a", bytes([98 + i]), 1) for i in range(20))
    count = (20).to_bytes(2, "little")
    tail = raw[end : end + 8] + count + count + len(entries).to_bytes(4, "little")
    return raw[:start] + entries + tail + start.to_bytes(4, "little") + b"\0\0"


def cases() -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    """Name, suffix and content; all have to be refused."""
    for path in PATHS:
        yield f"tar path {path!r}", ".tar", lambda path=path: tar((path, b"evil"))
        if path:
            yield f"zip path {path!r}", ".zip", lambda path=path: zipped((path, b"evil"))
    for target in LINKS:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            yield (
                f"link to {target!r}",
                ".tar",
                lambda kind=kind, target=target: tar(special("self", kind, target)),
            )
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        yield "device", ".tar", lambda kind=kind: tar(special("x", kind))
    for mode in (0o120777, 0o060666, 0o010666, 0o140777):
        yield f"zip mode {mode:o}", ".zip", lambda mode=mode: zipped(("x", b"/etc"), mode=mode)
    for kind in (
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
    ):
        yield "a header of 2 GB", ".tgz", lambda kind=kind: long_header(kind, 2 << 30)
    yield "a bomb", ".zip", bomb_zip
    yield "entries that overlap", ".zip", overlapping
    yield "a bomb", ".tgz", lambda: gzip.compress(tar(("a", bytes(200 << 20))), 1)
    yield "a name of 100 kB", ".tar", lambda: tar(("a/" * 50_000, b"x"))
    yield "a file that is a folder", ".tar", lambda: tar(("a", b"x"), ("a/b", b"x"))
    yield (
        "a link, then a path through it",
        ".tar",
        lambda: tar(special("d", tarfile.SYMTYPE, "/var"), ("d/evil", b"evil")),
    )
    yield (
        "links in a circle",
        ".tar",
        lambda: tar(special("a", tarfile.SYMTYPE, "b"), special("b", tarfile.SYMTYPE, "a")),
    )
    yield (
        "a thousand headers of headers",
        ".tar",
        lambda: special("x", tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT) * 5000,
    )


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("archives")
    chosen = list(cases())[: max(count, 5)]
    with tempfile.TemporaryDirectory() as root:
        archives = []
        for number, (_, suffix, make) in enumerate(chosen):
            place = Path(root) / str(number)
            (place / "deep" / "er").mkdir(parents=True)
            archives.append(place / f"x{suffix}")
            archives[-1].write_bytes(make())
        done = subprocess.run(
            python(str(HERE / "archives.py"), *map(str, archives)),
            capture_output=True,
            text=True,
            env=environment(),
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        if len(answers) < len(chosen):
            figures.fail(f"{len(answers)} of {len(chosen)} were tried: {done.stderr[-2000:]}")
        for (name, *_), archive, answer in zip(chosen, archives, answers, strict=False):
            inside = archive.parent / "deep" / "er" / "out"
            files = [each for each in archive.parent.rglob("*") if each.is_file()]
            left = [each for each in files if inside not in each.parents]
            if left != [archive]:
                figures.fail(f"{name}: files outside: {left}")
            elif not answer["refused"] or str(archive) not in answer["said"]:
                figures.fail(f"{name}: {answer}")
            else:
                figures.add("refused, nothing outside")
    for name, digits in {"seconds": 1, "megabytes more": 0}.items():
        most = max((answer[name] for answer in answers), default=0.0)
        figures.measured[f"{name}, at most"] = round(most, digits)
    return figures


def unpack(archive: Path) -> dict[str, Any]:
    """What becomes of an archive, in a process of its own that has all imports behind it."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    refused, said = False, "it was unpacked"
    try:
        extract(archive, archive.parent / "deep" / "er" / "out")
    except Exception as error:
        refused, said = isinstance(error, ArchiveError), f"{type(error).__name__}: {error}"
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    took = time.monotonic() - began
    return {"refused": refused, "said": said, "seconds": took, "megabytes more": more / 1024}


def unpack_all(archives: list[str]) -> None:
    for archive in archives:
        if not (child := os.fork()):
            print(json.dumps(unpack(Path(archive))), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    unpack_all(sys.argv[1:])
