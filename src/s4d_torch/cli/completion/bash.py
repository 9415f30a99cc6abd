"""The script for bash, from version 3.2 on, without the package bash-completion."""

from collections.abc import Iterable, Sequence

from s4d_torch.cli.completion.words import TOP, Command, Values

# `only` is set where a flag waits for its value: then nothing else can stand there.
BEGIN = """\
# How bash completes s4d; printed by: s4d --print-completion bash
_s4d() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local names='' files='' flags='' only='' task='' word i IFS=$' \\t\\n'
    COMPREPLY=()
    # bash cuts --flag=value at the sign
    if [[ $cur == '=' ]]; then
        cur=''
    elif [[ $prev == '=' ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
"""
END = """\
    if [[ -z $only && $cur == -* ]]; then
        names=$flags files=''
    fi
    COMPREPLY=($(compgen -W "$names" -- "$cur"))
    if [[ -n $files ]]; then
        # slashes behind folders, and the quotes that names of files need
        compopt -o filenames -o default 2>/dev/null
        while IFS='' read -r word; do
            COMPREPLY+=("$word")
        done < <(compgen -f -- "$cur")
    fi
}
complete -F _s4d s4d
"""


def script(commands: Sequence[Command]) -> str:
    """All of it."""
    whole = Command((), options=TOP, parts=tuple(commands))
    return BEGIN + "\n".join(_indented(_command(whole), 4)) + "\n" + END


def _command(command: Command) -> list[str]:
    """Sets what can follow, behind the words of the command."""
    if command.parts:
        return _parts(command)
    lines = [f"flags='{_words(option.flag for option in command.options)}'"]
    lines += _of_tasks(command)
    choices: dict[Values, list[str]] = {}
    for option in (*command.options, *command.late_options):
        if option.values is not None:
            choices.setdefault(option.values, []).append(option.flag)
    otherwise = _assigned(command.values, "task" if command.one_name else "")
    if not choices:
        return [*lines, *otherwise]
    lines += ["case $prev in"]
    for values, flags in choices.items():
        lines += [f"{'|'.join(flags)}) {'; '.join(['only=1', *_assigned(values)])} ;;"]
    return [*lines, f"*) {'; '.join(otherwise or [':'])} ;;", "esac"]


def _parts(command: Command) -> list[str]:
    """The names of its parts; behind one of them, or a flag, what follows that."""
    at = len(command.path) + 1
    lines = [f"if ((COMP_CWORD == {at})); then"]
    lines += [f"    names='{_words(part.path[-1] for part in command.parts)}'"]
    lines += [f"    flags='{_words(option.flag for option in command.options)}'"]
    lines += ["else", f"    case ${{COMP_WORDS[{at}]}} in"]
    for option in command.options:
        if option.values is not None:
            lines += [f"    {option.flag}) {'; '.join(['only=1', *_assigned(option.values)])} ;;"]
    for part in command.parts:
        lines += [f"    {part.path[-1]})", *_indented(_command(part), 8), "        ;;"]
    return [*lines, "    esac", "fi"]


def _of_tasks(command: Command) -> list[str]:
    """Finds the task or other name that was given, and adds the flags that it brings along."""
    groups = command.tasks_by_flags()
    if command.values and command.values.names and not groups and command.one_name:
        groups = {(): list(command.values.names)}
    if not groups:
        return []
    lines = ["for ((i = 2; i < COMP_CWORD; i++)); do", "    case ${COMP_WORDS[i]} in"]
    for flags, tasks in groups.items():
        lines += [f"    {'|'.join(tasks)}) task='{_words(flags) or ' '}' ;;"]
    lines += ["    esac", "done"]
    if command.of_task:
        otherwise = _words(option.flag for option in command.of_no_task)
        lines += [f'flags+=" ${{task:-{otherwise}}}"']
    return lines


def _assigned(values: Values | None, unless: str = "") -> list[str]:
    """What stands in a place; names only as long as the variable ``unless`` is empty."""
    if values is None:
        return []
    lines = []
    if values.names:
        condition = f"[[ -n ${unless} ]] || " if unless else ""
        lines += [f"{condition}names='{_words(values.names)}'"]
    return lines + (["files=1"] if values.files else [])


def _words(names: Iterable[str]) -> str:
    return " ".join(names)


def _indented(lines: Iterable[str], by: int) -> list[str]:
    return [f"{' ' * by}{line}" for line in lines]
