"""What became of each case of a split, in a few bytes a case: right or wrong, or an error."""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array, Dataset, Split
from s4d_torch.training.evaluation import check_outputs, physical, predict
from s4d_torch.training.run import Run

# Where a file has the groups: numbered over all splits, or in each split by itself.
_GROUPS = {True: "owners", False: "groups"}
PENALTIES = tuple(10.0**k for k in range(-2, 7))  # of squared weights, for inputs of variance one


@dataclass(frozen=True)
class Outcomes:
    """For each case, in the order of its split: bool, right or wrong, or float, the error.

    ``groups`` number what the cases come from (a patient, a speaker), where that is known: cases of
    one group are right or wrong together. Numbers mean the same in all splits, but for results of
    earlier releases, which are not ``joint``.
    """

    values: Array
    groups: Array | None = None
    joint: bool = True

    def __add__(self, other: "Outcomes") -> "Outcomes":
        """Those of both splits."""
        assert self.joint
        assert other.joint
        assert (self.groups is None) == (other.groups is None)
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = np.concatenate([self.groups, other.groups])
        return Outcomes(np.concatenate([self.values, other.values]), groups)

    def to_json(self) -> dict[str, Any]:
        right = self.values.dtype == np.bool_
        content = np.packbits(self.values) if right else self.values.astype("<f2")
        described = {
            "kind": "right" if right else "error",
            "count": len(self.values),
            "values": _text(content),
        }
        if self.groups is not None:
            described[_GROUPS[self.joint]] = _text(self.groups.astype("<u2"))
        return described

    @staticmethod
    def from_json(described: dict[str, Any]) -> "Outcomes":
        content, count = b64decode(described["values"], validate=True), int(described["count"])
        if described["kind"] == "right":
            values = np.unpackbits(np.frombuffer(content, np.uint8))[:count].astype(bool)
        else:
            values = np.frombuffer(content, "<f2").astype(np.float64)
        groups, joint = None, _GROUPS[False] not in described
        if (name := _GROUPS[joint]) in described:
            groups = np.frombuffer(b64decode(described[name], validate=True), "<u2")
        if len(values) != count or (groups is not None and len(groups) != count):
            raise ValueError(f"outcomes of {count} cases expected, got {len(values)}")
        return Outcomes(values, groups, joint)


def outcomes(run: Run, dataset: Dataset, split: str) -> Outcomes:
    """What the best weights of a run make of each case; errors in the unit of the targets."""
    rows, training = dataset.splits[split], run.config.training
    groups = group_numbers(dataset)[split]
    options: Any = {"batch_size": training.batch_size, "precision": training.precision}
    outputs, targets = predict(run.model, dataset, rows, **options)
    check_outputs(outputs)
    if dataset.signature.kind == "regression":
        found, wanted = (physical(x, dataset.signature) for x in (outputs[:, 0], targets))
        return Outcomes((found - wanted).numpy(), groups)
    return Outcomes((outputs.argmax(-1) == targets).numpy(), groups)


def group_numbers(dataset: Dataset) -> dict[str, Array | None]:
    """For each split what its cases come from, by numbers that mean the same in all of them."""
    owners = {name: split.owners for name, split in dataset.splits.items()}
    known = {name: each for name, each in owners.items() if each is not None}
    if len(known) < len(owners):
        return dict.fromkeys(owners)
    every = np.unique(np.concatenate(list(known.values())))
    return {name: np.searchsorted(every, each) for name, each in known.items()}


def best_constant(dataset: Dataset, split: str) -> float:
    """The score of one answer to everything, the best by the training split.

    The accuracy of its most frequent class, or the RMSE of its mean.
    """
    known, tested = dataset.train.labels(), dataset.splits[split].labels()
    if dataset.signature.kind == "regression":
        return float(np.sqrt(np.mean((tested - known.mean()) ** 2)))
    counts = np.bincount(known.astype(np.int64))
    return float(np.mean(tested == counts.argmax()))


def best_linear(dataset: Dataset) -> dict[str, float]:
    """The RMSE of a linear map of all samples on validation and test; {} where none can be fitted.

    Ridge regression, with the penalty that is best on validation.
    """
    signature = dataset.signature
    if signature.kind != "regression" or signature.tokens or dataset.train.lengths() is not None:
        return {}
    read = [_flat(dataset, split) for split in dataset.splits.values()]
    inputs, targets = zip(*read, strict=True)
    mean, scale, level = inputs[0].mean(0), inputs[0].std(0).clamp(min=1e-9), targets[0].mean()
    known, *others = ((each - mean) / scale for each in inputs)  # (cases, samples)
    squares, heard = known.T @ known, known.T @ (targets[0] - level)
    errors = []
    for penalty in PENALTIES:
        weights = torch.linalg.solve(squares + penalty * torch.eye(len(squares)).double(), heard)
        wrong = (x @ weights + level - y for x, y in zip(others, targets[1:], strict=True))
        errors.append([float(each.square().mean().sqrt()) for each in wrong])
    return dict(zip(("validation", "test"), min(errors), strict=True))


def _flat(dataset: Dataset, split: Split) -> tuple[Tensor, Tensor]:
    """All sequences of a split as rows, and their targets, in double precision."""
    batch = dataset.batch(split, np.arange(len(split)))
    targets = torch.from_numpy(split.labels().astype(np.float64))
    return batch.inputs.double().flatten(1), targets


def _text(array: Array) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode()
