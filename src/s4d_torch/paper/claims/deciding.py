"""Which runs would decide what is open: one more seed where seeds still help, none elsewhere."""

from collections.abc import Collection

from s4d_torch.paper.claims.claim import Need
from s4d_torch.paper.claims.findings import FINDINGS
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.recipes import RECIPES, Recipe
from s4d_torch.paper.results import Results


def next_experiments(results: Results, tables: Collection[str], most: int) -> list[Experiment]:
    """One more seed for each open comparison of these tables that ``most`` seeds would decide.

    Nothing is left where verdicts are settled, where it would take more seeds, and where no number
    of seeds would do.
    """
    found: dict[str, Experiment] = {}
    for finding in FINDINGS.values():
        if finding.table not in tables:
            continue
        for need in finding.decide(results.scores, results.pools, results.scale).needs:
            if need.wanted is not None and need.wanted <= most and need.seeds < most:
                more = _one_more(need, RECIPES[finding.table], results.scale)
                found |= {each.key: each for each in more if results.run_of(each) is None}
    return list(found.values())


def _one_more(need: Need, recipe: Recipe, scale: str) -> list[Experiment]:
    """The runs of both rows, or of all forms of two models, up to a seed more than there are."""
    column = next(c for c in recipe.columns if c.name == need.column)
    rows = [row for row in recipe.rows if row in need.rows or row.rpartition(",")[0] in need.rows]
    return [
        recipe.experiment(row, column, scale, seed)
        for seed in range(need.seeds + 1)
        for row in rows
        if (row, column.name) not in recipe.without
    ]
