"""Scripts with which shells complete ``s4d``: commands, tasks, flags and their values.

``words`` says what can be completed, ``reading`` finds it in the commands and ``names`` in the
registries; there is a module for each shell. A script holds all of it: when a key is pressed, no
Python is started.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

SHELLS = ("bash", "zsh", "fish")  # each the module of that name


def script(shell: str, commands: Mapping[str, Any]) -> str:
    """The script of a shell for these commands, by their names."""
    from s4d_torch.cli.completion.reading import read_commands

    return str(import_module(f"{__package__}.{shell}").script(read_commands(commands)))
