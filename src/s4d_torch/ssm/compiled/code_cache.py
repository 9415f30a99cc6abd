"""``njit`` with a cache on disk that cannot stop a program.

A cache of numba's own raises whatever is wrong with its files: they may be cut short or damaged,
the disk full, the folder not to be written to. Here that is said once, and the code is compiled
anew. Each file ends with a checksum of what is in it: damaged machine code is not run.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import caching

LOG = logging.getLogger("s4d_torch")
REMEDY = "compiled anew; free or repair that folder, or set NUMBA_CACHE_DIR to another one"
DIGEST = hashlib.sha256().digest_size
_said = False

FunctionCache: Any = caching.FunctionCache  # numba has no types
IndexDataCacheFile: Any = caching.IndexDataCacheFile


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)``, which goes on where there is no cache."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        try:
            dispatcher._cache = _Cache(function)
        except (OSError, RuntimeError) as error:  # there is no folder to keep it in
            _say(f"compiled code cannot be kept: {error}")
        return dispatcher

    return compiled


class _CheckedFile(IndexDataCacheFile):  # type: ignore[misc]
    """Data followed by its checksum."""

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        data, digest = content[:-DIGEST], content[-DIGEST:]
        if hashlib.sha256(data).digest() != digest:
            raise ValueError(f"{name} does not agree with its checksum")
        return super()._load_data(name)  # what is pickled ends before the checksum

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(content + hashlib.sha256(content).digest())


class _Cache(FunctionCache):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )
        self.kept = True

    def load_overload(self, *given: Any) -> Any:
        try:
            return super().load_overload(*given)
        except Exception as error:  # of the files, of pickle, of LLVM: anything may be in there
            _say(f"compiled code in {self._cache_path} is damaged ({error!r})")
        try:
            self.flush()  # so that what is compiled now can be kept
        except Exception:
            LOG.debug("s4d_torch: the damaged index stays", exc_info=True)
        return None

    def save_overload(self, *given: Any) -> None:
        try:
            super().save_overload(*given)
        except Exception as error:
            self.kept = False
            _say(f"compiled code cannot be kept in {self._cache_path} ({error!r})")


def _say(problem: str) -> None:
    """Once in a process: all functions are kept in the same folder."""
    global _said
    if not _said:
        _said = True
        LOG.warning("s4d_torch: %s; %s", problem, REMEDY)
