"""Export a model: graphs for other runtimes, checked against the model before they are kept."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s4d_torch._files import folder_in_place_of, temporary_folder
from s4d_torch._progress import visible
from s4d_torch._version import __version__
from s4d_torch.data.dataset import Dataset, Signature
from s4d_torch.deploy.export import check
from s4d_torch.deploy.export.card import card
from s4d_torch.deploy.export.formats import FORMATS, Format
from s4d_torch.deploy.export.quantize import quantized, quantized_plan
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import ModelPlan, make_plan
from s4d_torch.training.evaluation import predict, score

FACTS, CARD = "export.json", "README.md"
FORMAT_VERSION = 2  # since 2 an ONNX sequence needs lengths
TOLERANCE = 1e-4  # of the largest output
EVALUATED = 1000  # sequences of a split that show what quantisation changes
NO_STEP = (
    "a bidirectional model looks ahead and cannot step; there is no step file: "
    "'s4d train --causal' makes a model that has one"
)


class ExportMismatchError(ValueError):
    """An export that does not answer as its model does; it was not written."""


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, and the facts that its ``export.json`` holds too."""

    folder: Path
    facts: dict[str, Any]

    @property
    def sequence(self) -> Path:
        return self.folder / self.facts["sequence"]["file"]

    @property
    def step(self) -> Path | None:
        """None for a bidirectional model, which has no step."""
        step = self.facts["step"]
        return None if step is None else self.folder / step["file"]

    @property
    def difference(self) -> float:
        """The largest difference from the model that was found, of its largest output."""
        return float(self.facts["checked"]["difference"])


def export_model(
    model: SequenceModel,
    folder: str | os.PathLike[str],
    *,
    to: str = "onnx",
    quantize: str | None = None,
    rate: float = 1.0,
    signature: Signature | None = None,
    dataset: Dataset | None = None,
    tolerance: float = TOLERANCE,
    report: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Write ``sequence`` and ``step`` as ``onnx``, ``pt2`` or another of ``FORMATS``, with a card.

    Both take any batch, the sequence any length too; they compute in float32 with the state of the
    step in float64. ``rate`` is fixed in them. ``quantize`` stores the mixing matrices as ``int8``
    or ``float16``; with a ``dataset`` the scores before and after are measured. ``signature`` tells
    the card of classes and of the normalisation of the data.

    What differs from the model by more than ``tolerance``, of the largest output, is refused: then,
    as after any error, ``folder`` is as it was. ``report`` is told what is being done.
    """
    kind, target = FORMATS[to], Path(folder)
    _check_model(model)
    versions = kind.require()
    _check_target(target)
    exact = check.reference(model)
    shown = exact if quantize is None else quantized(exact, quantize)
    exact_plan = make_plan(exact, rate)
    kind.check(exact_plan)
    plan = exact_plan if quantize is None else quantized_plan(exact_plan, quantize)
    signature = dataset.signature if signature is None and dataset is not None else signature
    with folder_in_place_of(target, prefix=".export-") as place:
        _write(kind, plan, place, report)
        checked = _check(kind, plan, shown, place, rate, signature, report)
        facts = {
            "format": "s4d_torch.export",
            "format_version": FORMAT_VERSION,
            "to": to,
            **_described(kind, plan, place),
            "rate": rate,
            "needs": kind.needs,
            "versions": {"s4d_torch": __version__, "torch": torch.__version__, **versions},
            "config": model.config,
            "data": None if signature is None else asdict(signature),
            "preprocessing": model.preprocessing,
            "quantized": None,
            "checked": _judged(checked, tolerance),
        }
        if quantize is not None:
            report(f"measuring what {quantize} changes")
            facts["quantized"] = {
                "to": quantize,
                "bytes_before": _sizes(kind, exact_plan, place),
                "output_change": check.output_change(exact, shown, plan, rate),
                "scores": None if dataset is None else _scores(exact, shown, dataset, rate),
            }
        (place / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        (place / CARD).write_text(visible(card(facts, kind.example)), encoding="utf-8")
    return Exported(target, facts)


def _check(
    kind: Format,
    plan: ModelPlan,
    model: SequenceModel,
    place: Path,
    rate: float,
    signature: Signature | None,
    say: Callable[[str], None],
) -> Any:
    """What the files answer, beside the model."""
    length = None if signature is None else signature.length
    say(f"checking sequence{kind.suffix} against the model")
    sequence = kind.load_sequence(place / f"sequence{kind.suffix}")
    checked = {"sequence": check.check_sequence(sequence, model, plan, rate, length)}
    if plan.causal:
        say(f"checking step{kind.suffix} against the model")
        step = kind.load_step(place / f"step{kind.suffix}")
        checked["step"] = check.check_step(step, model, plan, rate)
    return checked


def _write(
    kind: Format, plan: ModelPlan, place: Path, say: Callable[[str], None] = lambda _: None
) -> None:
    say(f"writing sequence{kind.suffix}")
    kind.write_sequence(plan, place / f"sequence{kind.suffix}")
    if plan.causal:
        say(f"writing step{kind.suffix}")
        kind.write_step(plan, place / f"step{kind.suffix}")


def _judged(checked: dict[str, list[check.Checked]], tolerance: float) -> dict[str, Any]:
    """The differences in units of the largest output; an error if one is too large."""
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
                f"output ({where}), and {tolerance:g} is allowed; nothing was written"
            )
    return {"tolerance": tolerance, "difference": max(entry[0] for entry in flat), **relative}


def _described(kind: Format, plan: ModelPlan, place: Path) -> dict[str, Any]:
    """Names, types and shapes of what goes in and comes out, per file."""
    lead: list[str | int] = ["batch"] if plan.towers == 1 else ["batch", 2]
    features = [] if plan.tokens else [plan.d_input]
    dtype = "int64" if plan.tokens else "float32"
    times = ["length"] if plan.pooling == "none" else []

    def tensor(name: str, dtype: str, *shape: str | int) -> dict[str, Any]:
        return {"name": name, "dtype": dtype, "shape": list(shape)}

    def described(name: str, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
        file = place / f"{name}{kind.suffix}"
        size = file.stat().st_size
        return {"file": file.name, "bytes": size, "inputs": inputs, "outputs": outputs}

    inputs = [tensor("u", dtype, *lead, "length", *features), tensor("lengths", "int64", *lead)]
    outputs = [tensor("y", "float32", "batch", *times, plan.d_output)]
    sequence = described("sequence", inputs, outputs)
    if not plan.causal:
        return {"sequence": sequence, "step": None, "why_no_step": NO_STEP}
    shapes = plan.state_shapes().items()
    inputs = [tensor("u", dtype, *lead, *features)]
    inputs += [tensor(name, "float64", *lead, *shape) for name, shape in shapes]
    outputs = [tensor("y", "float32", "batch", plan.d_output)]
    outputs += [{**state, "name": f"next_{state['name']}"} for state in inputs[1:]]
    step = described("step", inputs, outputs)
    return {"sequence": sequence, "step": step, "why_no_step": None}


def _sizes(kind: Format, plan: ModelPlan, place: Path) -> dict[str, int]:
    """Bytes of the files of another plan."""
    with temporary_folder(place / "exact") as other:
        _write(kind, plan, other)
        return {file.stem: file.stat().st_size for file in sorted(other.iterdir())}


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
