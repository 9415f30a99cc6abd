"""What a dataset holds, for people to read: a few lines before training, or tables."""

from collections import Counter

from rich.console import Console
from rich.markup import escape

from s4d_torch.cli.common.display import plain_table, say
from s4d_torch.data.summary import ChannelSummary, DataSummary, SplitSummary
from s4d_torch.training.reports.describe import plural

MOST_CLASSES, MOST_CHANNELS = 12, 8  # named in a line
MOST_ROWS = 40  # of a table


def short_lines(summary: DataSummary) -> list[str]:
    """Classes or targets, lengths and channels."""
    splits = summary.splits.values()
    totals: Counter[str] = Counter()
    for split in splits:
        totals.update(split.classes)
    lines = [_classes(totals)] if totals else []
    shortest, longest = min(x.shortest for x in splits), max(x.longest for x in splits)
    if shortest < longest:
        median = summary.splits["train"].median
        lines.append(f"lengths {shortest:,} to {longest:,}, median {median:,.0f}")
    if named := summary.channels[:MOST_CHANNELS]:
        more = len(summary.channels) - len(named)
        listed = ", ".join(map(_range, named))
        lines.append(f"values {listed}{f' and {more:,} more' if more else ''}")
    if all(split.groups is not None for split in splits):
        groups = ", ".join(f"{split.groups} in {name}" for name, split in summary.splits.items())
        lines.append(f"groups {groups}")
    return lines + [f"note: {note}" for note in summary.notes]


def show_summary(summary: DataSummary, console: Console) -> None:
    """All of it."""
    table = plain_table("split", "cases", "samples", "median", title="Data", padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    grouped = any(split.groups is not None for split in summary.splits.values())
    if grouped:
        table.add_column("groups", justify="right")
    table.add_column("repeated", justify="right")
    numbers = any(split.targets is not None for split in summary.splits.values())
    if numbers:
        table.add_column("targets")
    for name, split in summary.splits.items():
        groups = [str(split.groups)] if grouped else []
        length = f"{split.shortest:,}"
        if split.longest > split.shortest:
            length += f" to {split.longest:,}"
        cells = [f"{split.cases:,}", length, f"{split.median:,.0f}", *groups, str(split.repeated)]
        table.add_row(name, *cells, *([_targets(split)] if numbers else []))
    console.print(table)
    _show_classes(summary.splits, console)
    if summary.channels:
        _show_channels(summary.channels, console)
    if summary.sample_rate is not None:
        say(console, f"sampled at {summary.sample_rate:g} Hz")
    for shared in summary.shared:
        both = f"{shared.second} that {shared.first} has too"
        say(console, f"{plural(shared.cases, 'case')} of {both}, by content")
    if summary.looked_at < summary.cases:
        looked = f"{summary.looked_at:,} of {summary.cases:,} cases"
        say(console, f"values and repetitions are those of {looked}, evenly spaced")
    for note in summary.notes:
        say(console, f"note: {note}")
    for warning in summary.warnings:
        say(console, f"warning: {warning}")


def _show_classes(splits: dict[str, SplitSummary], console: Console) -> None:
    names = list(splits["train"].classes)
    if not names:
        return
    table = plain_table("class", *splits, padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names[:MOST_ROWS]:
        table.add_row(escape(name), *(f"{split.classes[name]:,}" for split in splits.values()))
    console.print(table)
    if len(names) > MOST_ROWS:
        say(console, f"and {len(names) - MOST_ROWS:,} more classes")


def _show_channels(channels: list[ChannelSummary], console: Console) -> None:
    table = plain_table("channel", "smallest", "largest", "missing", "", padding=(0, 1))
    for column in table.columns[1:4]:
        column.justify = "right"
    for each in channels[:MOST_ROWS]:
        numbers = f"{each.low:.4g}", f"{each.high:.4g}", f"{each.missing:,}"
        table.add_row(escape(each.name), *numbers, _remark(each))
    console.print(table)
    if len(channels) > MOST_ROWS:
        say(console, f"and {len(channels) - MOST_ROWS:,} more channels")


def _remark(channel: ChannelSummary) -> str:
    if channel.constant:
        return "constant"
    return "the same all through each case" if channel.fixed else ""


def _range(channel: ChannelSummary) -> str:
    remark = f" ({found})" if (found := _remark(channel)) else ""
    return f"{channel.name} {channel.low:.3g} to {channel.high:.3g}{remark}"


def _targets(split: SplitSummary) -> str:
    if split.targets is None:
        return ""
    low, mean, high = split.targets
    return f"{low:.4g} to {high:.4g}, mean {mean:.4g}"


def _classes(counts: dict[str, int]) -> str:
    if len(counts) > MOST_CLASSES:
        few, most = min(counts.values()), max(counts.values())
        return f"classes {len(counts):,}, with {few:,} to {most:,} cases each"
    return "classes " + ", ".join(f"{name} {count:,}" for name, count in counts.items())
