"""A claim of the paper, and the verdict on it: a check with numbers, or a decision from results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from s4d_torch._registry import Registry

Holds = Literal["holds", "fails", "not decided"]

# Scores by the name of a table, its row and its column, one for each seed.
Results = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds; ``effect`` says by how much, ``detail`` in which sense."""

    holds: Holds
    effect: str
    detail: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement that can be checked without training anything.

    ``right`` is given for an erratum: ``statement`` is what is printed, ``right`` what should be,
    and the verdict is on the printed form.
    """

    name: str
    statement: str
    where: str
    check: Callable[[], Verdict]
    right: str = ""


@dataclass(frozen=True)
class Finding:
    """A statement about trained models, which the results of the table ``recipe`` decide.

    ``quote`` is the paper's wording, ``where`` the section and the published table. How it is
    decided is registered in :data:`DECISIONS` under the same name.
    """

    name: str
    statement: str
    quote: str
    where: str
    recipe: str

    def decide(self, results: Results) -> Verdict:
        """The verdict from what was trained; not decided where results or a rule are missing."""
        if not results.get(self.recipe):
            return Verdict("not decided", f"needs the results of '{self.recipe}'")
        if self.name not in DECISIONS:
            return Verdict("not decided", "no rule decides it")
        return DECISIONS[self.name](results)


CLAIMS: Registry[Claim] = Registry("claim")
FINDINGS: Registry[Finding] = Registry("finding")
DECISIONS: Registry[Callable[[Results], Verdict]] = Registry("decision")

Check = Callable[[], Verdict]


def claim(name: str, statement: str, where: str, *, right: str = "") -> Callable[[Check], Check]:
    """Register the decorated check as a claim."""

    def register(check: Check) -> Check:
        CLAIMS.register(name, Claim(name, statement, where, check, right))
        return check

    return register


def judged(holds: bool, effect: str, detail: str = "") -> Verdict:
    """The verdict of a check that decides."""
    return Verdict("holds" if holds else "fails", effect, detail)
