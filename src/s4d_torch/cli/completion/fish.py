"""The script for fish: to be sourced, or ``s4d.fish`` in its folder of completions."""

from collections.abc import Iterable, Iterator, Sequence

from s4d_torch.cli.completion.words import TOP, Command, Option, Values

BEGIN = """\
# How fish completes s4d; printed by: s4d --print-completion fish
function __s4d_after --description 'whether these words follow s4d'
    set -l words (commandline -opc)
    set -e words[1]
    string match -q -- "$argv *" "$words "
end
function __s4d_next --description 'whether these words, and nothing else, follow s4d'
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end
function __s4d_named --description 'whether one of these words was given'
    for word in (commandline -opc)
        contains -- $word $argv; and return 0
    end
    return 1
end
complete -c s4d -f
"""


def script(commands: Sequence[Command]) -> str:
    """A line for each command, flag and name."""
    lines = _lines(Command((), options=TOP, parts=tuple(commands)))
    return BEGIN + "".join(f"complete -c s4d {line}\n" for line in lines)


def _lines(command: Command) -> Iterator[str]:
    words = " ".join(command.path)
    if command.parts:
        here = f"__s4d_next {words}".strip()
        for option in command.options:  # the flag itself, or its value
            yield f"-n {_quoted(f'{here}; or {here} {option.flag}')} {_flag(option)}"
        for part in command.parts:
            yield f"-n {_quoted(here)} -a {part.path[-1]} -d {_quoted(part.about)}"
            yield from _lines(part)
        return
    after = f"__s4d_after {words}"
    yield from (f"-n {_quoted(after)} {_flag(option)}" for option in command.options)
    for option in command.late_options:
        yield f"-n {_quoted(f'{after}; and {_has(command, option)}')} {_flag(option)}"
    values = command.values or Values()
    if values.names:
        names = " ".join(values.names)
        unless = f"; and not __s4d_named {names}" if command.one_name else ""
        yield f"-n {_quoted(after + unless)} -a {_quoted(names)}"
    if values.files:
        yield f"-n {_quoted(after)} -F"


def _has(command: Command, option: Option) -> str:
    """Whether what was named brings this option along."""
    owners = [
        task
        for task, options in command.of_task.items()
        if any(option.flag == each.flag for each in options)
    ]
    if not any(option.flag == each.flag for each in command.of_no_task):
        return f"__s4d_named {' '.join(owners)}"
    return f"not __s4d_named {' '.join(_without(command.of_task, owners))}"


def _without(names: Iterable[str], others: Sequence[str]) -> list[str]:
    return [name for name in names if name not in others]


def _flag(option: Option) -> str:
    words = f"-l {option.flag.removeprefix('--')} -d {_quoted(option.about)}"
    if option.values is None:
        return words
    names = f" -a {_quoted(' '.join(option.values.names))}" if option.values.names else ""
    return f"{words} {'-r -F' if option.values.files else '-x'}{names}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"
