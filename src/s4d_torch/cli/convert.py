"""``s4d convert``: weights of the official code into a folder that loads here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from s4d_torch.cli.common.display import plain_table, say
from s4d_torch.cli.common.flags import shown
from s4d_torch.cli.common.parsing import CommandError
from s4d_torch.deploy.official import ModelOptions, convert_file


@dataclass(frozen=True)
class Convert:
    """Convert a layer or a whole model of the official code (state-spaces/s4).

    FILE is a .safetensors, .npz, .pt, .pth or .ckpt file with its state dict. What the weights do
    not show is asked for by its official name, and shown as assumed where it has a default there.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """the weights"""
    out: Annotated[Path | None, shown("FOLDER", "the name of FILE without its ending")] = None
    """the folder to write: weights as safetensors, config as JSON"""
    prefix: str = ""
    """convert only the layer whose keys start so, as in model.layers.0.layer."""
    options: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(default_factory=ModelOptions)

    def run(self, console: Console) -> None:
        out = self.out or self.file.with_suffix("")
        if self.out is None and out.exists():  # what is there may be anything
            raise CommandError(f"{out} is there already; name a folder with --out FOLDER")
        found = convert_file(self.file, prefix=self.prefix, options=self.options)
        say(console, f"{self.file} holds")
        table = plain_table("what", "value", "known from")
        for fact in found.facts.rows:
            table.add_row(*map(escape, (fact.what, fact.value, fact.source)))
        console.print(table)
        errors = ", ".join(f"{way} {error:.1e}" for way, error in found.errors.items())
        if not found.agrees:
            raise ValueError(
                f"the output differs from that in {self.file} ({errors} of the largest value): "
                "one of the options assumed or given above is not its own; nothing was written"
            )
        if errors:
            say(console, f"the same output as in the file: {errors} of the largest value")
        load = found.save(out)
        say(console, f"wrote {out}; load it with {load}({str(out)!r})")
