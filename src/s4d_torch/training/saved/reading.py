"""Files of a run folder, judged when they are read: one sentence with the file and the remedy."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from s4d_torch._registry import UnknownNameError
from s4d_torch.data.dataset import Signature
from s4d_torch.data.store import signature_from
from s4d_torch.training.option_types import check_types

REMEDY = "put back a copy of it, or train again in another folder"
SEAL = "sha256"  # of all other entries
UNITS = ("input_shift", "input_scale", "target_shift", "target_scale")
NEEDED = ("metric", "test", "validation", "best_epoch", "steps", "seconds")  # of a summary
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever is wrong with the content of a file, is damage of that file."""
    try:
        yield
    except WRONG as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{path} is damaged"):
            raise
        is_missing = isinstance(error, KeyError) and not isinstance(error, UnknownNameError)
        what = f"no {error}" if is_missing else str(error)
        raise ValueError(f"{path} is damaged: {what[:200]}; {REMEDY}") from error


def read_json(path: Path) -> dict[str, Any]:
    with reading(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"expected an object, got {type(content).__name__}")
        return content


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content with a checksum of its own: a digit that changes would else change all answers."""
    return {**content, SEAL: _digest(content)}


def read_signature(path: Path) -> Signature:
    """A signature whose parts fit each other."""
    content = read_json(path)
    with reading(path):
        digest = content.pop(SEAL, None)  # earlier releases wrote none
        if digest not in (None, _digest(content)):
            raise ValueError("it does not match its checksum")
        if missing := [name for name in UNITS if name not in content]:  # no default would fit
            raise ValueError(f"no {', '.join(missing)}")
        signature = signature_from(content)
        check_types(signature)
        if signature.clock is not None:
            check_types(signature.clock)
        for name in ("features", "outputs", "length", "towers"):
            if getattr(signature, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(signature, name)}")
        for name in ("input_shift", "input_scale"):
            if len(getattr(signature, name)) not in (1, signature.features):
                raise ValueError(f"{name} needs a number for each feature")
        for name in ("channels", "classes"):
            named = getattr(signature, name)
            if named and len(named) != _count(signature, name):
                raise ValueError(f"{name} needs a name for each of {_count(signature, name)}")
        return signature


def _count(signature: Signature, name: str) -> int:
    return signature.features if name == "channels" else signature.outputs


def read_summary(path: Path) -> dict[str, Any]:
    """What a finished run wrote last, with NaN for null."""
    found = read_json(path)
    with reading(path):
        if missing := [name for name in NEEDED if name not in found]:
            raise ValueError(f"no {', '.join(missing)}")
        if not isinstance(found["test"], dict) or not isinstance(found["metric"], str):
            raise ValueError("test must be an object, and metric the name of one")
        numbers = {**found["test"], **{name: found[name] for name in NEEDED[2:]}}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise ValueError(f"{name} must be a number, got {value!r}")
        for name in ("best_epoch", "steps", "seconds"):
            if numbers[name] is None or not 0 <= numbers[name] < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {numbers[name]!r}")
        found["test"] = {k: math.nan if x is None else x for k, x in found["test"].items()}
        if found["validation"] is None:
            found["validation"] = math.nan
        return found


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of ``metrics.csv``; a last line that was cut off is left out."""
    with reading(path):
        text = path.read_text(encoding="utf-8")
        try:
            rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
        except csv.Error as error:
            raise ValueError(str(error)) from error
        for row in rows:
            if None in row or None in row.values():
                raise ValueError("a row of another length than the header")
            step = row.get("step") or ""
            if not (step.isascii() and step.isdigit() and len(step) < 20):
                raise ValueError("a row without the number of its step")
        return rows


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
