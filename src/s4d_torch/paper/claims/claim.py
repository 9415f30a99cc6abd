"""A claim of the paper, and the verdict on it: by a check with numbers, or by trained models."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from s4d_torch._registry import Registry
from s4d_torch.paper.claims.comparison import Evidence, Gain, Rows
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.scores import Pools, Scores, printed_scores

Holds = Literal["holds", "holds in part", "fails", "not decided"]


@dataclass(frozen=True)
class Need:
    """A comparison that is open: how many seeds it has, and how many would decide it.

    None: no number would if the difference stays as it is, since the test cases alone leave more
    noise. One that is ``contrary`` tends against the statement.
    """

    rows: tuple[str, str]
    column: str
    seeds: int
    wanted: int | None
    contrary: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds; ``effect`` says by how much, ``detail`` in which sense.

    ``needs`` are the comparisons that keep it open, ``deciding`` those that made it what it is: all
    of one that holds, those that contradict one that fails, those that leave one open; ``beside``
    are all others that were compared. ``missing`` are datasets that it waits for, ``unseen`` all
    those of its table that nothing is known of, and ``aside`` comparisons that could not tell.
    ``short``: so many more comparisons have to support it; None: all of them, and one that is
    contrary decides alone. ``unlearned``: all results there are were guesses. ``reserve`` says why
    what contradicts it does not count at this scale, and ``limit`` the same where something does.
    """

    holds: Holds
    effect: str
    detail: str = ""
    needs: tuple[Need, ...] = ()
    deciding: tuple[Gain, ...] = ()
    missing: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    aside: tuple[Gain, ...] = ()
    beside: tuple[Gain, ...] = ()
    short: int | None = None
    unlearned: bool = False
    reserve: str = ""
    limit: str = ""

    @property
    def standing(self) -> str:
        """The verdict, and of an open one what it waits for: runs, seeds, or other test cases."""
        if self.holds != "not decided":
            return self.holds
        if self.limit:
            return "open at this scale"
        if not self.deciding and not self.needs:
            return "nothing learned" if self.unlearned else "not run"
        if not self.needs or self.short == 0:
            return "open for more runs"
        return "open for more seeds" if self.seeds_wanted else "open whatever the seeds"

    @property
    def first_contrary(self) -> int | None:
        """The seeds after which a comparison that tends against it would contradict it."""
        if self.short is not None:
            return None
        contrary = (need.wanted for need in self.needs if need.contrary)
        return min((wanted for wanted in contrary if wanted is not None), default=None)

    @property
    def seeds_wanted(self) -> int | None:
        """About how many would decide it: the first that contradicts it, or as many as have to
        support it.

        None: no number would, or nothing waits for seeds.
        """
        if self.first_contrary is not None:
            return self.first_contrary
        short = len(self.needs) if self.short is None else self.short
        support = [need.wanted for need in self.needs if not need.contrary]
        found = sorted(wanted for wanted in support if wanted is not None)
        return found[short - 1] if 0 < short <= len(found) else None

    @property
    def hopeless(self) -> str:
        """The columns whose test cases leave more noise than any number of seeds takes away."""
        return ", ".join(dict.fromkeys(need.column for need in self.needs if need.wanted is None))

    @property
    def what_it_takes(self) -> str:
        """``About 12 seeds would decide it.``, or that no number would; "" where it is decided."""
        if self.holds != "not decided":
            return ""
        if self.limit:
            return f"It does not hold at this scale, which contradicts nothing: {self.limit}."
        waiting = f"It needs results of {', '.join(self.missing)}." if self.missing else ""
        if not self.needs or self.short == 0:
            return waiting
        if any(need.seeds < 2 for need in self.needs):
            return sentences("One seed decides nothing; a second says how many would.", waiting)
        if self.first_contrary is not None:
            does = "show that it does not hold at this scale" if self.reserve else "decide it"
            return f"About {self.first_contrary} seeds would {does}, if differences stay as seen."
        if self.seeds_wanted is not None:
            seeds = f"About {self.seeds_wanted} seeds would decide it, if differences stay as seen."
            return sentences(seeds, waiting)
        cases = f" with the test cases of {self.hopeless}" if self.hopeless else ""
        return f"No number of seeds decides it{cases}, if differences stay as seen."


PLURAL = {"holds": "hold", "fails": "fail", "holds in part": "hold in part"}


def count_verdicts(verdicts: Iterable[str], what: str) -> str:
    """``12 claims: 9 hold, 2 fail, 1 not decided``"""
    counts = Counter(verdicts)
    order = [*PLURAL, *(each for each in counts if each not in PLURAL)]
    summary = ", ".join(
        f"{counts[each]} {PLURAL.get(each, each)}" for each in order if counts[each]
    )
    return f"{counts.total()} {what}: {summary}" if counts else f"0 {what}"


def sentences(*texts: str) -> str:
    """What is said one after the other, with a full stop after each where it has none."""
    said = [text.strip() for text in texts if text.strip()]
    return " ".join(text if text[-1] in ".:;!?" else f"{text}." for text in said)


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
    needs_full: str = ""
    """why smaller models, easier data or fewer epochs may support it, and cannot contradict it"""

    @property
    def published(self) -> dict[str, dict[str, str]]:
        """The paper's own numbers for these rows, as printed: by row and column."""
        printed = RECIPES[self.table].published
        return {row: printed[row] for group in self.rows for row in group if row in printed}

    def decide(self, scores: Scores, pools: Pools | None = None, scale: str = "full") -> Verdict:
        """The verdict from what was trained; not decided where its table has no results."""
        if not scores.get(self.table):
            return Verdict("not decided", f"needs the results of '{self.table}'")
        pool = {} if pools is None else pools[self.table]
        evidence = Evidence(RECIPES[self.table], scores[self.table], self.rows, pools=pool)
        verdict = self.rule(evidence)
        if scale == "full":
            return verdict
        if verdict.holds == "fails" and self.needs_full:
            return replace(verdict, holds="not decided", limit=self.needs_full)
        return replace(verdict, reserve=self.needs_full)

    def decide_by_paper(self) -> Verdict | None:
        """The verdict by the numbers that the paper prints; None where it prints none for it."""
        if not self.published:
            return None
        recipe = RECIPES[self.table]
        return self.rule(Evidence(recipe, printed_scores(recipe), self.rows, paired=False))


CLAIMS: Registry[Claim] = Registry("claim")


def claim(where: str, *, right: str = "") -> Callable[[Check], Check]:
    """Register the decorated check as a claim; its docstring is what the paper says."""

    def register(check: Check) -> Check:
        name = ("erratum-" if right else "") + check.__name__.replace("_", "-")
        statement = " ".join((check.__doc__ or "").split())
        CLAIMS.register(name, Claim(name, statement, where, check, right))
        return check

    return register


def judged(holds: bool, effect: str, detail: str = "", *, only: str = "") -> Verdict:
    """The verdict of a check that decides; ``only`` says for which part of the statement it does.

    What is true with a limit that the statement does not name holds in part.
    """
    if not holds:
        return Verdict("fails", effect, detail)
    if only:
        return Verdict("holds in part", effect, f"Only {only} {detail}".rstrip())
    return Verdict("holds", effect, detail)
