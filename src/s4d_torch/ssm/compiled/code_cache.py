"""``njit`` with a cache on disk that cannot stop a program.

A cache of numba's own raises whatever is wrong with its files: they may be cut short or damaged,
the disk full, the folder not to be written to. Here that is said once, and the code is compiled
anew. Each file ends with a checksum of what is in it: damaged machine code is not run.
"""

import hashlib
import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import caching
from numba.core import config as numba_config

LOG = logging.getLogger("s4d_torch")
REMEDY = "compiled anew; free or repair that folder, or set NUMBA_CACHE_DIR to another one"
# Everything but the licence to assume that there are no NaN and infinities.
FAST = {"reassoc", "contract", "arcp", "nsz"}
DIGEST = hashlib.sha256().digest_size
QUIET = 5.0  # seconds between two lines about compiling
_said = False
_announced: float | None = None  # when

FunctionCache: Any = caching.FunctionCache  # numba has no types
config: Any = numba_config
IndexDataCacheFile: Any = caching.IndexDataCacheFile


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)``, which goes on where there is no cache."""

    def compiled(function: Callable[..., Any]) -> Any:
        # a division by zero gives infinity, as in arrays; to raise for it would be in every loop
        dispatcher = njit(**{"error_model": "numpy", **options})(function)
        try:
            dispatcher._cache = _Cache(function)
        except (OSError, RuntimeError) as error:  # there is no folder to keep it in
            _say(f"compiled code cannot be kept: {error}")
        return dispatcher

    return compiled


def part_with(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes parts of functions: never called from Python, so nothing is made for that."""
    alone = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiler: Any = njit

    def compiled(function: Callable[..., Any]) -> Any:
        return compiler(nogil=True, error_model="numpy", **alone, **options)(function)

    return compiled


part = part_with()


def named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A name of its own for each function that a factory makes, before it is compiled.

    Compiled code is known by module, name and a number that numba counts in each process. Under one
    name, code that two processes have kept would be taken for one another by a third.
    """

    def rename(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__name__ = function.__qualname__ = name
        return function

    return rename


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

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Numba knows when the file of a function changes, not when one that it calls into does."""
        checked = bool(config.BOUNDSCHECK)
        return *super()._index_key(sig, codegen), code_digest(self._py_func), checked

    def load_overload(self, *given: Any) -> Any:
        found = self._load(*given)
        if found is None:  # so it is compiled next
            _announce(self._py_func.__name__, str(self._cache_path))
        return found

    def _load(self, *given: Any) -> Any:
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


def _announce(name: str, folder: str) -> None:
    """Say before it begins what takes a while: at first, and then every few seconds."""
    global _announced
    now = time.monotonic()
    if _announced is None:
        said = f"compiling for this CPU, once, which takes some seconds (kept in {folder})"
    elif now - _announced > QUIET:
        said = f"still compiling, now {name}"
    else:
        LOG.info("s4d_torch: compiling %s", name)
        return
    _announced = now
    LOG.warning("s4d_torch: %s", said)  # a warning is seen, unless it is turned off


def code_digest(function: Callable[..., Any]) -> str:
    """Of the source of a function and all it calls, and of the numbers it takes from outside."""
    seen: dict[Callable[..., Any], str] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        used = inspect.getclosurevars(each)
        values = {**used.globals, **used.nonlocals}
        numbers = {name: x for name, x in values.items() if isinstance(x, int | float | str)}
        seen[each] = f"{inspect.getsource(each)}{sorted(numbers.items())}"
        # what numba has wrapped: a function of its own, or an intrinsic
        inner = [getattr(x, "py_func", getattr(x, "_defn", None)) for x in values.values()]
        waiting += [x for x in inner if inspect.isfunction(x)]
    return hashlib.sha256("".join(sorted(seen.values())).encode()).hexdigest()


def _say(problem: str) -> None:
    """Once in a process: all functions are kept in the same folder."""
    global _said
    if not _said:
        _said = True
        LOG.warning("s4d_torch: %s; %s", problem, REMEDY)
