"""What a reviewer asks first, on two screens: what is confirmed, contradicted and open."""

import math
import statistics
from collections.abc import Iterator, Mapping

from s4d_torch.data.task import TASKS
from s4d_torch.paper.claims import CLAIMS, FINDINGS, Finding, Verdict
from s4d_torch.paper.claims.claim import count_verdicts
from s4d_torch.paper.claims.comparison import Evidence, Gain
from s4d_torch.paper.claims.findings.ablations import COUNTERPARTS
from s4d_torch.paper.claims.rules import MARGIN
from s4d_torch.paper.experiments.cost import WORDS
from s4d_torch.paper.recipes import RECIPES, Column, Recipe, describe_reduction, printed_number
from s4d_torch.paper.report.page import Heading, Page, PageBlock, Paragraph, Table
from s4d_torch.paper.results import Cell, Results
from s4d_torch.training.metrics import METRICS

MOST_SHOWN = 2  # comparisons beside a finding; of more, how many and the weakest
# The tables with S4 and S4D, and what their rows end in.
HEADLINE = {"trainable": ", trained", "longer": "", "large": "", "speech-ar": "", "lra": ""}

JUDGEMENT = (
    "Rows are compared seed by seed and case by case. A difference is in points of accuracy, or in "
    "per cent of an RMSE (100 times the logarithm of a ratio), positive where the first row is "
    "better; ± is half of its 95 % interval. In it are the spread over seeds, one for all rows of "
    "a table that spread alike and their own for those that spread more, and not less than that of "
    "the difference; and the error of the test cases, of which windows of one patient and clips of "
    "one speaker count as one. Where a table shows an accuracy on validation, test cases are "
    "counted too. A finding holds where every comparison supports it beyond noise, and fails where "
    "one contradicts it beyond the noise of as many comparisons; unless it speaks of every "
    "dataset, it is not held up by one whose test cases are too few to show the margin, whatever "
    "the seeds. Rows are alike where the whole interval lies within 2 points, or 10 % of an RMSE; "
    "one is far better, and the other poor, where it lies beyond. That margin is ours, as the "
    "paper names none. One seed decides nothing. Each verdict may be wrong once in twenty: nothing "
    "is corrected for their number. Where seeds were added because a finding was open, it "
    "was looked at more than once: with two, three and four seeds it is wrong up to once in ten "
    "times."
)

Judged = list[tuple[Finding, Verdict]]


def make_reproduction(results: Results, report: str = "report.md") -> Page:
    """The regime, S4D against S4, then what is confirmed, contradicted and open.

    ``report`` is where the whole report is, seen from this page.
    """
    by_verdict: dict[str, Judged] = {"holds": [], "fails": [], "limited": [], "not decided": []}
    for finding in FINDINGS.values():
        verdict = finding.decide(results.scores, results.pools, results.scale)
        by_verdict["limited" if verdict.limit else verdict.holds].append((finding, verdict))
    page = Page("What of the paper is reproduced", list(_beginning(results, report, by_verdict)))
    page.add(*_headline(results))
    page.add(*_decided("Confirmed", by_verdict["holds"]))
    page.add(*_decided("Contradicted", by_verdict["fails"]))
    page.add(*_limited(by_verdict["limited"]))
    page.add(*_open(by_verdict["not decided"]))
    page.add(Heading("How rows are compared"), Paragraph(JUDGEMENT))
    page.add(*_without_training(report))
    return page


def _beginning(
    results: Results, report: str, by_verdict: Mapping[str, Judged]
) -> Iterator[PageBlock]:
    """What was run, what is decided by it, and what it learned."""
    done = [run for run in results.in_tables() if run.error is None]
    if not done:
        yield Paragraph(f"Nothing was run at scale '{results.scale}' yet.")
        return
    hours = sum(run.seconds for run in done) / 3600
    commits = sorted({str(run.environment.get("commit"))[:7] for run in done})
    yield Paragraph(
        f"{len(done)} runs at scale '{results.scale}', {hours:.0f} hours of training by one "
        f"process, at {', '.join(commits)}. The scale shrinks models, epochs and what else the "
        "table names until a run takes minutes of one thread: levels are not the paper's, and only "
        "differences between rows are read. Every number is in a result file with its commit, its "
        "data and the fate of each test case; tables, curves and the commands that made them are "
        f"in [the whole report]({report})."
    )
    not_run = sum(verdict.standing == "not run" for _, verdict in by_verdict["not decided"])
    counts = {name: len(judged) for name, judged in by_verdict.items()}
    yield Paragraph(
        f"Findings that need training: {counts['holds']} confirmed, {counts['fails']} "
        f"contradicted, {counts['limited']} not so at this scale, "
        f"{counts['not decided'] - not_run} compared and still open, {not_run} not run yet, of "
        f"{len(FINDINGS)}. {_names(by_verdict)} ± is half of a 95 % interval everywhere below; how "
        "rows are compared is said at the end."
    )
    header = ["task", "model", "changed besides", "scores on", "best row", "in the paper"]
    header += ["one answer to all", "linear regression"]
    yield Table(header, list(_regime(results)), "What is learned at this scale")


def _names(by_verdict: Mapping[str, Judged]) -> str:
    """``Confirmed: rand-is-poor. Contradicted: other-laws.``"""
    titles = {"Confirmed": "holds", "Contradicted": "fails", "Not so at this scale": "limited"}
    return " ".join(
        f"{title}: {', '.join(finding.name for finding, _ in by_verdict[name])}."
        for title, name in titles.items()
        if by_verdict[name]
    )


def _regime(results: Results) -> Iterator[list[str]]:
    """The best row of each task and size of a model."""
    best: dict[tuple[str, ...], tuple[float, list[str]]] = {}
    for table in results.tables.values():
        for row, cells in table.cells.items():
            for cell in cells.values():
                if cell.finished and cell.column.value in ("test", "validation"):
                    others = _others(table.recipe, cell, results.scale)
                    key = cell.column.name, _size(cell), others, cell.column.value
                    level = statistics.fmean(cell.values) * (1 if cell.is_accuracy else -1)
                    if key not in best or level > best[key][0]:
                        shown = [*key, f"{row} {cell}", _in_paper(table.recipe, cell.column)]
                        best[key] = level, [*shown, *_to_beat(cell, results)]
    yield from (shown for _, shown in best.values())


def _size(cell: Cell) -> str:
    """``4 x 64, N = 32, 2 epochs``"""
    config = cell.finished[0].config
    model, epochs = config["model"], config["training"]["epochs"]
    return f"{model['n_layers']} x {model['d_model']}, N = {model['d_state']}, {epochs} epochs"


def _others(recipe: Recipe, cell: Cell, scale: str) -> str:
    """What else the scale changes: ``sample_rate 25, batch_size 16``."""
    full, reduced = (recipe.base(cell.column.task, each) for each in ("full", scale))
    changed = describe_reduction(
        full, reduced, without=("n_layers", "d_model", "d_state", "epochs")
    )
    words = len(cell.finished[0].data.get("classes", ())) if cell.column.task == "sc35" else WORDS
    fewer = f"{words} of {WORDS} words" if words < WORDS else ""
    return ", ".join(part for part in (fewer, changed) if part)


def _in_paper(recipe: Recipe, column: Column) -> str:
    """What the paper prints for models of this setting: ``84.78 to 85.37``, or nothing."""
    same = (other for other in RECIPES.values() if other.base is recipe.base)
    cells = (
        row[each.name]
        for other in same
        for each in other.columns
        if (each.task, each.value) == (column.task, column.value)
        for row in other.published.values()
    )
    found = sorted(number[0] for cell in cells if (number := printed_number(cell)))
    return f"{found[0]:g} to {found[-1]:g}" if found else ""


def _to_beat(cell: Cell, results: Results) -> tuple[str, str]:
    """What one answer to all scores on the same cases, and a linear map of any run on this data."""
    first, split = cell.finished[0], cell.column.value
    show = METRICS[TASKS[cell.column.task].metric].show
    on_same = (run for run in results.runs.values() if run.data == first.data)
    linear = next((run.linear for run in on_same if run.linear), {})
    constant = show(first.constant[split]) if first.constant else ""
    return constant, show(linear[split]) if linear else ""


def _headline(results: Results) -> list[PageBlock]:
    """Each S4D against the S4 it approximates, dataset by dataset."""
    rows = []
    for name, ending in HEADLINE.items():
        table = results.tables[name]
        evidence = Evidence(table.recipe, table.scores, pools=results.pools[name])
        pairs = [(ours + ending, theirs + ending) for ours, theirs in COUNTERPARTS]
        for column in evidence.columns():
            if found := {gain.rows: gain for gain in evidence.gains(pairs, [column])}:
                shown = (_standing(found[pair]) if pair in found else "–" for pair in pairs)
                seeds = max(gain.seeds for gain in found.values())
                size = _size(table.cells[next(iter(found))[0]][column.name])
                rows.append([column.name, table.recipe.where, size, str(seeds), *shown])
    if not rows:
        return []
    header = ["dataset", "as in", "model", "seeds", *(f"{a} over {b}" for a, b in COUNTERPARTS)]
    caption = (
        "How much better S4D is: ahead or behind where 0 is outside of the interval, competitive "
        "where all of it is better than 2 points behind, or 10 % of an RMSE"
    )
    return [Heading("S4D against S4"), Table(header, rows, caption)]


def _standing(gain: Gain) -> str:
    """``-3.1 ± 2.6, behind``: how one comparison looks by itself."""
    noise = gain.noise()
    low, high, margin = gain.points - noise, gain.points + noise, MARGIN * gain.unit
    words = ["ahead"] if low > 0 else ["behind"] if high < 0 else []
    words += ["competitive"] if -margin < low <= 0 else []
    return f"{gain.interval}, {' but '.join(words) or 'open'}"


def _decided(title: str, judged: Judged) -> list[PageBlock]:
    heading = Heading(f"{title}: {len(judged)} of {len(FINDINGS)} findings")
    if not judged:
        return [heading]
    rows = [[f.name, f.statement, _here(v), _not_seen(v), _by_paper(f)] for f, v in judged]
    header = ["finding", "as read here", "what decides it", "not seen on", "by the paper's numbers"]
    return [heading, Table(header, rows, f"{title} by our runs")]


def _limited(judged: Judged) -> list[PageBlock]:
    """What does not hold here, of which the scale may be the reason."""
    heading = Heading(f"Not so at this scale: {len(judged)} of {len(FINDINGS)} findings")
    if not judged:
        return []
    rows = [[f.name, f.statement, _here(v), v.limit, _by_paper(f)] for f, v in judged]
    header = ["finding", "as read here", "what speaks against it", "why it may still be so"]
    header.append("by the paper's numbers")
    return [heading, Table(header, rows, "Contradicted here, which does not contradict the paper")]


def _here(verdict: Verdict) -> str:
    """Each comparison that decided, or of many how many there are, the weakest and the largest."""
    if not (gains := verdict.deciding):
        return verdict.effect
    if len(gains) <= MOST_SHOWN:
        return "; ".join(map(_compared, gains))
    weakest = min(gains, key=lambda gain: abs(gain.points) / (gain.noise() or 1.0))
    strongest = max(gains, key=lambda gain: abs(gain.points) / gain.unit)
    both = f"from {_compared(weakest)} to {_compared(strongest)}"
    return f"{len(gains)} comparisons, {both}"


def _not_seen(verdict: Verdict) -> str:
    """The datasets that have no part in a verdict: not run, or with too few cases to tell."""
    blind = (f"{gain.column}, too few cases: {gain.interval}" for gain in verdict.aside)
    return "; ".join((*verdict.unseen, *blind))


def _compared(gain: Gain) -> str:
    """``S4D-Inv over S4D-Real, BIDMC (SpO2): +24.1% ± 9.0``"""
    return f"{gain.rows[0]} over {gain.rows[1]}, {gain.column}: {gain.interval}"


def _by_paper(finding: Finding) -> str:
    verdict = finding.decide_by_paper()
    return "no numbers printed" if verdict is None else verdict.holds


def _open(judged: Judged) -> list[PageBlock]:
    """What is not decided: a line for each, with the comparison that waits."""
    blocks: list[PageBlock] = [Heading(f"Open: {len(judged)} of {len(FINDINGS)} findings")]
    rows = [
        [finding.name, _takes(verdict), _furthest(verdict), _by_paper(finding)]
        for finding, verdict in judged
        if verdict.standing != "not run"
    ]
    if rows:
        header = ["finding", "would take", "the comparison that waits", "by the paper's numbers"]
        blocks.append(Table(header, rows, "Compared, and not decided"))
    if rest := [finding.name for finding, verdict in judged if verdict.standing == "not run"]:
        blocks.append(Paragraph(f"Not run yet: {', '.join(rest)}."))
    return blocks


def _takes(verdict: Verdict) -> str:
    """``3 seeds``, ``other test cases of BIDMC (SpO2)``, a larger scale, or what was not run."""
    if verdict.unlearned:
        return "a larger scale"
    if verdict.standing == "open whatever the seeds":
        return f"other test cases of {verdict.hopeless}"
    seeds = f"{verdict.seeds_wanted} seeds" if verdict.seeds_wanted else ""
    runs = f"runs of {'; '.join(verdict.missing)}" if verdict.missing else ""
    return "; ".join(part for part in (seeds, runs) if part)


def _furthest(verdict: Verdict) -> str:
    """The comparison that would contradict it first; or else the one that takes the most seeds."""
    if not verdict.deciding:
        return verdict.effect
    wanted = {
        (need.rows, need.column): (need.contrary, need.wanted or math.inf) for need in verdict.needs
    }

    def place(gain: Gain) -> tuple[bool, float]:
        contrary, seeds = wanted.get((gain.rows, gain.column), (False, 0.0))
        return contrary, -seeds if contrary else seeds

    return _compared(max(verdict.deciding, key=place))


def _without_training(report: str) -> list[PageBlock]:
    """How many claims of theory hold, and how many errata there are."""
    claims = [claim for claim in CLAIMS.values() if not claim.right]
    counted = count_verdicts((claim.check().holds for claim in claims), "claims of theory")
    return [
        Heading("What needs no training"),
        Paragraph(
            f"{counted}. Beside them {len(CLAIMS) - len(claims)} printed formulas, numbers or "
            "captions are wrong. Each claim with its numbers, and each erratum with what is right, "
            f"is in [the whole report]({report})."
        ),
    ]
