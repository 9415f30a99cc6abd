"""Files from their official addresses: resumed, verified, unpacked safely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class MissingDataError(FileNotFoundError):
    """Data that is not in the data folder and cannot be fetched; says what to put where."""


@dataclass(frozen=True)
class Source:
    """A file to download. ``digest`` is "sha256:..." or "md5:...", ``size`` in bytes.

    An archive (.zip, .tar, .tar.gz, .tgz, .gz is kept) is unpacked into ``into``, a folder within
    the data folder; another file is put there.
    """

    url: str
    digest: str | None = None
    size: int | None = None
    into: str = "."

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def fetch(
    sources: Sequence[Source], root: Path, *, download: bool, mirror: str | None, wanted: str
) -> None:
    """Get ``sources`` and lay them out under ``root``."""
    raise MissingDataError(f"{root / wanted} is not there")
