"""The script for zsh: to be sourced, or a file ``_s4d`` in a folder of ``fpath``."""

from collections.abc import Iterable, Sequence

from s4d_torch.cli.completion.words import TOP, Command, Option, Values

BEGIN = """\
#compdef s4d
# How zsh completes s4d; printed by: s4d --print-completion zsh
"""
END = """\
_s4d_name_or_file() {
    _alternative "names:name:($*)" 'files:file:_files'
}
# as a file of fpath it is run in order to complete; sourced, it only says how
if [[ $funcstack[1] == _s4d ]]; then
    _s4d "$@"
else
    compdef _s4d s4d
fi
"""


def script(commands: Sequence[Command]) -> str:
    """A function for each command, and one for ``s4d`` itself."""
    whole = Command((), options=TOP, parts=tuple(commands))
    return BEGIN + "".join(_functions(whole)) + END


def _functions(command: Command) -> Iterable[str]:
    body = _choice(command) if command.parts else _arguments(command)
    yield "\n".join([f"{_name(command)}() {{", *(f"    {line}" for line in body), "}", ""])
    for part in command.parts:
        yield from _functions(part)


def _name(command: Command) -> str:
    return "_".join(["_s4d", *command.path])


def _choice(command: Command) -> list[str]:
    """A part of the command; after its name, what that part completes."""
    parts = (f"{part.path[-1]}:{part.about}" for part in command.parts)
    names = "|".join(part.path[-1] for part in command.parts)
    return [
        "local -a parts options",
        f"parts=({_listed(parts)})",
        f"options=({_listed(map(_spec, command.options))})",
        f"if (( CURRENT > 2 )) && [[ $words[2] == ({names}) ]]; then",
        "    shift words",
        "    (( CURRENT-- ))",
        f"    {_name(command)}_$words[1]",
        "elif (( CURRENT > 2 )) || [[ $words[2] == -* ]]; then",
        "    _arguments -S : $options",
        "else",
        "    _describe command parts",
        "fi",
    ]


def _arguments(command: Command) -> list[str]:
    """Flags and what else may follow, which a name that was given may change."""
    values = command.values
    lines = [
        "local word",
        "local -a options of_task s4d_names rest",
        f"options=({_listed(map(_spec, command.options))})",
    ]
    if command.of_no_task:
        lines += [f"of_task=({_listed(map(_spec, command.of_no_task))})"]
    if values is not None:
        lines += [f"s4d_names=({' '.join(values.names)})"]
        lines += [f"rest=({_quoted('*:' + _action('argument', values, left='$s4d_names'))})"]
    if command.of_task or (values and values.names and command.one_name):
        lines += ["for word in $words[2,CURRENT-1]; do", "    case $word in"]
        groups = command.tasks_by_flags()
        for flags, tasks in (groups or {(): list(values.names if values else ())}).items():
            options = [x for x in command.of_task.get(tasks[0], ()) if x.flag in flags]
            also = f" of_task=({_listed(map(_spec, options))})" if groups else ""
            lines += [f"    {'|'.join(tasks)}) s4d_names=(){also} ;;"]
        lines += ["    esac", "done"]
    return [*lines, "_arguments -S : $options $of_task $rest"]


def _spec(option: Option) -> str:
    about = option.about.replace("[", r"\[").replace("]", r"\]")
    if option.values is None:
        return f"{option.flag}[{about}]"
    name = option.flag.rpartition(".")[2].lstrip("-")
    return f"{option.flag}=[{about}]:{_action(name, option.values)}"


def _action(name: str, values: Values, *, left: str = "") -> str:
    """``message:action``; ``left`` is the variable with the names that may still be given."""
    names = left or " ".join(values.names)
    if values.names and values.files:
        return f"{name}: _s4d_name_or_file {names}"  # the space: with these arguments only
    if values.names:
        return f"{name}: compadd -- {names}"
    return f"{name}:_files" if values.files else f"{name}: "


def _listed(texts: Iterable[str]) -> str:
    return " ".join(map(_quoted, texts))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
