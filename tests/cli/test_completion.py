"""The scripts of `s4d --print-completion`, in the shells that they are for."""

import contextlib
import io
import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from s4d_torch.cli import COMMANDS, _command, main
from s4d_torch.cli.completion import SHELLS
from s4d_torch.cli.completion.names import known_values
from s4d_torch.cli.completion.reading import read_commands
from s4d_torch.cli.completion.words import Command, Option, Values, merged
from s4d_torch.data import TASKS
from s4d_torch.training.saved import packaged

PATIENCE = 60  # seconds, on a machine that is busy
FLAGS = re.compile(r"(?:^|, )(--[\w.-]+)")

# what is typed, and what it becomes
COMPLETED = {
    "s4d tr": "s4d train",
    "s4d train listo": "s4d train listops",
    "s4d train --pres": "s4d train --preset",
    "s4d train --preset sm": "s4d train --preset small",
    "s4d train --preset=sm": "s4d train --preset=small",
    "s4d train digits --data.": "s4d train digits --data.split-seed",
    "s4d train digits --training.class-weight bal": (
        "s4d train digits --training.class-weight balanced"
    ),
    "s4d train digits --lr 0.1 --method.ini": "s4d train digits --lr 0.1 --method.init",
    "s4d train record": "s4d train recordings/",
    "s4d evaluate --task listo": "s4d evaluate --task listops",
    "s4d predict recordings/one": r"s4d predict recordings/one\ two.wav",
    "s4d info listo": "s4d info listops",
    "s4d stream wor": "s4d stream words",
    "s4d tasks sc35-": "s4d tasks sc35-ar",
    "s4d runs --so": "s4d runs --sort",
    "s4d paper rep": "s4d paper report",
    "s4d paper run table1 choi": "s4d paper run table1 choices",
    "s4d figure kern": "s4d figure kernels",
    "s4d --vers": "s4d --version",
    "s4d --print-completion fi": "s4d --print-completion fish",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the scripts, as they are printed, and some files to complete."""
    made = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(["--print-completion", shell]) == 0
        (made / f"s4d.{shell}").write_text(printed.getvalue())
    (made / "recordings").mkdir()
    (made / "recordings" / "one two.wav").touch()
    return made


def need(shell: str) -> str:
    """The path of a shell, or a skip where there is none."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


# ---- what is completed ------------------------------------------------------------------------


@cache
def commands() -> tuple[Command, ...]:
    return read_commands({name: _command(name) for name in COMMANDS})


def flags(options: tuple[Option, ...]) -> set[str]:
    return {option.flag for option in options}


def helped(*arguments: str) -> set[str]:
    """The flags that the help of a command shows."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*arguments, "--help"]) == 0
    lines = re.findall(r"^[│ ] (-{1,2}[a-z].*)", printed.getvalue(), re.MULTILINE)
    return {flag for line in lines for flag in FLAGS.findall(line.partition("  ")[0])}


@pytest.fixture
def one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a wider terminal flags stand beside each other."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("one_column")
def test_the_flags_are_those_of_the_help() -> None:
    for command in commands():
        for each in command.parts or (command,):
            if each.path != ("train",):  # which has more for a task
                assert flags(each.options) == helped(*each.path), each.path


@pytest.mark.usefixtures("one_column")
@pytest.mark.parametrize("task", ["digits", "listops", "sc35"])
@pytest.mark.parametrize("name", ["train", "info"])
def test_the_flags_of_a_task_are_those_of_its_help(name: str, task: str) -> None:
    (command,) = (each for each in commands() if each.path == (name,))
    short = {"--epochs", "--batch-size", "--seed", "--lr", "--init-from", "--method"}
    own = flags(command.options) - (short if name == "train" else set())
    assert own | flags(command.of_task[task]) == helped(name, task)


def test_names_that_are_given_by_class_and_field_belong_to_one() -> None:
    found = {option.flag: option for command in commands() for option in command.options}
    for key, values in known_values().items():
        kind, _, field = key.rpartition(".")
        prefixes = {"Method": "method.", "ModelConfig": "model.", "OptimizerConfig": "optimizer."}
        prefix = prefixes.get(kind, "training." if kind == "TrainingConfig" else "")
        if prefix:
            assert found[f"--{prefix}{field.replace('_', '-')}"].values == values, key
    by_path = {part.path: part for each in commands() for part in (each, *each.parts)}
    tasks, models = Values(tuple(TASKS), files=True), Values(tuple(packaged.names()), files=True)
    assert by_path["train",].values == tasks
    assert by_path["info",].values == tasks | models
    assert by_path["tasks",].values == Values(tuple(TASKS))
    assert by_path["predict",].values == by_path["compare",].values == models
    assert by_path["methods",].values is None
    tables = by_path["paper", "run"].values
    assert tables is not None
    assert {"choices", "kernels", "all"} <= set(tables.names)


def test_no_word_needs_quotes() -> None:
    """The scripts write names and flags as they are."""
    for command in commands():
        for each in (command, *command.parts):
            words = set(each.path) | flags(each.options) | flags(each.late_options)
            for values in (each.values, *(x.values for x in (*each.options, *each.late_options))):
                words |= set(values.names if values else ())
            assert all(re.fullmatch(r"[\w.-]+", word) for word in words), each.path


def test_options_with_one_flag_become_one() -> None:
    some = (
        Option("--x", "said", Values(("a", "b"))),
        Option("--y"),
        Option("--x", "", Values(("c",))),
    )
    assert merged(some) == (Option("--x", "said", Values(("a", "b", "c"))), Option("--y"))


# ---- in shells --------------------------------------------------------------------------------


def as_bash_words(line: str) -> list[str]:
    """As bash cuts what is typed: also at the sign of --flag=value."""
    return [word for word in re.split(r" |(=)", line) if word]


@pytest.mark.parametrize("typed", COMPLETED)
def test_bash_is_told_the_word(typed: str, folder: Path) -> None:
    bash, words = need("bash"), as_bash_words(typed)
    script = (
        f"source {folder}/s4d.bash; complete -p s4d; "
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _s4d; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    empty = {"PATH": str(folder / "recordings")}  # no program is started, Python least of all
    done = subprocess.run(
        [bash, "--norc", "-c", script], cwd=folder, env=empty, capture_output=True, text=True
    )
    assert done.stderr == ""
    last = as_bash_words(COMPLETED[typed].replace(r"\ ", "\0").rstrip("/"))[-1].replace("\0", " ")
    assert done.stdout.splitlines() == ["complete -F _s4d s4d", last]


@pytest.mark.parametrize("typed", COMPLETED)
def test_fish_is_told_the_word(typed: str, folder: Path) -> None:
    fish = need("fish")
    done = subprocess.run(
        [fish, "--no-config", "-c", f"source {folder}/s4d.fish; complete -C '{typed}'"],
        cwd=folder,
        env={"HOME": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    found = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    wanted = COMPLETED[typed].rpartition(" ")[2] if "\\" not in COMPLETED[typed] else None
    assert found == [wanted or "recordings/one two.wav"]


def start_bash(folder: Path) -> str:
    return f"source {folder}/s4d.bash"


def start_zsh(folder: Path) -> str:
    return f"autoload -U compinit && compinit -u -D; source {folder}/s4d.zsh"


def start_zsh_by_fpath(folder: Path) -> str:
    """As zsh finds the functions of a package."""
    (folder / "functions").mkdir(exist_ok=True)
    shutil.copy(folder / "s4d.zsh", folder / "functions" / "_s4d")
    return f"fpath=({folder}/functions $fpath); autoload -U compinit && compinit -u -D"


class Terminal:
    """A shell that somebody types into."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.end, inner = pty.openpty()
        home = {"HOME": str(folder), "HISTFILE": "", "TERM": "dumb", "PS1": "> "}
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env={"PATH": os.environ["PATH"], **home},
            start_new_session=True,
        )
        os.close(inner)

    def type(self, text: str, until: str) -> str:
        """What is shown up to ``until``."""
        os.write(self.end, text.encode())
        shown, limit = "", time.monotonic() + PATIENCE
        while until not in shown:
            assert time.monotonic() < limit, shown
            if select.select([self.end], [], [], 1)[0]:
                shown += os.read(self.end, 4096).decode(errors="replace")
        return shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)


@pytest.mark.parametrize(
    ("shell", "start"),
    [
        (["bash", "--norc", "--noprofile", "-i"], start_bash),
        (["zsh", "-f", "-i"], start_zsh),
        (["zsh", "-f", "-i"], start_zsh_by_fpath),
    ],
    ids=["bash", "zsh", "zsh-fpath"],
)
def test_the_key_completes(shell: list[str], start: Callable[[Path], str], folder: Path) -> None:
    need(shell[0])
    terminal = Terminal(shell, folder)
    try:
        # in place of the command, something that shows what it was called with
        show = r"""s4d() { printf 'got %s' s4d; printf ' %q' "$@"; echo ' end'; }"""
        terminal.type(f"{start(folder)}; {show}; echo rea''dy\n", until="ready")
        for typed, wanted in COMPLETED.items():
            shown = terminal.type(f"{typed}\t\n", until=" end")
            got = shown.rpartition("got ")[2].partition(" end")[0]
            assert got.rstrip("/") == wanted.rstrip("/"), typed  # zsh takes a last slash away
    finally:
        terminal.close()


# ---- misuse -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["zhs"], "unknown shell 'zhs'; did you mean 'zsh'? choose one of: bash, zsh, fish"),
        (["powershell"], "unknown shell 'powershell'; choose one of: bash, zsh, fish"),
        ([], "name a shell: bash, zsh, fish"),
        (["bash", "zsh"], "choose one of: bash, zsh, fish"),
    ],
)
def test_a_shell_that_is_not_known(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--print-completion", *given]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""
