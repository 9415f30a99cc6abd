"""``s4d models``: the models that come with the package."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from s4d_torch._progress import say
from s4d_torch.cli.common.console import as_json, plain_table
from s4d_torch.cli.common.flags import Switch


@dataclass(frozen=True)
class Models:
    """List the models that come with the package, or show all about one.

    A name stands for the folder of a run in every command: s4d stream words clip.wav
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """show its card: data, licence, scores, limits"""
    json: Switch = False
    """print a JSON object for each model"""

    def run(self, console: Console) -> None:
        # here, as help and mistakes need not wait for torch
        from s4d_torch.training.metrics import METRICS
        from s4d_torch.training.saved import packaged

        found = [packaged.card(self.name)] if self.name else list(packaged.cards())
        if self.json:
            for each in found:
                print(as_json(each.to_json()))
            return
        if self.name:
            page = packaged.folder_of(self.name) / packaged.PAGE
            print(page.read_text(encoding="utf-8"), end="")
            return
        table = plain_table("model", "what it does", "test", "size", "a sample")
        for each in found:
            metric, score = next(iter(each.scores.items()))
            table.add_row(
                escape(each.name),
                f"{escape(each.title)}\n[dim]{escape(each.use)}[/dim]",
                f"{metric} {METRICS[metric].show(score)}",
                f"{each.bytes / 1000:,.0f} kB",
                f"{each.microseconds:.2g} us",
            )
        console.print(table)
        say(console, "'s4d models NAME' shows data, licence, scores and limits of one")
