"""One page about a forecast: the future with its interval, and what tests say of it."""

from collections.abc import Sequence

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.comparison import Comparison
from s4d_torch.paper.report.chart import Line
from s4d_torch.paper.report.page import Chart, Code, Heading, Page, Paragraph, Table

SHOWN = 4  # times the horizon that is shown of the past


def forecast_page(
    title: str,
    command: str,
    targets: Sequence[str],
    past: Array,
    quantiles: Array,
    mean: Array,
    found: Comparison,
) -> Page:
    """past (time, targets), mean (horizon, targets), quantiles (horizon, targets, low and high)."""
    page = Page(title)
    page.add(Code(command), Heading("Forecast"))
    horizon, rows = len(mean), len(past)
    first = max(0, rows - SHOWN * horizon)
    ahead = list(range(rows, rows + horizon))
    for i, name in enumerate(targets):
        lines = [
            Line("past", list(range(first, rows)), past[first:, i].tolist()),
            Line("forecast", ahead, mean[:, i].tolist()),
            Line("5 %", ahead, quantiles[:, i, 0].tolist()),
            Line("95 %", ahead, quantiles[:, i, 1].tolist()),
        ]
        page.add(Chart(lines, "row", name, f"{name}: the next {horizon} rows"))
    page.add(Heading("Test"), _scores(found), _errors(found), *_last_test(found, targets, past))
    return page


def _scores(found: Comparison) -> Table:
    rows = [
        [
            score.method,
            f"{score.mse:.4g}",
            f"{score.mae:.4g}",
            "-" if score.coverage is None else f"{100 * score.coverage:.1f}%",
        ]
        for score in found.scores
    ]
    return Table(
        ["method", "MSE", "MAE", "90% interval covers"],
        rows,
        f"{len(found.test.origins)} forecasts from row {found.start} on, none of which was learned "
        f"from; seasonal naive repeats the last {found.season} rows",
    )


def _errors(found: Comparison) -> Chart:
    test = found.test
    steps = list(range(1, test.actual.shape[1] + 1))
    own = np.abs(test.forecasts - test.actual).mean((0, 2))
    naive = np.abs(found.naive - test.actual).mean((0, 2))
    lines = [Line("S4DForecaster", steps, own.tolist())]
    lines.append(Line("seasonal naive", steps, naive.tolist()))
    return Chart(lines, "steps ahead", "mean absolute error", "How errors grow with the distance")


def _last_test(found: Comparison, targets: Sequence[str], past: Array) -> list[Chart | Paragraph]:
    """The last forecast of the test beside what came."""
    test = found.test
    horizon = test.actual.shape[1]
    first = int(test.origins[-1, 1]) + found.start - found.model.window_
    steps = list(range(first, first + horizon))
    before = list(range(max(0, first - horizon), first + horizon))
    charts: list[Chart | Paragraph] = [
        Paragraph("The last forecast of the test, beside what came:")
    ]
    for i, name in enumerate(targets):
        lines = [
            Line("what came", before, past[before[0] : first + horizon, i].tolist()),
            Line("forecast", steps, test.forecasts[-1, :, i].tolist()),
            Line("seasonal naive", steps, found.naive[-1, :, i].tolist()),
        ]
        charts.append(Chart(lines, "row", name, f"{name} from row {first} on"))
    return charts
