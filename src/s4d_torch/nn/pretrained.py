"""Weights on disk: ``model.safetensors`` and a versioned ``config.json``; nothing is pickled."""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from s4d_torch._files import write_atomically
from s4d_torch._registry import unknown

M = TypeVar("M", bound=nn.Module)

FORMAT_VERSION = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
CHECKSUM = "s4d_torch.sha256"  # an entry of the metadata of the weights
FACTORY = ("generator", "device", "dtype")  # how a model is made, not what it is


class Pretrained(nn.Module):
    """Saving and loading for a module whose ``config`` holds its constructor's arguments."""

    config: dict[str, Any]
    preprocessing: dict[str, Any] | None = None
    """how raw data becomes what the model reads, where it was trained on standardised data"""
    saved_as: ClassVar[str | None] = None  # the name in config.json, if not that of the class

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights and the config into ``folder``, whole or not at all."""
        tensors, preprocessing = self.state_dict(), self.preprocessing
        write_folder(Path(folder), self._name(), self.config, tensors, preprocessing)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Load what :meth:`save_pretrained` wrote, in its precision unless ``dtype`` is given."""
        model = cls.read_pretrained(folder)
        if model.preprocessing is not None:
            warnings.warn(standardized_data(model.preprocessing, folder), stacklevel=2)
        return model.to(device=device, dtype=dtype)

    @classmethod
    def read_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """:meth:`from_pretrained` for those who see to the :attr:`preprocessing` themselves."""
        place = Path(folder)
        config, tensors = read_folder(place, cls._name(), configurable(cls))
        model = load_module(cls, config, tensors, place)
        model.preprocessing = _described(place / CONFIG).get("preprocessing")
        return model

    @classmethod
    def _name(cls) -> str:
        return cls.saved_as or cls.__name__


def standardized_data(preprocessing: Mapping[str, Any], folder: str | os.PathLike[str]) -> str:
    """What to know before a model of standardised data is called."""
    differences = " with first differences after its channels" * bool(
        preprocessing.get("differences")
    )
    return (
        f"the weights in {folder} were trained on standardised data{differences}: for raw data use "
        f"{preprocessing['read_with']}, or apply model.preprocessing yourself"
    )


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file; a missing, damaged or foreign one gets a clear error."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r}; the folder is not complete")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            digest = (file.metadata() or {}).get(CHECKSUM)
    except SafetensorError as error:
        raise ValueError(
            f"{str(path)!r} is truncated or not a safetensors file ({error}); save or copy it again"
        ) from error
    if digest not in (None, _checksum(tensors)):  # earlier releases wrote none
        raise ValueError(
            f"{str(path)!r} is damaged: the weights do not match their checksum; save or copy it "
            "again"
        )
    return tensors


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """Of names, types, shapes and values.

    It stands in the file itself, whose rename is one act: there is no moment in which a file of
    checksums belongs to other weights.
    """
    found = sha256()
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        found.update(x.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def write_folder(
    folder: Path,
    model: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    preprocessing: Mapping[str, Any] | None = None,
) -> None:
    """Weights and a config, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "format": "s4d_torch",
        "format_version": FORMAT_VERSION,
        "model": model,
        "config": config,
        **({} if preprocessing is None else {"preprocessing": preprocessing}),
    }
    text = json.dumps(description, indent=2) + "\n"
    copies = own_copies(tensors)
    # one entry: safetensors writes several in any order, and files would differ between runs
    weights = save(copies, metadata={CHECKSUM: _checksum(copies)})
    write_atomically({folder / WEIGHTS: weights, folder / CONFIG: text.encode()})


def own_copies(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """For safetensors, which refuses tensors that share memory, as tied weights do."""
    dense = torch.contiguous_format
    return {name: x.detach().cpu().clone(memory_format=dense) for name, x in tensors.items()}


def read_folder(
    folder: Path, model: str, arguments: Sequence[str]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The config and the weights of a ``model``; an error if they are not as they were written."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no folder {str(folder)!r}; expected one with {WEIGHTS} and {CONFIG}, "
            "as save_pretrained writes it"
        )
    return _read_config(folder / CONFIG, model, arguments), read_tensors(folder / WEIGHTS)


def load_module(
    make: Callable[..., M], config: dict[str, Any], tensors: dict[str, torch.Tensor], folder: Path
) -> M:
    """A module from its options and weights, in their precision."""
    _check_sizes(config, tensors, folder)
    saved = [x.dtype for x in tensors.values() if x.is_floating_point()]
    unused = torch.Generator()  # loading leaves the random numbers of others alone
    try:
        model = make(**config, generator=unused, dtype=saved[0] if saved else None)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"{folder / CONFIG} describes no valid model: {error}") from error
    _load(model, tensors, folder / WEIGHTS)
    return model


def _described(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r}; the folder is not complete")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not valid JSON ({error}); save it again") from error
    if not isinstance(described, dict) or described.get("format") != "s4d_torch":
        raise ValueError(f"{str(path)!r} was not written by s4d_torch: no 'format': 's4d_torch'")
    return described


def _read_config(path: Path, model: str, arguments: Sequence[str]) -> dict[str, Any]:
    described = _described(path)
    version = described.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"{str(path)!r} has no valid format_version, got {version!r}")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{str(path)!r} has format version {version}, this release reads up to "
            f"{FORMAT_VERSION}; upgrade s4d-torch"
        )
    if described.get("model") != model:
        raise ValueError(f"{str(path)!r} holds a {described.get('model')!r}, expected {model!r}")
    config = described.get("config")
    if not isinstance(config, dict):
        raise ValueError(f"{str(path)!r} has no 'config' object")
    for name in config:
        if name not in arguments:
            raise ValueError(f"{str(path)!r}: {unknown('option', name, arguments)}")
    match described.get("preprocessing"):
        case None | {"read_with": str()}:
            return config
    raise ValueError(f"{str(path)!r} has no valid 'preprocessing'; save or copy it again")


def configurable(cls: Callable[..., Any]) -> list[str]:
    """The names of a constructor's arguments that describe the model."""
    return [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and name not in FACTORY
    ]


def _check_sizes(config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], at: Path) -> None:
    """Refuse a config whose model would be larger than its weights, before any of it is built.

    One digit too many would otherwise take all memory, or years.
    """
    names = ("d_input", "d_output", "d_model", "n_layers", "d_state")
    sizes = [config.get(name, 0) for name in names]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return  # the constructor says which one it cannot be
    d_input, d_output, d_model, n_layers, d_state = sizes
    n_layers = n_layers if "n_layers" in config else 1  # a single layer
    mixed = d_model if config.get("mixing", "glu") in ("glu", "linear") else 0
    least = d_model * (d_input + d_output + n_layers * (d_state // 2 + mixed))
    stored = sum(x.numel() for x in tensors.values())
    # what is built in no time is compared tensor by tensor afterwards
    if least > max(stored, 1 << 20) or n_layers > max(len(tensors), 100):
        shown = ", ".join(f"{name} {config[name]}" for name in names if name in config)
        raise ValueError(
            f"{str(at / CONFIG)!r} describes a larger model than its weights: {shown} need more "
            f"than the {stored:,} numbers in {WEIGHTS}; save or copy both again"
        )


def _load(model: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    wanted = model.state_dict()
    found = {
        "missing": wanted.keys() - tensors.keys(),
        "foreign": tensors.keys() - wanted.keys(),
        "shape": {
            f"{name} {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
            for name in wanted.keys() & tensors.keys()
            if tensors[name].shape != wanted[name].shape
        },
    }
    problems = [
        f"{what}: {', '.join(sorted(names)[:5])}{' ...' if len(names) > 5 else ''}"
        for what, names in found.items()
        if names
    ]
    if problems:
        raise ValueError(f"{str(path)!r} does not fit its config; {'; '.join(problems)}")
    if bad := sorted(name for name, x in tensors.items() if not torch.isfinite(x).all()):
        raise ValueError(
            f"{str(path)!r} is damaged: values of {', '.join(bad[:5])} are not finite; save or "
            "copy it again"
        )
    model.load_state_dict(tensors)
