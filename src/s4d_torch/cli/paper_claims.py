"""The claims of the paper as a table: what holds, what fails, by how much."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from s4d_torch.paper.claims.all import Claim, Finding, Results, Verdict, judge

COLORS = {"holds": "green", "fails": "red", "not decided": "yellow"}


def print_claims(console: Console, results: Results | None = None) -> Counter[str]:
    """Check every claim and print it with its verdict; how many there are of each verdict.

    ``results`` are those of the paper's tables; findings without them stay undecided.
    """
    counts: Counter[str] = Counter()
    table = Table(
        *("claim", "verdict", "numbers"),
        title="Claims of the paper",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        padding=(0, 1, 1, 0),
    )
    table.columns[1].no_wrap = True
    for column, ratio in ((0, 5), (2, 6)):
        table.columns[column].ratio = ratio
    table.expand = True
    for stated, verdict in judge(results):
        counts[verdict.holds] += 1
        table.add_row(_statement(stated), _holds(verdict), _numbers(verdict))
    console.print(table)
    summary = ", ".join(f"{count} {holds}" for holds, count in sorted(counts.items()))
    console.print(f"{counts.total()} claims: {summary}", highlight=False)
    return counts


def _statement(stated: Claim | Finding) -> Text:
    text = Text(stated.name, style="bold")
    printed = isinstance(stated, Claim) and stated.right
    text.append(f"\n{'printed: ' if printed else ''}{stated.statement}", style="not bold")
    if printed:
        text.append(f"\nright: {printed}", style="not bold")
    text.append(f"\n{stated.where}", style="not bold dim")
    return text


def _holds(verdict: Verdict) -> Text:
    return Text(verdict.holds, style=COLORS[verdict.holds])


def _numbers(verdict: Verdict) -> Text:
    text = Text(verdict.effect)
    if verdict.detail:
        text.append(f"\n{verdict.detail}", style="dim")
    return text
