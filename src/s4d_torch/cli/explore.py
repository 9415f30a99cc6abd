"""``s4d explore``: one page that shows what a diagonal state space does, and a run's own ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from s4d_torch._files import write_atomically
from s4d_torch._progress import say, visible
from s4d_torch.cli.common.flags import Switch, shown
from s4d_torch.cli.common.parsing import UsageError, misuse


@dataclass(frozen=True)
class Explore:
    """Write a page to look inside: eigenvalues to drag, basis, kernel, frequency response.

    The page is one file that needs no server and no network. It shows every diagonal start, or
    with --run the layers and channels of a trained run. It can also load the parameters of a run
    from the file that --run RUN --json writes.
    """

    run_folder: Annotated[
        str | None, tyro.conf.arg(name="run", metavar="RUN", help_behavior_hint="(default: no run)")
    ] = None
    """the folder of a run, to show what it has learned"""
    out: Annotated[Path | None, shown("FILE", "explore.html or .json")] = None
    """the file to write"""
    json: Switch = False
    """write the run's parameters as JSON, for a page that is already there"""

    def run(self, console: Console) -> None:
        if self.json and self.run_folder is None:
            raise UsageError("--json writes the parameters of a run; name it with --run RUN")
        # here, as help and mistakes need not wait for torch
        from s4d_torch.cli.common.options import load_named
        from s4d_torch.explore.interactive import as_strict_json, describe_run, explore_page

        run = None if self.run_folder is None else load_named(self.run_folder)
        with misuse():
            found = None if run is None else describe_run(run)
            text = as_strict_json(found) + "\n" if found and self.json else explore_page(found)
        out = self.out or Path("explore.json" if self.json else "explore.html")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({out: visible(text).encode()})
        say(console, f"wrote {out}")
