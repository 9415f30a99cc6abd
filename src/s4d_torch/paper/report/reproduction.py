"""What a reviewer asks first, on two screens: what is confirmed, contradicted and open."""

import math
from collections.abc import Iterator, Mapping

from s4d_torch.paper.claims import CLAIMS, FINDINGS, Finding, Verdict
from s4d_torch.paper.claims.claim import count_verdicts, sentences
from s4d_torch.paper.claims.comparison import Evidence, Gain
from s4d_torch.paper.claims.findings.ablations import COUNTERPARTS
from s4d_torch.paper.claims.rules import MARGIN
from s4d_torch.paper.report.page import Bullets, Heading, Page, PageBlock, Paragraph, Table
from s4d_torch.paper.report.regime import BestRow, best_rows, size
from s4d_torch.paper.results import Results

MOST_SHOWN = 2  # comparisons beside a finding; of more, how many and the weakest
# The tables with S4 and S4D, and what their rows end in.
HEADLINE = {"trainable": ", trained", "longer": "", "large": "", "speech-ar": "", "lra": ""}

IN_SHORT = (
    "Rows are compared seed by seed and case by case; ± is half of a 95 % interval, positive where "
    "the first row is better, in points of accuracy or per cent of an RMSE. In it are the spread "
    "over seeds and the error of the test cases, of which windows of one patient and clips of one "
    "speaker count as one; of speech each seed tests other speakers. A finding holds where every "
    "comparison supports it beyond noise, and fails where one contradicts it beyond the noise of "
    "as many. Rows are alike where the whole interval lies within 2 points, or 10 % of an RMSE, "
    "and not alike where a difference beyond noise is larger; one is far better, and the other "
    "poor, where the interval lies beyond: a margin of ours, as the paper names none. One seed "
    "decides nothing. Each verdict may be wrong once in twenty, as nothing is corrected for the "
    "number of findings; once in nine where seeds were added because it was open, and once in six "
    "for a row that alone spreads far more."
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
    page.add(*_decided("Not so at this scale", by_verdict["limited"]))
    page.add(*_open(by_verdict["not decided"]))
    page.add(Heading("How rows are compared"), Paragraph(IN_SHORT), _without_training(report))
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
    not_run = sum(verdict.standing == "not run" for _, verdict in by_verdict["not decided"])
    counts = {name: len(judged) for name, judged in by_verdict.items()}
    yield Paragraph(
        f"Of {len(FINDINGS)} findings that need training {counts['holds']} are confirmed, "
        f"{counts['fails']} contradicted, {counts['limited']} not so at this scale, "
        f"{counts['not decided'] - not_run} compared and open, {not_run} not run, by {len(done)} "
        f"runs of {hours:.0f} hours of one process in all, at scale '{results.scale}': models, "
        "epochs and some of the data are so small that a run takes minutes. Levels are not the "
        "paper's; only differences between rows are read. Every number is in a result file with "
        "its commit, its data and the fate of each test case; what the scale changes, tables, "
        f"curves and the commands that made them are in [the whole report]({report})."
    )
    best = {found.cell.column.name: found for found in sorted(best_rows(results), key=_better)}
    learned = "; ".join(f"{name} {_learned(found)}" for name, found in best.items())
    rows = f"The best rows, in per cent, of vital signs an RMSE: {learned}"
    yield Paragraph(sentences(rows, *map(_drawn, best.values())))


def _better(found: BestRow) -> float:
    return found.level


def _drawn(found: BestRow) -> str:
    """What stands for the pictures of Path-X, where they are not the published ones."""
    data = found.cell.finished[0].config["data"]
    if found.cell.column.task != "pathx" or data["source"] != "generated":
        return ""
    return (
        f"Path-X is drawn here, at {data['size']} x {data['size']}, and far easier than published"
    )


def _learned(found: BestRow) -> str:
    """``61.93 (paper 84.78 to 85.37, one answer to all 9.34%)``"""
    paper = f"paper {found.in_paper}" if found.in_paper else ""
    answer = f"one answer to all {found.one_answer}" if found.one_answer else ""
    beside = ", ".join(part for part in (paper, answer) if part)
    shown = str(found.cell).partition(" ")[0]
    return f"{shown} ({beside})" if beside else shown


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
                model = size(table.cells[next(iter(found))[0]][column.name])
                rows.append([column.name, f"{model}, {_seeds(seeds)}", *shown])
    if not rows:
        return []
    header = ["dataset", "model", *(f"{a} over {b}" for a, b in COUNTERPARTS)]
    caption = (
        "Behind or ahead where 0 is outside of the interval; competitive where all of it is better "
        "than 2 points behind, or 10 % of an RMSE."
    )
    return [Heading("S4D against S4"), Table(header, rows, caption)]


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count > 1)}"


def _standing(gain: Gain) -> str:
    """``-3.1 ± 2.6, behind``: how one comparison looks by itself."""
    noise = gain.noise()
    low, high, margin = gain.points - noise, gain.points + noise, MARGIN * gain.unit
    words = ["ahead"] if low > 0 else ["behind"] if high < 0 else []
    words += ["competitive"] if -margin < low <= 0 else []
    return f"{gain.interval}, {' but '.join(words) or 'open'}"


def _decided(title: str, judged: Judged) -> list[PageBlock]:
    """What each finding says, what decides it, what that leaves out, and what the paper's numbers
    say of it.
    """
    if not judged:
        return [Heading(f"{title}: none")]
    items = [
        (
            finding.name,
            sentences(
                finding.statement, _here(verdict), _beside(verdict), _left_out(finding, verdict)
            ),
        )
        for finding, verdict in judged
    ]
    return [Heading(f"{title}: {len(judged)} of {len(FINDINGS)}"), Bullets(items)]


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


def _beside(verdict: Verdict) -> str:
    """What else was compared, of a finding that some of it contradicts."""
    if not verdict.beside:
        return ""
    if len(verdict.beside) <= MOST_SHOWN:
        return f"Beside it {'; '.join(map(_compared, verdict.beside))}"
    return f"Beside it {len(verdict.beside)} comparisons that do not contradict it"


def _left_out(finding: Finding, verdict: Verdict) -> str:
    """The datasets that have no part in a verdict: not run, or with too few cases to tell."""
    blind = (f"{gain.column}, too few cases: {gain.interval}" for gain in verdict.aside)
    unseen = "; ".join((*verdict.unseen, *blind))
    not_seen = f"Not seen on {unseen}" if unseen else ""
    limit = f"It may still be so: {verdict.limit}" if verdict.limit else ""
    paper = _by_paper(finding)
    return sentences(not_seen, limit, f"By the paper's numbers: {paper}" if paper else "")


def _compared(gain: Gain) -> str:
    """``S4D-Inv over S4D-Real, BIDMC (SpO2): +24.1% ± 9.0``"""
    return f"{gain.rows[0]} over {gain.rows[1]}, {gain.column}: {gain.interval}"


def _by_paper(finding: Finding) -> str:
    """``holds``, ``fails`` or ``open`` by the numbers that the paper prints, if it does."""
    verdict = finding.decide_by_paper()
    return "" if verdict is None else verdict.holds.replace("not decided", "open")


WAITS = {
    "open for more seeds": "More seeds would decide, if differences stay as seen",
    "open whatever the seeds": "No number of seeds would, with these test cases",
    "open for more runs": "Other datasets or rows are missing",
    "nothing learned": "Nothing was learned that could be compared",
    "not run": "Not run yet",
}


def _open(judged: Judged) -> list[PageBlock]:
    """What is not decided, by what it waits for, with the comparison that stands in the way."""
    items = []
    for standing, words in WAITS.items():
        found = [(finding, verdict) for finding, verdict in judged if verdict.standing == standing]
        shown = (
            f.name if standing == "not run" else f"{f.name} ({_takes(v)}{_waiting(v)})"
            for f, v in found
        )
        if found:
            items.append((f"{words} ({len(found)})", sentences(", ".join(shown))))
    printed: dict[str, list[str]] = {"holding": [], "failing": [], "open": []}
    words_for = dict(zip(("holds", "fails", "open"), printed, strict=True))
    for finding, verdict in judged:
        if verdict.standing != "not run" and (paper := _by_paper(finding)):
            printed[words_for[paper]].append(finding.name)
    said = "; ".join(f"{word}: {', '.join(names)}" for word, names in printed.items() if names)
    blocks: list[PageBlock] = [Heading(f"Open: {len(judged)} of {len(FINDINGS)}")]
    if any(verdict.standing != "not run" for _, verdict in judged):
        beside = "Beside each is the comparison that stands in its way"
        blocks.append(
            Paragraph(sentences(beside, f"By the paper's numbers {said}" if said else ""))
        )
    return [*blocks, Bullets(items)]


def _takes(verdict: Verdict) -> str:
    """``3 seeds and SC: ``, or nothing where what it waits for has been said."""
    if verdict.standing not in ("open for more seeds", "open for more runs"):
        return ""
    seeds = "" if verdict.short == 0 else _seeds(verdict.seeds_wanted or 0)
    if verdict.first_contrary is not None:
        return f"{seeds}, to be not so here: " if verdict.reserve else f"{seeds}: "
    missing = " and ".join(verdict.missing) if len(verdict.missing) < 3 else "most datasets"
    parts = (seeds if verdict.standing == "open for more seeds" else "", missing)
    return f"{' and '.join(part for part in parts if part)}: "


def _waiting(verdict: Verdict) -> str:
    """The interval of the comparison whose seeds are counted: the first that would contradict it,
    the last that has to support it, or else the one that takes the most.
    """
    if not verdict.deciding:
        return verdict.effect
    needs = {(need.rows, need.column): need for need in verdict.needs}
    turned = verdict.first_contrary is not None

    def place(gain: Gain) -> tuple[bool, float]:
        need = needs.get((gain.rows, gain.column))
        if need is None:
            return False, 0.0
        counted = need.wanted == verdict.seeds_wanted and need.contrary == turned
        return counted, need.wanted or math.inf

    found = max(verdict.deciding, key=place)
    return f"{found.column} {found.interval}"


def _without_training(report: str) -> PageBlock:
    """How many claims of theory hold, and how many errata there are."""
    claims = [claim for claim in CLAIMS.values() if not claim.right]
    counted = count_verdicts((claim.check().holds for claim in claims), "claims of theory")
    return Paragraph(
        f"What needs no training: {counted}. Beside them {len(CLAIMS) - len(claims)} printed "
        "formulas, numbers or captions are wrong. Each claim with its numbers, and each erratum "
        f"with what is right, is in [the whole report]({report})."
    )
