"""Named choices: each is registered beside its definition and found by its name.

The command line, the contract tests and the docs read the same registries, so a new choice is
added in one place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar, overload

T = TypeVar("T")

_MISSING: Any = object()


class UnknownNameError(KeyError, ValueError):
    """A name that is not in a registry.

    A `ValueError` to the user who mistyped an option, and the `KeyError` that makes `in` and
    `get` of a `Mapping` work.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`"; did you mean 'legs'?"` if `name` is close to one of `options`, otherwise `""`."""
    by_lower = {option.lower(): option for option in options}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


def unknown(kind: str, name: object, options: Iterable[str]) -> str:
    """The message for a name that is none of `options`: what came, a suggestion, the choices."""
    names = list(options)
    hint = did_you_mean(str(name), names) or ";"
    return f"unknown {kind} {name!r}{hint} choose one of: {', '.join(names)}"


class Registry(Mapping[str, T]):
    """A read-only mapping from names to values, in the order of registration.

    >>> INITIALIZATIONS = Registry[Callable[[int], Tensor]]("initialization")
    >>> @INITIALIZATIONS.register("lin")
    ... def lin(N): ...
    >>> INITIALIZATIONS.register("legs", legs)
    >>> INITIALIZATIONS["lgs"]
    UnknownNameError: unknown initialization 'lgs'; did you mean 'legs'? choose one of: lin, legs
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    @overload
    def register(self, name: str) -> Callable[[T], T]: ...
    @overload
    def register(self, name: str, value: T) -> T: ...
    def register(self, name: str, value: T = _MISSING) -> T | Callable[[T], T]:
        """Add `value` under `name` and return it; without a value, a decorator that does so."""
        if value is _MISSING:
            return lambda decorated: self.register(name, decorated)
        if name in self._entries:
            raise ValueError(
                f"{self.kind} {name!r} is already registered, as {self._entries[name]!r}; "
                "choose another name"
            )
        self._entries[name] = value
        return value

    @contextmanager
    def _added(self, name: str, value: Any) -> Iterator[None]:
        """`value` under `name` for as long as a `with` statement lasts; for tests."""
        self.register(name, value)
        try:
            yield
        finally:
            del self._entries[name]

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except TypeError:  # a list, which no dictionary takes
            raise TypeError(f"{self.kind} must be a name, got {name!r}") from None
        except KeyError:
            raise UnknownNameError(unknown(self.kind, name, self)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}: {', '.join(self)})"


class EntryRegistry(Registry[T]):
    """A registry whose entries may be given in a shorter form, which `entry` completes.

    >>> ACTIVATIONS = EntryRegistry("activation", Activation.of)
    >>> ACTIVATIONS.register("softsign", nn.Softsign)   # the same as Activation(nn.Softsign)
    """

    def __init__(self, kind: str, entry: Callable[[Any], T]) -> None:
        super().__init__(kind)
        self._entry = entry

    def register(self, name: str, value: Any = _MISSING) -> Any:
        """Add `value` under `name` and return it as it came; without one, a decorator."""
        if value is _MISSING:
            return lambda decorated: self.register(name, decorated)
        super().register(name, self._entry(value))
        return value
