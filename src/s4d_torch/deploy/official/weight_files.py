"""Files of the official code; no pickle is run."""

import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from s4d_torch.nn import Layer
from s4d_torch.nn.pretrained import read_tensors

HOLDERS = ("state_dict", "model")  # of Lightning, and of the official example.py
SAVE_AGAIN = """\
{path} holds {what}, not only tensors: to make one, a pickle runs code of the file's choice, so
torch.load is called with weights_only=True here, and refuses.
If you trust the file, save its tensors alone, in the official code's environment:
    import torch, safetensors.torch
    tensors = torch.load({path!r}, map_location="cpu", weights_only=False)["state_dict"]
    safetensors.torch.save_file({{k: v.clone() for k, v in tensors.items()}}, {target!r})"""


class OfficialFile(NamedTuple):
    """A state dict, and an input with its output where the file has them to compare with."""

    state_dict: dict[str, Tensor]
    u: Tensor | None = None
    y: Tensor | None = None


def read_official(path: str | os.PathLike[str]) -> OfficialFile:
    """Weights from a ``.safetensors``, ``.npz``, or torch (``.pt``, ``.pth``, ``.ckpt``) file.

    A torch file may hold a state dict or a checkpoint around one, and is read with
    ``weights_only=True``. Where keys begin with ``w:``, those are the weights, ``u`` is an input
    and ``y`` the official output for it.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r}")
    readers = {".npz": _read_npz, ".safetensors": read_tensors}
    tensors = readers.get(path.suffix, _read_torch)(path)
    weights = {name[2:]: x for name, x in tensors.items() if name.startswith("w:")}
    if weights:
        return OfficialFile(weights, tensors.get("u"), tensors.get("y"))
    return OfficialFile(tensors)


def _read_npz(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays}
    except (ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} is no archive of plain arrays ({error})") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise ValueError(f"{str(path)!r} is no file of torch ({error})") from error
        target = str(path.with_suffix(".safetensors"))
        text = SAVE_AGAIN.format(path=str(path), what=refused[1], target=target)
        raise ValueError(text) from error
    except (RuntimeError, EOFError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is truncated or no file of torch ({error})") from error
    for holder in HOLDERS:
        if isinstance(content, Mapping) and isinstance(content.get(holder), Mapping):
            content = content[holder]
    whole = isinstance(content, Mapping) and all(isinstance(x, Tensor) for x in content.values())
    if not whole or not content:
        kind = type(content).__name__ if not isinstance(content, Mapping) else f"{list(content)}"
        raise ValueError(
            f"{str(path)!r} holds {kind}, expected a state dict or a checkpoint with one under "
            f"{' or '.join(map(repr, HOLDERS))}"
        )
    return {str(name): x for name, x in content.items()}


def save_layer(layer: Layer, folder: str | os.PathLike[str]) -> None:
    """The same as ``layer.save_pretrained(folder)``."""
    layer.save_pretrained(folder)


def load_layer(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Layer:
    """The same as ``Layer.from_pretrained(folder)``, for what ``s4d convert`` wrote too."""
    return Layer.from_pretrained(folder, device=device, dtype=dtype)
