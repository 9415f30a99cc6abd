"""A claim of the paper, and the verdict on it: by a check with numbers, or by trained models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from s4d_torch._registry import Registry
from s4d_torch.paper.claims.comparison import Evidence, Rows
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.results import Scores

Holds = Literal["holds", "fails", "not decided"]


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds; ``effect`` says by how much, ``detail`` in which sense."""

    holds: Holds
    effect: str
    detail: str = ""


Check = Callable[[], Verdict]
Rule = Callable[[Evidence], Verdict]


@dataclass(frozen=True)
class Claim:
    """A statement that can be checked without training anything.

    ``right`` is given for an erratum: ``statement`` is what is printed, ``right`` what should be,
    and the verdict is on the printed form.
    """

    name: str
    statement: str
    where: str
    check: Check
    right: str = ""


@dataclass(frozen=True)
class Finding:
    """A statement about trained models, decided by a rule from some rows of a table.

    ``quote`` is the paper's wording, ``where`` the section and the published table.
    """

    name: str
    statement: str
    quote: str
    where: str
    table: str
    rows: Rows
    rule: Rule

    @property
    def published(self) -> dict[str, dict[str, str]]:
        """The paper's own numbers for these rows, as printed: by row and column."""
        printed = RECIPES[self.table].published
        return {row: printed[row] for group in self.rows for row in group if row in printed}

    def decide(self, scores: Scores) -> Verdict:
        """The verdict from what was trained; not decided where its table has no results."""
        if not scores.get(self.table):
            return Verdict("not decided", f"needs the results of '{self.table}'")
        return self.rule(Evidence(RECIPES[self.table], scores[self.table], self.rows))


CLAIMS: Registry[Claim] = Registry("claim")


def claim(where: str, *, right: str = "") -> Callable[[Check], Check]:
    """Register the decorated check as a claim; its docstring is what the paper says."""

    def register(check: Check) -> Check:
        name = ("erratum-" if right else "") + check.__name__.replace("_", "-")
        statement = " ".join((check.__doc__ or "").split())
        CLAIMS.register(name, Claim(name, statement, where, check, right))
        return check

    return register


def judged(holds: bool, effect: str, detail: str = "") -> Verdict:
    """The verdict of a check that decides."""
    return Verdict("holds" if holds else "fails", effect, detail)
