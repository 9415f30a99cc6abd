"""ListOps: the value of a long nested expression of digits (Nangia and Bowman 2018).

Three sources. ``generated``: random expressions by the Long Range Arena's rules (see
:mod:`s4d_torch.data.tasks.lra.listops_trees`). ``official``: the arena's own files,
``lra_release/lra_release/listops-1000/basic_{train,val,test}.tsv``, a header line, then expression
and label. ``nyu``: short ones, ``listops_nyu/test_*.tsv``, label and expression, 10000 a file.
In all of them round brackets are left out, and every label is recomputed.

The tokens are those of :data:`VOCABULARY`, whatever the source: 0 pads, digit d is 1 + d,
operators are 11 to 16, the closing bracket is 17. The arena's own pipeline drops the closing
bracket, which makes the value ambiguous; it is kept here, as in later work.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import Literal

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.folder import DataFolder, Scratch, Source, require_files
from s4d_torch.data.process_pool import OrderedMap, ordered_map
from s4d_torch.data.splits import split_randomly
from s4d_torch.data.task import ARENA, LAPTOP, Task, check_at_least, check_choices, register
from s4d_torch.data.tasks.arena import published, release_folder
from s4d_torch.data.tasks.lra import listops_trees
from s4d_torch.data.tasks.lra.listops_trees import DIGITS, VOCABULARY, Rules, evaluate, tokenize

Origin = Literal["generated", "official", "nyu"]
NyuFile = Literal["d20s", "d20", "d8"]
NYU = "https://raw.githubusercontent.com/nyu-mll/spinn/listops-release/python/spinn/data/listops"
NYU_DIGESTS = {
    "d20s": "md5:a533eeca66c3b8a9ca7ddc47d4e5254b",
    "d20": "md5:2bd702d2266950feddbe1fb4ee8d6507",
    "d8": "md5:8a8e433f9d5cd8d4a3fea96ea809317a",
}
PREVIEW = 100  # expressions to try a model on
CANDIDATES = 512  # trees drawn together; another number gives other expressions
FRUITLESS_BLOCKS = 200  # so many without a new expression, and there are hardly any more

Expression = tuple[Array, int]  # tokens and value
Seeds = tuple[int, ...]


@dataclass(frozen=True)
class ListOpsOptions:
    """Nested lists of digits under MIN, MAX, MED and sum modulo 10: which digit comes out?"""

    source: Origin = "generated"
    """made here, the Long Range Arena's files, or NYU's short ones"""
    seed: int = 0
    """of the generated expressions, or of the splits of NYU's"""
    n_train: int = 96000
    """expressions to learn from (generated)"""
    n_validation: int = 2000
    """expressions to validate on (generated)"""
    n_test: int = 2000
    """expressions to test on (generated); the same ones for any number to learn from"""
    min_length: int = 500
    """every generated expression has more tokens than this"""
    max_length: int = 2000
    """every generated expression has fewer tokens than this"""
    max_depth: int = 10
    """levels of a generated expression, the digits included"""
    max_args: int = 10
    """arguments of an operator, at most (generated); at least 2"""
    nyu: NyuFile = "d20s"
    """NYU's file: d20s has the operators of the arena, d20 and d8 have MIN, MAX, FIRST, LAST"""
    processes: int = 1
    """that generate, all making the same expressions; a script that asks for more than 1 needs
    the usual ``if __name__ == "__main__":``"""

    def __post_init__(self) -> None:
        check_choices(self, source=Origin, nyu=NyuFile)
        check_at_least(1, self, "n_train", "n_validation", "n_test", "processes")
        check_at_least(0, self, "seed")
        self.rules()

    def rules(self) -> Rules:
        return Rules(self.min_length, self.max_length, self.max_depth, self.max_args)


def load_listops(options: ListOpsOptions, folder: DataFolder) -> Dataset:
    """Expressions as (length,) tokens, ragged, with their values as classes 0 to 9."""
    if options.source == "official":
        root = release_folder(folder, "listops-1000")
        files = [root / f"basic_{part}.tsv" for part in ("train", "val", "test")]
        require_files(files, f"{root} should have it beside the others")

        def read(scratch: Scratch) -> Dataset:
            return _dataset([_stored(_read(file, header=True), scratch) for file in files])

        return folder.prepared("listops-official", {}, files, read)
    if options.source == "nyu":
        name = f"test_{options.nyu}.tsv"
        source = Source(f"{NYU}/{name}", NYU_DIGESTS[options.nyu], into="listops_nyu")
        file = folder.require(f"listops_nyu/{name}", [source])
        key = {"seed": options.seed}
        return folder.prepared("listops-nyu", key, [file], lambda s: _nyu(file, options.seed, s))
    shaping = {name: value for name, value in asdict(options).items() if name != "processes"}
    return folder.prepared("listops", shaping, [], lambda s: _generated(options, s))


def preview_listops(options: ListOpsOptions) -> tuple[ListOpsOptions, tuple[int, int, int]] | None:
    """A few expressions of those that would be made."""
    if options.source != "generated":
        return None
    sizes = (options.n_train, options.n_validation, options.n_test)
    train, validation, test = (min(size, PREVIEW) for size in sizes)
    return replace(options, n_train=train, n_validation=validation, n_test=test), sizes


def _nyu(file: Path, seed: int, scratch: Scratch) -> Dataset:
    whole = _stored(_read(file, header=False), scratch)
    return split_randomly(whole, _signature([whole]), validation=0.1, test=0.1, seed=seed)


def _generated(options: ListOpsOptions, scratch: Scratch) -> Dataset:
    seen: set[bytes] = set()
    rules, sizes = options.rules(), (options.n_test, options.n_validation, options.n_train)
    with ordered_map(options.processes) as run:
        # the test split first: what is in it does not depend on the sizes of the others
        test, validation, train = (
            _stored(random_expressions(rules, size, (options.seed, split), seen, run), scratch)
            for split, size in enumerate(sizes)
        )
    return _dataset([train, validation, test])


def _dataset(splits: list[Split]) -> Dataset:
    return Dataset.of(splits, _signature(splits))


def _signature(splits: list[Split]) -> Signature:
    longest = max(split.inputs[0].longest for split in splits)
    return Signature.of_classes(DIGITS, features=len(VOCABULARY), length=longest, tokens=True)


def _stored(expressions: Iterator[Expression], scratch: Scratch) -> Split:
    labels: list[int] = []

    def tokens() -> Iterator[Array]:
        for expression, label in expressions:
            labels.append(label)
            yield expression

    sequences = scratch.ragged(tokens())
    return Split.whole(sequences, np.array(labels, dtype=np.uint8))


def random_expressions(
    rules: Rules, wanted: int, seeds: Seeds, seen: set[bytes], run: OrderedMap
) -> Iterator[Expression]:
    """So many expressions that are not in ``seen`` (their digests), to which they are added.

    Every block of candidates has random numbers of its own, whoever draws it.
    """
    found = fruitless = 0
    for tokens, offsets, values in run(partial(_block, rules), ((*seeds, i) for i in count())):
        fruitless += 1
        for i, value in enumerate(values):
            expression = tokens[offsets[i] : offsets[i + 1]]
            digest = blake2b(expression.tobytes(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield expression, int(value)
                found, fruitless = found + 1, 0
                if found == wanted:
                    return
        if fruitless == FRUITLESS_BLOCKS:
            raise ValueError(
                f"{wanted} expressions wanted, but only {found} new ones found within {rules}; "
                "ask for fewer, or widen the bounds"
            )


def _block(rules: Rules, seeds: Seeds) -> tuple[Array, Array, Array]:
    """Tokens, offsets and values of the expressions among some candidates."""
    random = np.random.Generator(np.random.PCG64(seeds))
    tokens, offsets = listops_trees.grow(rules, CANDIDATES, random)
    values = evaluate(tokens) if len(tokens) else np.empty(0, dtype=np.uint8)
    return tokens, offsets, values


def _read(file: Path, *, header: bool, together: int = 1000) -> Iterator[Expression]:
    """The expressions of a file, each with its label, which must be its value."""
    lines = _lines(file, header)
    empty = True
    while read := list(islice(lines, together)):
        empty = False
        values = evaluate(np.concatenate([tokens for _, tokens, _ in read]))
        for (number, tokens, label), value in zip(read, values, strict=True):
            if label != value:
                raise ValueError(
                    f"{file}:{number}: the label is {label}, but the expression has value {value}"
                )
            yield tokens, label
    if empty:
        raise ValueError(f"{file} has no expressions")


def _lines(file: Path, header: bool) -> Iterator[tuple[int, Array, int]]:
    label_column = 1 if header else 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if header and number == 1:
                if fields != [b"Source", b"Target"]:
                    raise ValueError(f"{file}:1: expected the header 'Source <tab> Target'")
                continue
            if len(fields) != 2:
                raise ValueError(f"{file}:{number}: {len(fields)} fields, expected 2 with one tab")
            label = fields[label_column].decode("utf-8", "replace")
            if label not in DIGITS:
                raise ValueError(f"{file}:{number}: label {label[:40]!r}, expected a digit")
            try:
                tokens = tokenize(fields[1 - label_column])
            except ValueError as error:
                raise ValueError(f"{file}:{number}: {error}") from None
            yield number, tokens, int(label)


register(
    Task(
        name="listops",
        summary="the value of a nested expression of digits (Long Range Arena ListOps)",
        options=ListOpsOptions,
        load=load_listops,
        preview=preview_listops,
        tokenize=tokenize,
        metric="accuracy",
        length=1999,
        size="made here (100000 expressions, 110 MB)",
        licence="none needed (generated); official files: Apache-2.0; NYU's: MIT",
        citation="Nangia and Bowman 2018, ListOps; Tay et al. 2021, Long Range Arena",
        paper=replace(ARENA, n_layers=8, d_model=128, prenorm=False),
        published=published("listops"),
        small=replace(LAPTOP, norm="batch", dropout=0.0, batch_size=50, epochs=4),
    )
)
