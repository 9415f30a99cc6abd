"""The verdicts of the report: what is decided by what was run, each finding, each claim."""

from collections.abc import Sequence

from s4d_torch.paper.claims import FINDINGS, Finding, judge
from s4d_torch.paper.claims.claim import count_verdicts, sentences
from s4d_torch.paper.report.page import Heading, PageBlock, Paragraph, Table
from s4d_torch.paper.report.regime import best_rows, size
from s4d_torch.paper.results import Results

STANDING = {
    "holds": "Holds",
    "fails": "Fails",
    "open for more seeds": "More seeds would decide, how many is said below",
    "open for more runs": "Waiting for results of other datasets or rows",
    "open whatever the seeds": "Not to be decided with these test cases, by any number of seeds, "
    "if differences stay as seen",
    "open at this scale": "Not so here, and the scale may be why",
    "nothing learned": "Run, and nothing was learned that could be compared",
    "not run": "Not run",
}
BY_PAPER = (
    "The paper's own verdict is the same rule on the numbers it prints, taken as three seeds each. "
    "One without a deviation is taken to spread as the others of its column do, or where none of "
    "them has one, as the widest of its table."
)
JUDGEMENT = (
    "Rows are compared seed by seed and case by case. A difference is in points of accuracy, or in "
    "per cent of an RMSE (100 times the logarithm of a ratio), positive where the first row is "
    "better; ± is half of its 95 % interval. In it are the spread over seeds, one for all rows of "
    "a table that spread alike and their own for those that spread more, and not less than that of "
    "the difference; and the error of the test cases, of which windows of one patient and clips of "
    "one speaker count as one; of speech each seed tests other speakers, whose error is in the "
    "spread over seeds. Where a table shows an accuracy on validation, test cases are counted too. "
    "A finding holds where every comparison supports it beyond noise, and fails where one "
    "contradicts it beyond the noise of as many comparisons; unless it speaks of every dataset, it "
    "is not held up by one whose test cases are too few to show the margin, whatever the seeds. "
    "Rows are alike where the whole interval lies within 2 points, or 10 % of an RMSE; one is far "
    "better, and the other poor, where it lies beyond. That margin is ours, as the paper names "
    "none. One seed decides nothing. Each verdict may be wrong once in twenty: nothing is "
    "corrected for their number. Where seeds were added because a finding was open, it was looked "
    "at more than once: with two, three and four seeds it is wrong up to once in nine times. A row "
    "that spreads far more than all others, but not between the two seeds it has, is told apart "
    "wrongly in up to one of six. Rows are not alike, and one not competitive, where their "
    "difference is beyond noise and as it stands beyond the margin; its interval may reach within. "
    "What is said of almost all holds where more than three quarters of the comparisons support "
    "it, of often more than half, of what may be any one beyond the noise of all. A point, where "
    "the paper says so, is the margin on ListOps; a row learns Path-X from 5 points above a guess "
    "on, and few points at half the rate are a tenth of the score, most of it a half."
)


def overview_blocks(results: Results) -> list[PageBlock]:
    """What was run, and what is decided."""
    done = [run for run in results.in_tables() if run.error is None]
    if not done:
        return []
    hours = sum(run.seconds for run in done) / 3600
    tasks = ", ".join(dict.fromkeys(str(run.config["task"]) for run in done))
    seeds = ", ".join(map(str, results.seeds))
    standing: dict[str, list[str]] = {name: [] for name in STANDING}
    for name, finding in FINDINGS.items():
        standing[finding.decide(results.scores, results.pools, results.scale).standing].append(name)
    decided = len(standing["holds"]) + len(standing["fails"])
    return [
        Heading("What was run, and what is decided"),
        Paragraph(
            f"{len(done)} runs at scale '{results.scale}', {hours:.1f} hours of training by one "
            f"process: {tasks}; seeds {seeds}. Of {len(FINDINGS)} findings that need training "
            f"{decided} are decided, {len(standing['not run'])} were not run, the others are open."
        ),
        *(
            Paragraph(f"{words} ({len(standing[name])}): {', '.join(standing[name])}.")
            for name, words in STANDING.items()
            if standing[name]
        ),
        _regime(results),
    ]


def _regime(results: Results) -> Table:
    """What models learn at this scale, and what else it changes."""
    header = ["task", "model", "changed besides", "scores on", "best row", "aim", "in the paper"]
    header += ["one answer to all", "linear regression"]
    rows = [
        [
            *(found.cell.column.name, size(found.cell), found.changed, found.cell.column.value),
            *(f"{found.row} {found.cell}", found.aim, found.in_paper, found.one_answer),
            found.linear(results),
        ]
        for found in best_rows(results)
    ]
    return Table(header, rows, "What is learned at this scale")


def claim_blocks(results: Results) -> list[PageBlock]:
    rows, findings = [], []
    for stated, verdict in judge(results):
        statement = f"{stated.statement} ({stated.where})"
        numbers = sentences(verdict.effect, verdict.detail)
        if isinstance(stated, Finding):
            statement = f'{stated.statement} ({stated.where}: "{stated.quote}")'
            paper = stated.decide_by_paper()
            theirs = "" if paper is None else f"By the paper: {paper.effect}"
            numbers = sentences(numbers, verdict.what_it_takes, theirs)
            by_paper = "no numbers printed" if paper is None else paper.holds
            findings.append([stated.name, verdict.holds, by_paper, statement, numbers])
            continue
        if stated.right:
            printed, right = sentences(stated.statement), sentences(stated.right)
            statement = f"Printed: {printed} Right: {right} ({stated.where})"
        rows.append([verdict.holds, statement, numbers])
    heading = ["finding", "by our runs", "by the paper's numbers", "what it says", "numbers"]
    return [
        Heading("Findings of the experiments"),
        Paragraph(f"{JUDGEMENT} {BY_PAPER}"),
        Table(heading, findings, _counted(findings, 1, "findings, by our runs")),
        Heading("Claims that need no training"),
        Table(["verdict", "claim", "numbers"], rows, _counted(rows, 0, "claims")),
    ]


def _counted(rows: Sequence[Sequence[str]], place: int, what: str) -> str:
    return count_verdicts((row[place] for row in rows), what)
