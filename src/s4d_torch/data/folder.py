"""The data folder: what was downloaded or put there, and the arrays made from it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s4d_torch.data.dataset import Dataset
from s4d_torch.data.files.download import DOWNLOADS, MissingDataError, Source, fetch
from s4d_torch.data.store import Scratch, cached

__all__ = ["DataFolder", "MissingDataError", "Scratch", "Source"]

ENVIRONMENT = "S4D_TORCH_DATA"


def default_root() -> Path:
    """``$S4D_TORCH_DATA``, or a folder among the user's caches."""
    if chosen := os.environ.get(ENVIRONMENT):
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "s4d-torch" / "data"


def require_files(files: Iterable[Path], advice: str) -> None:
    """All of these must be there; the error names the first that is not."""
    for file in files:
        if not file.is_file():
            raise MissingDataError(f"{file} is missing; {advice}")


@dataclass(frozen=True)
class DataFolder:
    """A folder with data as the official downloads lay it out.

    ``download`` allows fetching what is missing; ``mirror`` replaces the part of an address
    before the file's name.
    """

    root: Path
    download: bool = True
    mirror: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root).expanduser())  # a string will do

    def require(self, name: str, sources: Sequence[Source]) -> Path:
        """The path ``root / name``; if it is not there, ``sources`` are fetched and unpacked."""
        path = self.root / name
        if not path.exists():
            fetch(sources, self.root, download=self.download, mirror=self.mirror, wanted=name)
        if not path.exists():
            archives = ", ".join(str(self.root / DOWNLOADS / source.name) for source in sources)
            raise MissingDataError(
                f"{path} is still missing after unpacking {archives}, which is incomplete or "
                "another file than expected; remove it to have it downloaded again"
            )
        return path

    def prepared(
        self,
        name: str,
        key: Mapping[str, Any],
        files: Sequence[Path],
        build: Callable[[Scratch], Dataset],
    ) -> Dataset:
        """What ``build`` makes, kept as memory-mapped arrays for the next time.

        ``key`` holds the options that shape it, and ``files`` what it was read from: with other
        options or changed files it is built anew.
        """
        return cached(self.root / "prepared", name, key, files, build)
