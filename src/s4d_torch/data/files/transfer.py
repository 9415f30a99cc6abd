"""One file from a server: resumed where it stopped, tried again when the connection breaks."""

import errno
import http.client
import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from s4d_torch._progress import Meter, note, progress
from s4d_torch._version import __version__

# seconds before each new attempt; the count begins anew once an attempt brought something
PAUSES: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18
BUSY = (408, 425, 429, 500, 502, 503, 504)  # answers that may be others a little later


class TransferError(Exception):
    """Why a file cannot be had, as part of a sentence."""


class _BrokenError(TransferError):
    """It may work at the next attempt."""


class _UnreachableError(_BrokenError):
    """No answer at all: the network may be off."""


@dataclass(frozen=True)
class _Note:
    """Which version of which file a partial file is the beginning of; kept beside it."""

    url: str
    version: str | None = None
    size: int | None = None


def _beside(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def transfer(url: str, part: Path, *, size: int | None, verifiable: bool) -> bool:
    """Complete ``part`` from ``url``; True if its bytes come from more than one answer.

    A partial file is continued if the server still has the version that it began with, or,
    where that cannot be told, if the result is ``verifiable`` afterwards. A server that knows no
    ranges sends all of it anew. Dropped connections and busy servers are tried again after
    :data:`PAUSES`; an address that never answered is not.
    """
    furthest, failures, answered = _length(part), 0, False
    if not sys.stderr.isatty():
        note(f"downloading {url}")
    with progress(part.name.removesuffix(".part"), in_bytes=True) as shown:
        while True:
            try:
                return _attempt(url, part, size, verifiable, shown)
            except _BrokenError as broken:
                if isinstance(broken, _UnreachableError) and not answered:
                    raise TransferError(str(broken)) from broken
                answered = True
                if _length(part) > furthest:
                    furthest, failures = _length(part), 0
                if failures == len(PAUSES):
                    tried = f"{broken}; gave up after {failures + 1} attempts"
                    raise TransferError(tried) from broken
                shown.say(f"{broken}; next attempt in {PAUSES[failures]:g} s")
                time.sleep(PAUSES[failures])
                failures += 1


def forget(part: Path) -> None:
    """Remove a partial file and the note beside it."""
    part.unlink(missing_ok=True)
    _beside(part).unlink(missing_ok=True)


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _attempt(url: str, part: Path, size: int | None, verifiable: bool, shown: Meter) -> bool:
    """Ask for what is missing and write it; True if a part that was there is continued."""
    offset, note = _length(part), None
    with suppress(OSError, ValueError, TypeError):
        note = _Note(**json.loads(_beside(part).read_text("utf-8")))
    if note is None or not (verifiable or (note.version and note.url == url)):
        offset, note = 0, _Note(url)
    if note.url != url:  # another server names its versions in another way
        note = _Note(url, None, note.size)
    if offset and offset == (size or note.size):
        return True
    with _ask(url, part, offset, note) as response:
        if continued := response.status == http.HTTPStatus.PARTIAL_CONTENT:
            _check_continues(response, part, offset, note)
        else:
            offset = 0
        length = response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdecimal() else None
        if size is not None and total is not None and total != size:
            raise TransferError(f"the server offers {total} bytes there, not the {size} expected")
        total = total or size
        needed, free = (total or 0) - offset, shutil.disk_usage(part.parent).free
        if needed > free:
            full = f"{decimal(needed)} are still to come and {decimal(free)} are free on the disk"
            raise OSError(errno.ENOSPC, full)
        with part.open("r+b" if offset else "wb") as file:
            _beside(part).write_text(json.dumps(asdict(_Note(url, _version(response), total))))
            file.seek(offset)
            shown.at(offset, total)
            for chunk in _chunks(response):
                file.write(chunk)
                offset += len(chunk)
                shown.at(offset, total)
                if total is not None and offset > total:
                    raise TransferError(f"the server sends more than the {total} bytes expected")
    if total is not None and offset < total:
        raise _BrokenError(f"the connection ended after {offset} of {total} bytes")
    return continued


def _ask(url: str, part: Path, offset: int, note: _Note) -> Any:
    headers = {"User-Agent": f"s4d-torch/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if note.version:
            headers["If-Range"] = note.version
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
            forget(part)
            raise _BrokenError("the file on the server became shorter") from error
        kind = _BrokenError if error.code in BUSY else TransferError
        raise kind(f"the server answers {error.code} ({error.reason})") from error
    except urllib.error.URLError as error:
        raise _UnreachableError(f"no connection to it ({error.reason})") from error
    except (http.client.InvalidURL, ValueError) as error:
        raise TransferError(f"that is no address ({error})") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection was dropped ({error!r})") from error


def _version(response: Any) -> str | None:
    """What names this version of the file; a weak ETag does not promise the same bytes."""
    etag = response.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")


def _check_continues(response: Any, part: Path, offset: int, note: _Note) -> None:
    """A partial answer must go on where the part ends, in a file of the same version and size."""
    where = response.headers.get("Content-Range", "")
    total = where.rpartition("/")[2]
    moved = not where.startswith(f"bytes {offset}-")
    resized = note.size is not None and total.isdecimal() and int(total) != note.size
    renewed = note.version is not None and _version(response) not in (None, note.version)
    if moved or resized or renewed:
        forget(part)
        raise _BrokenError(f"the file on the server has changed (Content-Range: {where})")


def _chunks(response: Any) -> Iterator[bytes]:
    """What arrives, as it arrives, so that nothing is lost when the connection drops."""
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection was dropped ({error!r})") from error
