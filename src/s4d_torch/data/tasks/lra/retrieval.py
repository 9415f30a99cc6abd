"""Do two papers share a citation link? The Retrieval task of the Long Range Arena (AAN pairs).

``lra_release/lra_release/tsv_data/new_aan_pairs.{train,eval,test}.tsv``, one pair a line::

    label <tab> id <tab> id <tab> text <tab> text

with the label 0 or 1, written as ``0.0`` or ``1.0``. The release holds each text as Python shows
bytes, ``b'... \\\\xe2 ...'``; such a text is turned back into its bytes, any other is taken as it
is. A text is cut at the end; an empty one becomes a single 0, which otherwise only pads.
Quotation marks mean nothing in these files.
"""

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.folder import DataFolder, Scratch, require_files
from s4d_torch.data.task import ARENA, LAPTOP, Task, check_at_least, register
from s4d_torch.data.tasks.arena import RELEASE, published, release_folder

FOLDER = "tsv_data"
FILES = [f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")]
CLASSES = ("unrelated", "linked")
FIELDS = "label, id, id, text, text"


@dataclass(frozen=True)
class RetrievalOptions:
    """Pairs of papers as bytes: is there a citation link between them?"""

    max_length: int = 4000
    """bytes of a paper that are read, from its beginning"""
    order_seed: int = 0
    """of the order in which pairs are stored: any first n of them are a fair sample"""

    def __post_init__(self) -> None:
        check_at_least(1, self, "max_length")


def load_retrieval(options: RetrievalOptions, folder: DataFolder) -> Dataset:
    """Pairs of (length,) bytes in two towers, ragged; class 1 where they are linked."""
    root = release_folder(folder, FOLDER)
    files = [root / name for name in FILES]
    require_files(files, f"{root} should have {', '.join(FILES)}")
    key = asdict(options)
    return folder.prepared("retrieval", key, files, lambda s: _build(options, files, s))


def _build(options: RetrievalOptions, files: list[Path], scratch: Scratch) -> Dataset:
    splits = [_read(file, options, scratch) for file in files]
    longest = max(tower.longest for split in splits for tower in split.inputs)
    signature = Signature.of_classes(CLASSES, features=256, length=longest, tokens=True, towers=2)
    return Dataset.of(splits, signature)


def _read(file: Path, options: RetrievalOptions, scratch: Scratch) -> Split:
    if not file.stat().st_size:
        raise ValueError(f"{file} is empty; expected lines of {FIELDS}, separated by tabs")
    labels: list[int] = []

    def texts(column: int) -> Iterator[Array]:
        for line, fields in _lines(file):
            if column == 3:
                labels.append(_label(fields[0], file, line))
            text = _bytes(fields[column], file, line)[: options.max_length]
            yield np.frombuffer(text or b"\0", dtype=np.uint8)

    # One pass over the file for each tower: a pair is never held longer than it takes to write it.
    towers = scratch.ragged(texts(3)), scratch.ragged(texts(4))
    pairs = Split.whole(towers, np.array(labels, dtype=np.uint8))
    random = np.random.Generator(np.random.PCG64(options.order_seed))
    return pairs.part(random.permutation(len(pairs)))


def _lines(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != 5:
                raise ValueError(
                    f"{file}:{number}: {len(fields)} fields separated by tabs; expected 5: {FIELDS}"
                )
            yield number, fields


def _label(field: bytes, file: Path, line: int) -> int:
    with suppress(ValueError):
        if float(field) in (0.0, 1.0):
            return int(float(field))
    shown = field[:40].decode("utf-8", "replace")
    raise ValueError(f"{file}:{line}: label {shown!r}; expected 0 or 1")


def _bytes(field: bytes, file: Path, line: int) -> bytes:
    """The bytes that ``field`` shows as Python does, or ``field`` itself."""
    if not field.startswith((b"b'", b'b"')):
        return field
    try:
        shown = ast.literal_eval(field.decode("ascii"))
    except (SyntaxError, ValueError):  # what is not ASCII is a ValueError too
        shown = None
    if not isinstance(shown, bytes):
        start = field[:40].decode("utf-8", "replace")
        raise ValueError(
            f"{file}:{line}: a text that starts as bytes in Python's notation but is not: {start!r}"
        )
    return shown


register(
    Task(
        name="retrieval",
        summary="are two papers linked by a citation? (AAN, Long Range Arena Retrieval)",
        options=RetrievalOptions,
        load=load_retrieval,
        metric="accuracy",
        length=4000,
        size="7.7 GB download (the whole arena), 182613 pairs",
        licence="as the ACL Anthology Network: for research",
        citation="Tay et al. 2021, Long Range Arena; Radev et al. 2013, ACL Anthology Network",
        sources=(RELEASE,),
        files=tuple(
            (f"lra_release/lra_release/{FOLDER}/{name}", f"lra_release/{FOLDER}/{name}")
            for name in FILES
        ),
        paper=replace(ARENA, batch_size=64, epochs=20),
        published=published("retrieval"),
        small=replace(LAPTOP, dropout=0.0, epochs=1),
    )
)
