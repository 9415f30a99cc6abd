"""Which runs would decide what is open: one more seed where seeds still help, none elsewhere."""

from collections.abc import Collection

from s4d_torch.paper.claims.claim import Need, Verdict
from s4d_torch.paper.claims.findings import FINDINGS
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.recipes import RECIPES, Recipe
from s4d_torch.paper.results import Results


def next_experiments(results: Results, tables: Collection[str], most: int) -> list[Experiment]:
    """One more seed for each open comparison by which ``most`` seeds would decide a finding.

    Nothing is left where verdicts are settled, where it would take more seeds, and where no number
    of seeds would do: then those of one comparison would be spent for nothing.
    """
    found: dict[str, Experiment] = {}
    for finding in FINDINGS.values():
        if finding.table not in tables:
            continue
        verdict = finding.decide(results.scores, results.pools, results.scale)
        for need in _needs_that_count(verdict, most):
            more = _one_more(need, RECIPES[finding.table], results.scale)
            found |= {each.key: each for each in more if results.run_of(each) is None}
    return list(found.values())


def _needs_that_count(verdict: Verdict, most: int) -> list[Need]:
    """The comparisons whose seeds would make the verdict, with the fewest that would."""
    enough = verdict.seeds_wanted
    if enough is None or enough > most:
        return []
    against = verdict.first_contrary is not None
    return [
        need
        for need in verdict.needs
        if need.wanted is not None
        and need.wanted <= enough
        and need.seeds < most
        and (need.contrary or not against)
    ]


def _one_more(need: Need, recipe: Recipe, scale: str) -> list[Experiment]:
    """The runs of both rows, or of all forms of two models, up to a seed more than there are."""
    column = next(c for c in recipe.columns if c.name == need.column)
    models = [name for name in need.rows if name not in recipe.rows]  # of rows "S4D-Lin, frozen"
    rows = [row for row in recipe.rows if row in need.rows or row.rpartition(",")[0] in models]
    return [
        recipe.experiment(row, column, scale, seed)
        for seed in range(need.seeds + 1)
        for row in rows
        if (row, column.name) not in recipe.without
    ]
