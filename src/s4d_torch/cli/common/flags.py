"""The kinds of flags that commands have. Imports no torch: help is shown before it is loaded."""

from pathlib import Path
from typing import Annotated, Any

import tyro


def shown(metavar: str, default: str) -> Any:
    """How the help shows an option whose default is None."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""An option that is off unless its flag is there."""
RunPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The folder of a run."""
Device = Annotated[str, tyro.conf.arg(metavar="NAME")]
"""The name of a device, or auto."""
DataDir = Annotated[Path | None, shown("FOLDER", "$S4D_TORCH_DATA, or a cache")]
"""The folder of all data."""
