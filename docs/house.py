"""Draw three walks through the house: which files a thing passes, checked against the imports.

    python docs/house.py          writes docs/images/walk-*.svg and the lists in docs/house.md
    python docs/house.py --check  only says whether they are up to date

A walk names modules in the order they are passed. Each but the first has to be imported by one
before it, wherever that import stands (``a > b`` says by which); a walk that no longer agrees with
the source is an error.
"""

import ast
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "s4d_torch"
PAGE = ROOT / "docs" / "house.md"
IMAGES = ROOT / "docs" / "images"

Walk = list[tuple[str, str]]
WALKS: dict[str, tuple[str, Walk]] = {
    "batch": (
        "A batch through a layer and back",
        [
            ("nn.layer", "SSM, activation, dropout, mixing"),
            ("nn.ssm", "checks the input; parameters become a StateSpace"),
            ("ssm.engine", "chooses scan, direct, chunk or fft"),
            ("ssm.state_space", "gives what the engine asks for"),
            ("ssm.compiled.tables", "an operator of torch: stored parameters to tables"),
            ("ssm.compiled.scan", "another, that runs the scan with them; their adjoints"),
            ("ssm.compiled.runtime", "compiles once, shares the work among threads"),
            ("ssm.compiled.tables_code", "stored parameters to tables, and gradients back"),
            ("ssm.compiled.scan_code", "the loops over time, forward and backward"),
        ],
    ),
    "train": (
        "s4d train, from the command line to a checkpoint",
        [
            ("cli", "finds the command"),
            ("cli.train", "flags of the task; shows data, model and progress"),
            ("cli.common.options", "the task and the options that commands share"),
            ("data.user_files.lookup", "a name or a path becomes a Task"),
            ("data.task", "what a task is: loader, metric, the paper's numbers"),
            ("training.config", "everything that decides a run, as plain data"),
            ("cli.train > training.run", "one run from beginning to end"),
            ("training.build", "a config and a signature become a model"),
            ("nn.model", "encoder, blocks, pooling, decoder"),
            ("training.loop", "epochs, steps, evaluation; the best and the last are kept"),
            ("training.batches", "the order of the data, from seed and epoch"),
            ("training.optimizer", "parameter groups, schedule, clipping, average"),
            ("training.evaluation", "predictions and losses of a split"),
            ("training.saved.store", "what is kept, and when"),
            ("training.saved.checkpoint", "written whole, verified when read"),
            ("_files", "write beside, then rename"),
        ],
    ),
    "result": (
        "A result, from its experiment to its verdict and page",
        [
            ("cli.paper", "s4d paper run, claims, report"),
            ("paper.recipes", "the paper's tables: rows, columns, published numbers"),
            ("paper.experiments.grid", "what is done is read, what is left is run"),
            ("paper.experiments.engines", "processes of this machine, Ray or Slurm"),
            ("paper.experiments.experiment", "one run, and its result as JSON"),
            ("paper.experiments.outcomes", "what became of each case, in a few bytes"),
            ("paper.results", "a folder of results, read once"),
            ("paper.scores", "a score with its cases, on a scale of differences"),
            ("paper.claims", "judge(): a verdict for each claim"),
            ("paper.claims.findings", "all findings, in the order of the paper"),
            ("paper.claims.findings.ablations", "statement, rows and rule of each finding"),
            ("paper.claims.rules", "how results decide"),
            ("paper.claims.rules.pairwise", "what two rows in a column say for and against it"),
            ("paper.claims.comparison", "a difference, and how much of it may be chance"),
            ("paper.claims.seed_noise", "how far rows spread from seed to seed"),
            ("paper.report.paper_report", "tables and curves"),
            ("paper.report.verdicts", "what is decided, each finding, each claim"),
            ("paper.report.regime", "what is learned at the scale"),
            ("paper.report.reproduction", "what is confirmed, contradicted and open"),
            ("paper.report.page", "HTML or Markdown"),
        ],
    ),
}


def module_path(name: str) -> Path:
    path = SOURCE.joinpath(*module_name(name).split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def imports(name: str) -> tuple[set[str], set[str]]:
    """The modules that a module names, by import or as text, as what is loaded late is; and those
    that it has through a room's exports as well.
    """
    path = module_path(name)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            source = node.module.removeprefix("s4d_torch").removeprefix(".")
            found.add(source)
            found |= {f"{source}.{alias.name}".strip(".") for alias in node.names}
        elif isinstance(node, ast.JoinedStr):  # f"{__package__}.scan_code"
            text = ast.unparse(node)[2:-1]
            found.add(text.replace("{__package__}", package))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.removeprefix("s4d_torch."))
            if path.name == "__init__.py":  # a room that imports its modules by their names
                found.add(f"{package}.{node.value}")
    found = {name for name in found if re.fullmatch(r"[\w.]+", name)}  # not any text
    direct = set(found)
    while more := reexported(found) - found:
        found |= more
    return direct, found


def reexported(found: set[str]) -> set[str]:
    """A name imported from a room comes from the module that the room takes it from."""
    more = set()
    for name in found:
        room, _, leaf = name.rpartition(".")
        path = SOURCE.joinpath(*room.split("."), "__init__.py")
        if not room or not path.is_file():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                if leaf in {alias.name for alias in node.names}:
                    source = node.module.removeprefix("s4d_torch.")
                    more |= {source, f"{source}.{leaf}"}
            elif isinstance(node, ast.Dict):  # names that are imported when first asked for
                more |= {
                    value.value.removeprefix("s4d_torch.")
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                    and key.value == leaf
                    and isinstance(value, ast.Constant)
                    and isinstance(value.value, str)
                }
    return more


def edges(walk: Walk) -> list[tuple[int, int]]:
    """For each step but the first, the latest step before it that imports it, best by name."""
    names = [module_name(step) for step, _ in walk]
    known = [imports(name) for name in names]
    found = []
    for k, (step, _) in enumerate(walk[1:], start=1):
        above = names.index(step.split(" > ")[0]) if " > " in step else None
        importers = [
            j
            for way in (0, 1)
            for j in reversed(range(k))
            if names[k] in known[j][way] and above in (None, j)
        ]
        if not importers:
            raise SystemExit(f"no step before {step} imports it: the walk is not true any more")
        found.append((importers[0], k))
    return found


def module_name(step: str) -> str:
    return step.split(" > ")[-1]


WIDE, HIGH, INDENT, LINE = 940, 44, 34, 30


def draw(title: str, walk: Walk) -> str:
    """One line per file, shifted to the right by how deep it is called."""
    joined = edges(walk)
    depth = [0] * len(walk)
    for above, below in joined:
        depth[below] = depth[above] + 1
    height = HIGH + len(walk) * LINE + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDE}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="27" font-size="17" font-weight="600" fill="#1b1f24">'
        f"{escape(title)}</text>",
    ]
    for above, below in joined:
        x, y1 = 24 + depth[above] * INDENT, HIGH + above * LINE + 22
        y2 = HIGH + below * LINE + 12
        parts.append(
            f'<path d="M{x + 8} {y1} V{y2} H{x + INDENT - 2}" fill="none" stroke="#8b949e"/>'
        )
    for k, (name, what) in enumerate(walk):
        x, y = 24 + depth[k] * INDENT, HIGH + k * LINE
        path = module_path(name).relative_to(SOURCE)
        width = 8 * len(str(path)) + 18
        parts += [
            f'<rect x="{x}" y="{y}" width="{width}" height="23" rx="4" fill="#eaf2fb" '
            'stroke="#4078c0"/>',
            f'<text x="{x + 9}" y="{y + 16}" font-family="monospace" font-size="13" '
            f'fill="#1b1f24">{escape(str(path))}</text>',
            f'<text x="{x + width + 10}" y="{y + 16}" fill="#444c56">{escape(what)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def table(walk: Walk) -> str:
    rows = [f"| `{module_path(name).relative_to(SOURCE)}` | {what} |" for name, what in walk]
    return "\n".join(["| file | what happens there |", "|---|---|", *rows])


def build() -> dict[Path, str]:
    """What should stand in each file."""
    page = PAGE.read_text(encoding="utf-8")
    files = {}
    for key, (title, walk) in WALKS.items():
        files[IMAGES / f"walk-{key}.svg"] = draw(title, walk)
        begin, end = f"<!-- walk {key} -->", f"<!-- end {key} -->"
        head, rest = page.split(begin)
        _, tail = rest.split(end)
        page = f"{head}{begin}\n\n{table(walk)}\n\n{end}{tail}"
    return {**files, PAGE: page}


def main() -> None:
    stale = {
        path: text
        for path, text in build().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if stale and "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        raise SystemExit(f"not up to date: {names}; run: python docs/house.py")
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
