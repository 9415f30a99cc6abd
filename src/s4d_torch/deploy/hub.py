"""Models on the Hugging Face Hub: the files of ``save_pretrained``, and nothing pickled.

>>> push_to_hub(load_run("runs/digits"), "user/name")
>>> model = HubSequenceModel.from_pretrained("user/name")

Needs the extra ``hub``; a model from a local folder does not.
"""

import os
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import torch

from s4d_torch._extras import missing_package
from s4d_torch.deploy.cards import card_of, page
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import CONFIG, WEIGHTS
from s4d_torch.training import Run
from s4d_torch.training.saved.packaged import Card

CARD = "README.md"


def hub_package() -> Any:
    """``huggingface_hub``, with an error that names the extra where it is missing."""
    try:
        return import_module("huggingface_hub")
    except ImportError as error:
        raise missing_package("models on the Hub", "huggingface_hub", "hub") from error


def push_to_hub(
    model: SequenceModel | Run,
    repo_id: str,
    *,
    about: Mapping[str, str] | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str = "Upload model",
    create_pr: bool = False,
) -> str:
    """Upload weights and config to ``"user/name"``, made if need be; the commit's address.

    A model card is added unless the repository has one. That of a run (``load_run``) has the fields
    of the models that come with the package: data, licence, split, scores with intervals, size,
    speed. ``about`` replaces what the run says of itself, and adds what only its owner knows:
    ``{"not_for": "...", "licence": "..."}``.
    """
    _check_name(repo_id)
    run = model if isinstance(model, Run) else None
    network = model.model if isinstance(model, Run) else model
    if not isinstance(network, SequenceModel):
        raise TypeError(f"expected a SequenceModel or a run of one, got a {type(network).__name__}")
    if run is None and about:
        raise ValueError("about is for the card of a run; give the run (load_run), not its model")
    name = repo_id.rpartition("/")[2]
    known = None if run is None else card_of(run, name, **(about or {}))
    api = hub_package().HfApi(token=token)
    repo = str(api.create_repo(repo_id, private=private, exist_ok=True).repo_id)
    with tempfile.TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        if not api.file_exists(repo, CARD, revision=revision):
            (Path(folder) / CARD).write_text(card(network, repo, known), encoding="utf-8")
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message,
            create_pr=create_pr,
        )
    return str(getattr(commit, "commit_url", commit))


class HubSequenceModel(SequenceModel):
    """A :class:`SequenceModel` that goes to the Hub and comes from there.

    Its files are those of a SequenceModel, and either class loads them.
    """

    saved_as = "SequenceModel"

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """From a local folder, or else from the repository ``"user/name"`` of the Hub.

        ``revision`` is a branch, tag or commit; with ``local_files_only`` the cache has to have it.
        """
        if not Path(folder).is_dir():
            _check_name(os.fspath(folder))
            folder = hub_package().snapshot_download(
                os.fspath(folder),
                allow_patterns=[WEIGHTS, CONFIG],
                revision=revision,
                cache_dir=cache_dir,
                token=token,
                local_files_only=local_files_only,
            )
        return super().from_pretrained(folder, device=device, dtype=dtype)

    push_to_hub = push_to_hub


def card(model: SequenceModel, repo_id: str, known: Card | None = None) -> str:
    """A model card with what the Hub wants to know, and what is ``known`` of a trained one."""
    config = model.config
    count = sum(x.numel() for x in model.parameters())
    head = page(known) if known is not None else f"# {repo_id.rpartition('/')[2]}\n"
    return f"""---
library_name: s4d-torch
tags:
- state-space-model
- s4d
---
{head}
A state space model of {config["n_layers"]} layers with d_model {config["d_model"]} and d_state \
{config["d_state"]}: {count} parameters. It reads {config["d_input"]} \
{"kinds of tokens" if config["encoder"] == "embedding" else "features"} and gives \
{config["d_output"]} outputs.

```python
from s4d_torch.deploy import HubSequenceModel
model = HubSequenceModel.from_pretrained("{repo_id}")
```
"""


def _check_name(repo_id: str) -> None:
    parts = repo_id.split("/")
    if not 1 <= len(parts) <= 2 or not all(parts) or repo_id.startswith((".", "~")):
        raise FileNotFoundError(
            f"no folder {repo_id!r}, and no name of a repository either; "
            "expected a folder that save_pretrained wrote, or 'user/name'"
        )
