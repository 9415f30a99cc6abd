"""Streams on disk: one safetensors file with their states, and whose they are.

Tensors, of a model: ``layer.0`` (streams, d_model, state_size) and so on, ``total`` (streams,
d_model), ``samples`` (streams,), and ``answer`` (streams, d_output) if it pools; of features, see
:mod:`.feature_runner`. The metadata has a format, a version, a digest of all else, and as JSON the
model's config, a digest of its weights, and the id, the rate and the samples of each stream, with
the time of the last one where it is known.
"""

import json
import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from s4d_torch._files import write_atomically
from s4d_torch.deploy.stream.identity import digest
from s4d_torch.deploy.stream.runner import AnyRunner, StreamPosition
from s4d_torch.nn.method import Method

FORMAT, VERSION = "s4d_torch stream", 3  # since 3 states are those just after a sample


def write_streams(
    path: str | os.PathLike[str], runner: AnyRunner, streams: Mapping[Any, StreamPosition]
) -> None:
    """Write the states of streams by their ids, whole or not at all."""
    described = []
    for name, position in streams.items():
        if isinstance(name, bool) or not isinstance(name, str | int | None):
            raise TypeError(f"an id on disk must be a string or an integer, got {name!r}")
        about = {"id": name, "rate": position.rate, "samples": position.samples}
        described.append(about if position.time is None else {**about, "time": position.time})
    if not described:
        raise ValueError("there is no stream to write; push to one first")
    tensors = runner.packed(list(streams.values()))
    whose = {**runner.identity(), "streams": described}
    tensors = {name: x.cpu().contiguous() for name, x in tensors.items()}
    metadata = {"format": FORMAT, "version": str(VERSION), "description": json.dumps(whose)}
    metadata["sha256"] = digest(dict(sorted(tensors.items())), metadata["description"])
    content = save(tensors, metadata)
    write_atomically({Path(path): content})


def read_streams(path: str | os.PathLike[str], runner: AnyRunner) -> dict[Hashable, StreamPosition]:
    """The streams of a file, by their ids; an error unless this very model wrote it."""
    described, tensors = _read(Path(path))
    _check_identity(described, runner.identity(), path)
    streams = described.get("streams")
    if not isinstance(streams, list) or not streams or not all(map(_is_described, streams)):
        raise ValueError(f"{str(path)!r} does not say which streams it holds; write it again")
    _check_tensors(tensors, runner, len(streams), path)
    found: dict[Hashable, StreamPosition] = {}
    for row, stream in enumerate(streams):
        position = runner.unpacked(tensors, row)
        position.rate, position.samples = stream["rate"], stream["samples"]
        position.time = stream.get("time")
        if not position.samples:
            position.answer = None
        found[stream["id"]] = position
    return found


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; snapshot writes one")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{str(path)!r} is truncated or not a safetensors file ({error}); write it again"
        ) from error
    kind, version = metadata.get("format"), metadata.get("version")
    if kind != FORMAT:
        found = f"its format is {kind!r}, expected {FORMAT!r}"
        raise ValueError(f"{str(path)!r} is not the snapshot of a stream: {found}")
    if version != str(VERSION):
        raise ValueError(
            f"{str(path)!r} has version {version!r} of its format, this release "
            f"reads {VERSION}; use the release that wrote it, or a newer one"
        )
    ordered = dict(sorted(tensors.items()))
    if metadata.get("sha256") != digest(ordered, metadata.get("description", "")):
        raise ValueError(f"{str(path)!r} is damaged: it does not match its digest; write it again")
    try:
        described = json.loads(metadata["description"])
    except (KeyError, ValueError, RecursionError):
        described = None
    if not isinstance(described, dict) or not isinstance(described.get("config"), dict):
        raise ValueError(f"{str(path)!r} does not say whose states it holds; write it again")
    return described, tensors


def _check_identity(described: dict[str, Any], own: dict[str, Any], path: Any) -> None:
    theirs, ours = (_flat(identity["config"]) for identity in (described, own))
    different = [
        f"{name} {theirs.get(name)!r} instead of {ours.get(name)!r}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
    if different:
        raise ValueError(
            f"{str(path)!r} is the snapshot of another model: {', '.join(different[:5])}; "
            "restore it with the model that wrote it"
        )
    if described.get("weights") != own["weights"]:
        raise ValueError(
            f"{str(path)!r} is the snapshot of a model with other weights; a state means nothing "
            "to it: restore with the model that wrote it, or begin a new stream"
        )


def _is_described(stream: Any) -> bool:
    if not isinstance(stream, dict) or not isinstance(stream.get("id"), str | int | None):
        return False
    rate, samples = stream.get("rate"), stream.get("samples")
    rated = isinstance(rate, float | int) and not isinstance(rate, bool) and 0 < rate < math.inf
    time = stream.get("time", 0.0)
    rated = rated and isinstance(time, float | int) and math.isfinite(time)
    return rated and isinstance(samples, int) and not isinstance(samples, bool) and samples >= 0


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("method")
    if isinstance(inner, Mapping):
        inner = asdict(Method()) | dict(inner)  # written before a field came
    method = {f"method.{k}": v for k, v in inner.items()} if isinstance(inner, Mapping) else {}
    return {k: v for k, v in config.items() if k != "method"} | method


def _check_tensors(tensors: dict[str, Tensor], runner: AnyRunner, streams: int, path: Any) -> None:
    wanted = runner.packed([StreamPosition() for _ in range(streams)])
    for name, x in wanted.items():
        found = tensors.get(name)
        if found is None or found.shape != x.shape or found.dtype != x.dtype:
            what = "is missing" if found is None else f"is {found.dtype} {tuple(found.shape)}"
            raise ValueError(
                f"{str(path)!r}: {name} {what}, expected {x.dtype} {tuple(x.shape)}; "
                "the file was changed, or cut: write it again"
            )
        if not bool(found.isfinite().all()):
            raise ValueError(
                f"{str(path)!r}: {name} holds NaN or infinity, which would be in every later "
                "answer; restore a snapshot from before it came, or begin a new stream"
            )
