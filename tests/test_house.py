"""The order of the house: who may import whom, how long things are, and what must not leak."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "s4d_torch"

# Each folder imports only from those before it. Private modules at the root (`_*.py`) come first.
FOLDERS = [
    "ssm",
    "nn",
    "data",
    "training",
    "estimators",
    "deploy",
    "paper",
    "explore",
    "bench",
    "cli",
]

# In these folders each module, or room, imports only from those before it.
MODULES = {
    "data": [
        "clock",
        "dataset",
        "fingerprint",
        "missing_values",
        "summary",
        "process_pool",
        "files",
        "store",
        "folder",
        "splits",
        "task",
        "dropping",
        "tasks",
        "user_files",
    ],
    "ssm": [
        "autodiff",
        "precision",
        "pieces",
        "gaps",
        "hippo",
        "initialization",
        "constraint",
        "discretization",
        "pairs",
        "kernel",
        "convolution",
        "compiled",
        "recurrence",
        "state_space",
        "irregular",
        "engine",
    ],
    "nn": [
        "validate",
        "method",
        "packed",
        "timing",
        "ssm",
        "batch",
        "frames",
        "activation",
        "fused",
        "norm",
        "pretrained",
        "layer",
        "block",
        "state",
        "plan",
        "stepping",
        "model",
        "output_only",
        "parameter_groups",
        "baselines",
    ],
}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_MODULES = 18  # of a folder itself, with its __init__

# An absolute path of somebody's machine; a URL has a host before its first single slash.
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:work|tmp|root|home|Users|opt)/")


@dataclass(frozen=True)
class Module:
    """One source file; `name` is dotted, and ends in `__init__` for the file of a package."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def parts(self) -> list[str]:
        return self.name.split(".")


def read_package() -> list[Module]:
    src = ROOT / "src"
    return [
        Module(".".join(path.relative_to(src).with_suffix("").parts), path.read_text("utf-8"))
        for path in sorted((src / PACKAGE).rglob("*.py"))
    ]


# ---- imports ----------------------------------------------------------------------------------


def imported_names(
    module: Module, nodes: Iterable[ast.AST] | None = None
) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of all imports, wherever they stand: in functions, under TYPE_CHECKING.

    `from a import b` gives `a.b`, whether b is a module or not.
    """
    for node in ast.walk(module.tree) if nodes is None else nodes:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                base = module.parts[:-level] if level else []
                base += source.split(".") if source else []
                yield from ((node.lineno, ".".join([*base, alias.name])) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def resolve(name: str, known: set[str]) -> str | None:
    """The module of the house that an import of `name` loads; None if it is not of the house."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 0, -1):  # a.b.c: the module a.b.c, or a name within a.b or a
        for candidate in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if candidate in known:
                return candidate
    return f"{PACKAGE}.__init__"


def folder_rank(name: str) -> int | None:
    """Position in the order of the folders; None if the module has no place in it."""
    first = name.split(".")[1]
    if first in ("__init__", "__main__"):
        return len(FOLDERS) + 1  # the front door: sees everything, and nothing inside uses it
    if "." not in name.removeprefix(f"{PACKAGE}."):
        return 0 if first.startswith("_") else None
    return FOLDERS.index(first) + 1 if first in FOLDERS else None


def module_rank(name: str) -> int | None:
    """Position within a folder that has an order; None if the module has no place in it."""
    _, folder, module, *_ = name.split(".")
    if module == "__init__":
        return len(MODULES[folder])
    return MODULES[folder].index(module) if module in MODULES[folder] else None


def placement_problem(module: Module) -> str | None:
    if folder_rank(module.name) is None:
        return (
            f"{module.name} has no place in the house; put it into a folder, name it _*.py, "
            f"or add its folder to FOLDERS in {Path(__file__).name}"
        )
    if module.parts[1] in MODULES and module_rank(module.name) is None:
        return (
            f"{module.name} is not in the order of its folder; add '{module.parts[2]}' to "
            f"MODULES['{module.parts[1]}'] in {Path(__file__).name}, after all that it imports"
        )
    return None


def import_problems(modules: Sequence[Module]) -> list[str]:
    """Modules without a place in the order, and imports against it."""
    problems = {module.name: placement_problem(module) for module in modules}
    placed = {name for name, problem in problems.items() if problem is None}
    found = [problem for problem in problems.values() if problem is not None]
    for module in modules:
        if module.name not in placed:
            continue
        for line, name in imported_names(module):
            target = resolve(name, set(problems))
            if target in placed and target != module.name and not may_import(module.name, target):
                found.append(f"{module.name}:{line} imports {target}, which comes after it")
            elif target is not None and target not in problems:
                found.append(f"{module.name}:{line} imports {name} from the package's front door")
    return found


def may_import(name: str, target: str) -> bool:
    own, other = folder_rank(name), folder_rank(target)
    assert own is not None
    assert other is not None
    if own != other:
        return other < own
    folder = name.split(".")[1]
    if folder not in MODULES:
        return True
    own, other = module_rank(name), module_rank(target)
    assert own is not None
    assert other is not None
    return other <= own


def import_cycles(modules: Sequence[Module]) -> list[str]:
    """Modules that import each other when they are loaded, in a circle."""
    known = {module.name for module in modules}
    graph = {
        module.name: {
            target
            for _, name in imported_names(module, at_load(module.tree))
            if (target := resolve(name, known)) is not None and target != module.name
        }
        for module in modules
    }
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        return [f"modules import each other: {' -> '.join(error.args[1])}"]
    return []


def at_load(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes outside of functions, and not for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from at_load(node)


# ---- sizes, docstrings, leaks -----------------------------------------------------------------


def size_problems(module: Module) -> list[str]:
    problems = []
    lines = len(module.source.splitlines())
    if lines > MAX_FILE_LINES:
        problems.append(f"{module.name} has {lines} lines, over {MAX_FILE_LINES}: split it")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                problems.append(
                    f"{module.name}:{node.lineno} {node.name} has {length} lines, "
                    f"over {MAX_FUNCTION_LINES}: split it"
                )
    return problems


def docstring_problems(module: Module) -> list[str]:
    return [] if ast.get_docstring(module.tree) else [f"{module.name} has no docstring"]


def machine_path_problems(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number} names a path of one machine: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]


def tracked_files() -> list[Path]:
    """The files in git's index, or a skip where there is no checkout."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not in a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name]


# ---- the house --------------------------------------------------------------------------------


def report(problems: Iterable[str]) -> None:
    """Fail with all problems in full, one on each line."""
    if lines := list(problems):
        pytest.fail("\n".join(lines), pytrace=False)


def test_each_module_imports_only_from_those_before_it() -> None:
    report(import_problems(read_package()))


def test_no_modules_import_each_other() -> None:
    report(import_cycles(read_package()))


def test_no_folder_is_crowded() -> None:
    rooms = Counter(module.name.rpartition(".")[0] for module in read_package())
    report(
        f"{room} has {count} modules, over {MAX_MODULES}: make a room of some of them"
        for room, count in rooms.items()
        if count > MAX_MODULES
    )


def test_no_file_and_no_function_is_long() -> None:
    report(problem for module in read_package() for problem in size_problems(module))


def test_every_module_has_a_docstring() -> None:
    report(problem for module in read_package() for problem in docstring_problems(module))


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    problems = []
    for path in tracked_files():
        if path.is_relative_to(ROOT / ".ci") or not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        problems += machine_path_problems(str(path.relative_to(ROOT)), text)
    report(problems)


# ---- the checks themselves --------------------------------------------------------------------


def house(**changes: str) -> list[Module]:
    """A small house in order, with the sources of some modules replaced (dots as `__`)."""
    sources = {
        "__init__": "from s4d_torch.nn import S4D",
        "_registry": "import torch",
        "ssm.__init__": "from .hippo import legs",
        "ssm.hippo": "from s4d_torch._registry import Registry",
        "ssm.kernel": "from s4d_torch.ssm.hippo import legs",
        "nn.__init__": "from .layer import S4D",
        "nn.layer": "from s4d_torch.ssm import legs",
        "paper.__init__": "",
        "paper.report": "from . import RECIPES",
        "cli.__init__": "import s4d_torch.nn.layer",
    }
    sources |= {name.replace("__", "."): source for name, source in changes.items()}
    return [Module(f"{PACKAGE}.{name}", source) for name, source in sources.items()]


def test_reading_finds_the_package() -> None:
    assert f"{PACKAGE}._registry" in {module.name for module in read_package()}


def test_problems_are_reported_in_full() -> None:
    report([])
    with pytest.raises(pytest.fail.Exception, match="first\nsecond"):
        report(["first", "second"])


def test_a_house_in_order_has_no_problems() -> None:
    assert import_problems(house()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import s4d_torch.nn",
        "import s4d_torch.nn.layer as layer",
        "from s4d_torch import nn",
        "from s4d_torch.nn import S4D",
        "from ..nn.layer import S4D",
        "from ..nn import layer",
        "def f():\n    from s4d_torch.cli import main",
        "if TYPE_CHECKING:\n    from s4d_torch.nn.layer import S4D",
        "importlib.import_module('s4d_torch.nn')",
        "from s4d_torch import S4D",
        "import s4d_torch",
        "from .. import S4D",
        "from .kernel import vandermonde",
        "from . import kernel",
        "from . import legs",
        "from s4d_torch.ssm import kernel",
    ],
)
def test_an_import_against_the_order_is_found(source: str) -> None:
    problems = import_problems(house(ssm__hippo=source))
    assert len(problems) == 1
    assert problems[0].startswith("s4d_torch.ssm.hippo:")
    assert problems[0].endswith("which comes after it")


@pytest.mark.parametrize("name", ["_helper", "paper__speech"])
def test_an_import_against_the_order_is_found_at_the_root_and_in_folders(name: str) -> None:
    module = name.replace("__", ".")
    assert import_problems(house(**{name: "from s4d_torch.cli import main"})) == [
        f"s4d_torch.{module}:1 imports s4d_torch.cli.__init__, which comes after it"
    ]


def test_modules_that_import_each_other_are_found() -> None:
    assert import_cycles(house()) == []
    loop = {"data__digits": "from s4d_torch.data.own import f", "data__own": "from . import digits"}
    (problem,) = import_cycles(house(**loop))
    assert "s4d_torch.data.digits" in problem
    late = {**loop, "data__own": "def f():\n    from . import digits"}
    assert import_cycles(house(**late)) == []


def test_modules_without_a_place_are_found() -> None:
    (problem,) = import_problems(house(ssm__magic=""))
    assert "add 'magic' to MODULES['ssm'] in test_house.py" in problem
    (problem,) = import_problems(house(utils=""))
    assert "s4d_torch.utils has no place in the house" in problem
    (problem,) = import_problems(house(misc__things=""))
    assert "s4d_torch.misc.things has no place in the house" in problem


def test_long_files_and_functions_are_found() -> None:
    body = "\n".join(["    x = 1"] * (MAX_FUNCTION_LINES - 1))
    assert size_problems(Module("m", f"def f():\n{body}")) == []
    assert size_problems(Module("m", f"class C:\n  def f(self):\n{body}\n    x = 1")) == [
        "m:2 f has 61 lines, over 60: split it"
    ]
    assert size_problems(Module("m", "x = 1\n" * MAX_FILE_LINES)) == []
    assert size_problems(Module("m", "x = 1\n" * (MAX_FILE_LINES + 1))) == [
        "m has 401 lines, over 400: split it"
    ]


def test_a_missing_docstring_is_found() -> None:
    assert docstring_problems(Module("m", '"""What it is."""')) == []
    assert docstring_problems(Module("m", "x = 1")) == ["m has no docstring"]


@pytest.mark.parametrize("folder", ["work", "tmp", "root", "home"])
def test_machine_paths_are_found_and_urls_are_not(folder: str) -> None:
    text = f"see https://example.org/{folder}/x, src/{folder}/x\nopen('/{folder}/x')"
    assert machine_path_problems("f", text) == [
        f"f:2 names a path of one machine: open('/{folder}/x')"
    ]
