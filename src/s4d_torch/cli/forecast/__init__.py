"""``s4d forecast``: the future of a table's columns."""

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from s4d_torch._progress import say
from s4d_torch.cli.common.console import as_json, plain_table
from s4d_torch.cli.common.flags import Switch, shown
from s4d_torch.cli.common.parsing import UsageError

Names = tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """Forecast columns of a table, with intervals, after a test against simpler methods.

    A model learns from the first rows and is tested on the last ones beside a linear model and
    seasonal naive; then it forecasts what follows the table. Rows are equally spaced in time, and
    empty cells are interpolated with --missing interpolate.
    """

    table: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
    """a .csv or .tsv file with a header, one row for each moment"""
    target: Annotated[Names, tyro.conf.arg(metavar="COLUMN ...")]
    """columns to forecast"""
    horizon: Annotated[int, tyro.conf.arg(metavar="ROWS")] = 24
    """how many rows to forecast"""
    time: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """column of time stamps; by itself: time, date, timestamp, ...; may be absent"""
    past: Annotated[Names, tyro.conf.arg(metavar="COLUMN ...")] = ()
    """other columns to learn from, whose future nobody knows"""
    known: Annotated[Names, tyro.conf.arg(metavar="COLUMN ...")] = ()
    """columns that are known beforehand: their rows go on where the targets are empty"""
    window: Annotated[int | None, shown("ROWS", "512, or what the rows allow")] = None
    """rows of the past that a forecast reads"""
    season: Annotated[int | None, shown("ROWS", "a day, week or year by the time stamps")] = None
    """rows that seasonal naive repeats"""
    tested: Annotated[float, tyro.conf.arg(metavar="PART")] = 0.2
    """part of the rows to test with"""
    epochs: Annotated[int | None, shown("INT", "by the size of the data")] = None
    """passes over the data; 0 for the linear model alone"""
    recursive: Switch = False
    """learn one step and repeat it, rather than all steps at once"""
    missing: Annotated[str, tyro.conf.arg(metavar="error|interpolate")] = "error"
    """what to do with empty cells"""
    seed: int = 0
    """of the first weights and of the order of the data"""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("forecast")
    """folder for forecast.csv, forecast.html and the model"""
    json: Switch = False
    """print a JSON object"""

    def run(self, console: Console) -> None:
        if not self.target:
            raise UsageError("name the columns to forecast: --target COLUMN ...")
        if self.out.exists() and not self.out.is_dir():
            raise UsageError(f"--out {self.out} is a file; name a folder")
        columns = [*self.target, *self.past, *self.known]
        if len(set(columns)) < len(columns):
            raise UsageError("a column is named twice among --target, --past and --known")
        # here, as help and mistakes need not wait for torch
        from s4d_torch.cli.forecast.parts import Parts
        from s4d_torch.data.user_files.time_table import read_time_table
        from s4d_torch.estimators.forecasting.comparison import compare, usual_season
        from s4d_torch.estimators.forecasting.timeline import read_step

        table = read_time_table(self.table.expanduser(), columns, self.time)
        step = None if table.times is None else read_step(table.times, str(self.table))
        parts = Parts.of(self, table)
        season = usual_season(step) if self.season is None else self.season
        model = self._model(quiet=self.json)
        found = compare(
            model, parts.y, parts.X, times=parts.times, season=season, tested=self.tested
        )
        given: dict[str, Any] = {"y": parts.y, "X": parts.X, "times": parts.times}
        mean = model.predict(None, parts.X_future, **given)
        spread = model.predict_quantiles(None, parts.X_future, **given)
        written = self._write(parts, step, mean, spread, found)
        if self.json:
            scores = [score._asdict() for score in found.scores]
            print(as_json({"scores": scores, "season": season, "files": written}))
            return
        _show(console, found)
        for file in written:
            say(console, f"wrote {file}")

    def command(self) -> str:
        """What was called, with the options that are not as they would be anyway."""
        words = ["s4d", "forecast", str(self.table)]
        for option in fields(self)[1:]:
            value = getattr(self, option.name)
            if value == option.default or option.name == "json":
                continue
            words.append(f"--{option.name}")
            if value is not True:
                words += map(str, value if isinstance(value, tuple) else [value])
        return shlex.join(words)

    def _model(self, *, quiet: bool) -> Any:
        from s4d_torch.estimators import S4DForecaster

        return S4DForecaster(
            horizon=self.horizon,
            window=self.window,
            past_only=tuple(range(len(self.past))),
            strategy="recursive" if self.recursive else "direct",
            epochs=self.epochs,
            missing=self.missing,
            random_state=self.seed,
            verbose=0 if quiet else 1,
        )

    def _write(self, parts: Any, step: Any, mean: Any, spread: Any, found: Any) -> list[Path]:
        from s4d_torch.cli.forecast.parts import write_csv
        from s4d_torch.explore.forecast_page import forecast_page

        model, levels = found.model, found.model.quantiles
        ends = [levels.index(0.05), levels.index(0.95)]
        self.out.mkdir(parents=True, exist_ok=True)
        csv_file, html_file = self.out / "forecast.csv", self.out / "forecast.html"
        write_csv(csv_file, parts, step, self.target, mean, spread, levels)
        title = f"Forecast of {', '.join(self.target)}"
        page = forecast_page(
            title, self.command(), self.target, parts.filled, spread[..., ends], mean, found
        )
        page.save(html_file)
        model.save(self.out / "model")
        return [csv_file, html_file, self.out / "model"]


def _show(console: Console, found: Any) -> None:
    table = plain_table(title=f"{len(found.test.origins)} forecasts from row {found.start} on")
    table.add_column("method")
    for name in ("MSE", "MAE", "90 % interval covers"):
        table.add_column(name, justify="right")
    for score in found.scores:
        covers = "-" if score.coverage is None else f"{score.coverage:.1%}"
        table.add_row(score.method, f"{score.mse:.4g}", f"{score.mae:.4g}", covers)
    console.print(table)
