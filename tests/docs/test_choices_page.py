"""docs/choices.md and README.md name every choice there is, and no other."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from s4d_torch import Method
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.method import KERNELS, STRUCTURES
from s4d_torch.nn.model import ENCODERS, POOLINGS
from s4d_torch.nn.norm import NORMS
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.hippo import HIPPO
from s4d_torch.ssm.initialization import B_STARTS, C_STARTS, INITIALIZATIONS

ROOT = Path(__file__).resolve().parents[2]
VALUES = {
    "structure": [*STRUCTURES],
    "kernel": [*KERNELS],
    "discretization": [*DISCRETIZATIONS],
    "constraint": [*CONSTRAINTS],
    "init": [*INITIALIZATIONS, *HIPPO],
    "B_init": [*B_STARTS],
    "C_init": [*C_STARTS],
}
AROUND = {
    "activation": [*ACTIVATIONS],
    "mixing": [*MIXINGS],
    "norm": [*NORMS],
    "encoder": [*ENCODERS],
    "pooling": [*POOLINGS],
}


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each table row, for each name in code type that its first cell holds."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / page).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("| `") and len(cells) > 2:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found.setdefault(name, cells)
    return found


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


@pytest.mark.parametrize("page", ["docs/choices.md", "README.md"])
def test_every_field_has_a_row_with_its_default_and_its_values(page: str) -> None:
    found = rows(page)
    for field in fields(Method):
        cells = found[field.name]
        defaults = re.findall(r"`([^`]+)`", cells[1])
        assert str(field.default) in defaults, field.name
        if field.name in VALUES:
            assert names_in(cells[2]) == VALUES[field.name], field.name


def test_the_arguments_around_the_state_space_have_their_values() -> None:
    found = rows("docs/choices.md")
    for name, values in AROUND.items():
        assert list(dict.fromkeys(names_in(found[name][3]))) == values, name
