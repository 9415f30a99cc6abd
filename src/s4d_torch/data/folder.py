"""The data folder: what was downloaded or put there, and the arrays made from it."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from s4d_torch._files import folder_in_place_of
from s4d_torch._version import __version__
from s4d_torch.data.dataset import Dataset
from s4d_torch.data.files.download import DOWNLOADS, MissingDataError, Source, fetch
from s4d_torch.data.store import INDEX, Scratch, read_dataset, write_dataset

__all__ = ["DataFolder", "MissingDataError", "Scratch", "Source"]

FORMAT = 1  # of prepared data; another number, and everything is prepared anew
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
        options or changed files (by size and time) it is built anew. It is built in a folder
        beside its place and moved there whole, so that an interrupted build leaves nothing behind.
        """
        stats = [(str(file), file.stat()) for file in sorted(files)]
        described = {
            "format": FORMAT,
            "version": __version__,  # loaders of another one may read the same files otherwise
            "key": dict(key),
            "files": [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats],
        }
        digest = sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
        root = self.root / "prepared"
        place = root / f"{name}-{digest[:16]}"
        if not (place / INDEX).exists():
            with ExitStack() as stack:
                try:
                    root.mkdir(parents=True, exist_ok=True)
                    new = folder_in_place_of(place, prefix=f".{name}-", unless=INDEX)
                    scratch = Scratch(stack.enter_context(new))
                except OSError as error:
                    raise OSError(
                        f"prepared data cannot be kept in {root}: {error}; allow writing there, or "
                        "choose another data folder (--data-dir)"
                    ) from error
                write_dataset(build(scratch), scratch)
        try:
            return read_dataset(place)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"{place} is damaged ({error}); remove it, and it is prepared anew"
            ) from error
