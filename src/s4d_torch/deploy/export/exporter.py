"""Export a model: graphs for other runtimes, checked against the model before they are kept."""

import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s4d_torch._files import folder_in_place_of, temporary_folder
from s4d_torch._progress import visible
from s4d_torch._version import __version__
from s4d_torch.data.dataset import Dataset, Signature
from s4d_torch.data.task import Task
from s4d_torch.deploy.export import check
from s4d_torch.deploy.export.card import card
from s4d_torch.deploy.export.formats import FORMATS, ExportFormat
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.quantize import quantized, quantized_plan
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import make_plan
from s4d_torch.training.evaluation import predict, score

FACTS, CARD = "export.json", "README.md"
FORMAT_VERSION = 2  # since 2 an ONNX sequence needs lengths
EVALUATED = 1000  # sequences of a split that show what quantisation changes


class ExportMismatchError(ValueError):
    """An export that does not answer as its model does; it was not written."""


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, and the facts that its ``export.json`` holds too."""

    folder: Path
    facts: dict[str, Any]

    @property
    def sequence(self) -> Path:
        """The file for whole sequences; an export to C, or a page, has none."""
        if self.facts["sequence"] is None:
            raise ValueError(f"an export to {self.facts['to']} has no file for whole sequences")
        return self.folder / self.facts["sequence"]["file"]

    @property
    def step(self) -> Path | None:
        """None for a bidirectional model, which has no step."""
        step = self.facts["step"]
        return None if step is None else self.folder / step["file"]

    @property
    def difference(self) -> float:
        """The largest difference from the model that was found, of its largest output.

        NaN if it could not be checked here.
        """
        found = self.facts["checked"]["difference"]
        return math.nan if found is None else float(found)


def export_model(
    model: SequenceModel,
    folder: str | os.PathLike[str],
    *,
    to: str = "onnx",
    quantize: str | None = None,
    rate: float = 1.0,
    state: str | None = None,
    signature: Signature | None = None,
    dataset: Dataset | None = None,
    task: Task[Any] | None = None,
    options: Any = None,
    name: str | None = None,
    tolerance: float | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Write a model as ``onnx``, ``pt2``, ``c``, ``web`` or another of ``FORMATS``, with a card.

    ONNX and pt2 are two files, ``sequence`` and ``step``, which take any batch, the sequence any
    length too; C is ``s4d.h`` and ``s4d.c``, which step, and ``web`` one page of HTML. They compute
    in float32, with the state of the step in float64, or for C in ``state``: ``float32`` or
    ``float64``. ``rate`` is fixed in them. ``quantize`` stores the
    mixing matrices as ``int8`` or ``float16``; with a ``dataset`` the scores before and after are
    measured. ``signature`` tells the card of classes and of the normalisation of the data,
    ``task`` and its ``options`` tell a page what its visitors may give: a drawing, for images.
    ``name`` is the title of a page, and what functions and files in C begin with.

    What differs from the model by more than ``tolerance``, of the largest output, is refused: then,
    as after any error, ``folder`` is as it was. ``report`` is told what is being done.
    """
    kind, target = FORMATS[to], Path(folder)
    _check_model(model)
    precision = _precision(kind, to, state)
    if name is not None:
        kind.check_name(name)
    versions = kind.require()
    _check_target(target)
    signature = dataset.signature if signature is None and dataset is not None else signature
    exact = check.reference(model)
    known = (signature, task, options, name)
    whole = Job(make_plan(exact, rate), exact, rate, precision, *known)
    kind.check(whole.plan)
    job = whole if quantize is None else _quantized(kind, to, whole, quantize)
    with folder_in_place_of(target, prefix=".export-") as place:
        kind.write(job, place, report)
        allowed = kind.tolerance if tolerance is None else tolerance
        facts = {
            **_facts(kind, to, job, place),
            "versions": {"s4d_torch": __version__, "torch": torch.__version__, **versions},
            "config": model.config,
            "preprocessing": model.preprocessing,
            "quantized": None,
            "checked": _judged(kind.compare(job, place, report), allowed, _remedy(kind, job)),
        }
        if quantize is not None:
            report(f"measuring what {quantize} changes")
            facts["quantized"] = {"to": quantize, **_change(kind, whole, job, place, dataset)}
        (place / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        (place / CARD).write_text(visible(card(facts, kind.example)), encoding="utf-8")
    return Exported(target, facts)


def _quantized(kind: ExportFormat, to: str, job: Job, quantize: str) -> Job:
    """The same with its mixing matrices in fewer bits."""
    model = quantized(job.model, quantize)
    if quantize not in kind.quantizations:
        raise ValueError(
            f"{to} has no {quantize}; use {' or '.join(kind.quantizations)}; nothing was written"
        )
    return replace(job, plan=quantized_plan(job.plan, quantize), model=model)


def _change(
    kind: ExportFormat, whole: Job, job: Job, place: Path, dataset: Dataset | None
) -> dict[str, Any]:
    """What fewer bits change: bytes, outputs and, where there is data, scores."""
    exact, rate = whole.model, job.rate
    return {
        "bytes_before": _sizes(kind, whole, place),
        "output_change": check.output_change(exact, job.model, job.plan, rate),
        "scores": None if dataset is None else _scores(exact, job.model, dataset, rate),
    }


def _facts(kind: ExportFormat, to: str, job: Job, place: Path) -> dict[str, Any]:
    """What the files are, and what is known of the data."""
    return {
        "format": "s4d_torch.export",
        "format_version": FORMAT_VERSION,
        "to": to,
        **kind.describe(job, place),
        "rate": job.rate,
        "needs": kind.needs,
        "data": None if job.signature is None else asdict(job.signature),
    }


def _precision(kind: ExportFormat, to: str, state: str | None) -> torch.dtype:
    name = kind.states[0] if state is None else state
    if name not in kind.states:
        raise ValueError(f"the state of {to} is {' or '.join(kind.states)}, got state={state!r}")
    found: torch.dtype = getattr(torch, name)
    return found


def _remedy(kind: ExportFormat, job: Job) -> str:
    """What may help where an export differs."""
    more = job.state == torch.float32 and "float64" in kind.states
    return "; a state in float64 keeps more digits" if more else ""


def _judged(found: check.Comparison, tolerance: float, remedy: str) -> dict[str, Any]:
    """The differences in units of the largest output; an error if one is too large."""
    checked = found.files
    if found.why_not:
        return {"tolerance": tolerance, "difference": None, "why_not": found.why_not}
    largest = max(each.largest for part in checked.values() for each in part) or 1.0
    relative = {
        name: [{**each.what, "difference": each.difference / largest} for each in part]
        for name, part in checked.items()
    }
    flat = [(row.difference / largest, name, row.what) for name in checked for row in checked[name]]
    for difference, name, what in flat:
        if not difference <= tolerance:  # NaN is wrong too
            where = ", ".join(f"{key} {value}" for key, value in what.items())
            raise ExportMismatchError(
                f"the exported {name} differs from the model by {difference:.1e} of the largest "
                f"output ({where}), and {tolerance:g} is allowed{remedy}; nothing was written"
            )
    return {"tolerance": tolerance, "difference": max(entry[0] for entry in flat), **relative}


def _sizes(kind: ExportFormat, job: Job, place: Path) -> dict[str, int]:
    """Bytes of the files of another plan."""
    with temporary_folder(place / "exact") as other:
        kind.write(job, other, lambda _: None)
        facts = kind.describe(job, other)
        files = {name: facts[name] for name in ("sequence", "step") if facts[name] is not None}
        return {name: file["bytes"] for name, file in files.items()}


def _scores(
    exact: SequenceModel, other: SequenceModel, dataset: Dataset, rate: float
) -> dict[str, Any]:
    """The scores of both on the test split, or on the validation split if there is none."""
    name = "test" if len(dataset.test) else "validation"
    split = dataset.splits[name]
    if len(split) > EVALUATED:  # evenly over the split, which may be sorted by class
        split = split.part(np.linspace(0, len(split) - 1, EVALUATED).round().astype(np.int64))
    precision = "float64" if next(exact.parameters()).dtype == torch.float64 else "float32"

    def scores(model: SequenceModel) -> dict[str, float]:
        outputs, targets = predict(model, dataset, split, precision=precision, rate=rate)
        found = score(outputs, targets, dataset.signature)
        return {"loss": found.loss, **found.scores}

    before, after = scores(exact), scores(other)
    return {"split": name, "sequences": len(split), "before": before, "after": after}


def _check_model(model: SequenceModel) -> None:
    if not isinstance(model, SequenceModel):
        raise TypeError(
            f"only a SequenceModel can be exported, got a {type(model).__name__}; "
            "torch.export and torch.onnx take other models"
        )


def _check_target(folder: Path) -> None:
    """Refuse a folder with anything in it but an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the export")
    if folder.is_dir() and any(folder.iterdir()):
        facts = None
        with suppress(OSError, ValueError):
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or facts.get("format") != "s4d_torch.export":
            raise FileExistsError(
                f"{folder} is not empty and holds no earlier export; name another folder"
            )
