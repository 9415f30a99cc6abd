"""ListOps: values against an evaluator of its own, the arena's rules, and bad files."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.data.folder import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.lra.listops import ListOpsOptions, load_listops
from s4d_torch.data.tasks.lra.listops_trees import VOCABULARY, Rules, evaluate, grow, tokenize

APPLY: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
    "[FIRST": lambda values: values[0],
    "[LAST": lambda values: values[-1],
}


def value(words: list[str]) -> int:
    """What an expression means, word by word."""
    operators: list[str] = []
    arguments: list[list[int]] = [[]]
    for word in words:
        if word == "]":
            result = APPLY[operators.pop()](arguments.pop())
            arguments[-1].append(result)
        elif word.startswith("["):
            operators.append(word)
            arguments.append([])
        else:
            arguments[-1].append(int(word))
    return arguments[0][0]


def words_of(tokens: np.ndarray) -> list[str]:
    return [VOCABULARY[token] for token in tokens]


def sequences(split: Split) -> list[np.ndarray]:
    return [split.inputs[0][int(i)] for i in split.index]


# ---- expressions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("( ( ( [MIN 4 ) 5 ) ] )", 4),
        ("[MED 1 2 ]", 1),  # 1.5, rounded down
        ("[MED 9 0 4 ]", 4),
        ("[SM 5 6 9 ]", 0),
        ("[FIRST 8 [LAST 1 2 3 ] ]", 8),
        ("[LAST 8 [LAST 1 2 3 ] ]", 3),
        ("[SM [SM [SM 9 9 ] 9 ] [MED 3 8 6 6 ] ]", 3),
    ],
)
def test_values_of_expressions(text: str, expected: int) -> None:
    assert evaluate(tokenize(text.encode())).tolist() == [expected]


def test_many_expressions_are_evaluated_at_once() -> None:
    texts = ["3", "[SM 1 2 3 [MAX 4 9 ] ]", "[MIN [MIN 5 6 ] 7 ]", "0"]
    tokens = np.concatenate([tokenize(text.encode()) for text in texts])
    assert evaluate(tokens).tolist() == [3, 5, 5, 0]


def test_the_vocabulary_is_fixed() -> None:
    assert tokenize(b"[SM 0 9 [FIRST 1 2 ] ]").tolist() == [14, 1, 10, 15, 2, 3, 17, 17]
    assert len(VOCABULARY) == 18


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no expression"),
        (b"[MAX 1 [MIN 2 ]", "1 operators without their closing"),
        (b"[MAX 1 2 ] ] [MIN", "closes no operator"),
        (b"[MAX 1 2 ] 3", "1 words after the end"),
        (b"[MAX ]", "an operator without arguments"),
        (b"[AVG 1 2 ]", r"unknown word '\[AVG'; expected 0 1 2"),
        (b"[MAX 12 3 ]", "unknown word '12'"),
    ],
)
def test_what_is_no_expression_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenize(text)


# ---- random ones ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = DataFolder(tmp_path_factory.mktemp("listops"))
    return load_listops(ListOpsOptions(n_train=1500, n_validation=100, n_test=100), folder)


def test_labels_are_values(generated: Dataset) -> None:
    for split in generated.splits.values():
        few = list(zip(sequences(split), split.labels(), strict=True))[:100]
        assert [value(words_of(tokens)) for tokens, _ in few] == [label for _, label in few]
    counts = np.bincount(generated.train.labels(), minlength=10) / len(generated.train)
    assert counts.min() > 0.04  # every digit occurs ...
    assert counts[0] > 0.13  # ... MIN, MAX and SM leave more at the ends
    assert counts[9] > 0.13
    assert counts[1:9].max() < 0.13


def test_expressions_keep_to_the_rules(generated: Dataset) -> None:
    lengths = np.concatenate(
        [
            tower.lengths(np.arange(len(tower)))
            for tower in (split.inputs[0] for split in generated.splits.values())
        ]
    )
    assert lengths.min() > 500
    assert lengths.max() < 2000
    assert lengths.max() == generated.signature.length
    assert 900 < np.median(lengths) < 1010  # long ones are rarer
    for tokens in sequences(generated.train)[:200]:
        depth, most, arguments, counts = 0, 0, [0], []
        for word in words_of(tokens):
            if word == "]":
                counts.append(arguments.pop())
                depth -= 1
                continue
            arguments[-1] += 1
            if word.startswith("["):
                assert word in ("[MIN", "[MAX", "[MED", "[SM")
                arguments.append(0)
                depth += 1
                most = max(most, depth)
        assert min(counts) >= 2
        assert max(counts) <= 10
        assert most <= 9  # with the digits below them, ten levels


def test_no_expression_occurs_twice(generated: Dataset) -> None:
    written = [s.tobytes() for split in generated.splits.values() for s in sequences(split)]
    assert len(set(written)) == len(written) == 1700


def test_distribution_of_random_trees() -> None:
    """Against the rules drawn node by node, without any of the vectorised bookkeeping."""
    rules = Rules(min_length=1, max_length=60, max_depth=4, max_args=5)
    random = np.random.default_rng(0)

    def length(depth: int) -> int:
        if depth == 4 or (depth > 1 and random.random() > 0.25):
            return 1
        return 2 + sum(length(depth + 1) for _ in range(random.integers(2, 6)))

    drawn = [n for n in (length(1) for _ in range(20000)) if 1 < n < 60]
    _, offsets = grow(rules, 20000, np.random.default_rng(1))
    grown = np.diff(offsets)
    for below in (6, 8, 12, 20, 40):
        assert abs(np.mean(np.array(drawn) < below) - np.mean(grown < below)) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_short_trees_leave_the_deep_levels_empty(seed: int) -> None:
    tokens, offsets = grow(Rules(min_length=2, max_length=30), 50, np.random.default_rng(seed))
    assert len(tokens) == offsets[-1] > 0
    for first, last in pairwise(offsets):
        assert 0 <= evaluate(tokens[first:last]) <= 9


def test_generation_depends_on_its_seed_alone(tmp_path: Path, generated: Dataset) -> None:
    fewer = load_listops(
        ListOpsOptions(n_train=20, n_validation=100, n_test=100), DataFolder(tmp_path)
    )
    for ours, theirs in zip(sequences(fewer.test), sequences(generated.test), strict=True):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(sequences(fewer.train)[19], sequences(generated.train)[19])
    other = ListOpsOptions(seed=1, n_train=20, n_validation=1, n_test=1)
    assert not np.array_equal(
        load_listops(other, DataFolder(tmp_path)).train.inputs[0].values,
        fewer.train.inputs[0].values,
    )


def test_processes_make_the_same_expressions(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"n_train": 400, "n_validation": 10, "n_test": 10}
    alone = load_listops(ListOpsOptions(**sizes), DataFolder(tmp_path / "one"))
    together = load_listops(ListOpsOptions(**sizes, processes=2), DataFolder(tmp_path / "two"))
    for one, two in zip(alone.splits.values(), together.splits.values(), strict=True):
        assert np.array_equal(one.inputs[0].values, two.inputs[0].values)
        assert np.array_equal(one.labels(), two.labels())
    # the number of processes is no part of what is kept
    again = load_listops(ListOpsOptions(**sizes), DataFolder(tmp_path / "two"))
    assert again.train.inputs[0].values.filename == together.train.inputs[0].values.filename  # type: ignore[attr-defined]


def test_small_expressions(tmp_path: Path) -> None:
    options = ListOpsOptions(
        n_train=50, n_validation=5, n_test=5, min_length=4, max_length=20, max_depth=3, max_args=3
    )
    data = load_listops(options, DataFolder(tmp_path))
    assert data.signature.length < 20
    assert min(map(len, sequences(data.train))) > 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "offical"}, "unknown source 'offical'; did you mean 'official'"),
        ({"nyu": "d9"}, "unknown nyu 'd9'"),
        ({"n_train": 0}, "n_train must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"max_args": 1}, "max_args must be at least 2"),
        ({"max_depth": 1}, "max_depth must be at least 2"),
        ({"min_length": 0}, "min_length must be at least 1"),
        ({"max_length": 501}, "no length lies strictly between"),
        ({"max_depth": 2}, "have 4 to 12 tokens, none strictly between 500 and 2000"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ListOpsOptions(**options)  # type: ignore[arg-type]


def test_more_expressions_than_there_are(tmp_path: Path) -> None:
    options = ListOpsOptions(min_length=1, max_length=5, max_depth=2, max_args=2, n_train=500)
    with pytest.raises(ValueError, match="2000 expressions wanted, but only 400 new"):
        load_listops(options, DataFolder(tmp_path))  # four operators of two digits


# ---- files ------------------------------------------------------------------------------------


def write_official(root: Path, train: str) -> None:
    folder = root / "lra_release" / "lra_release" / "listops-1000"
    folder.mkdir(parents=True)
    rest = "Source\tTarget\r\n( ( ( [MAX 3 ) 1 ) ] )\t3\r\n"
    for part in ("train", "val", "test"):
        (folder / f"basic_{part}.tsv").write_text(train if part == "train" else rest, newline="")


def test_official_files(tmp_path: Path) -> None:
    first, second = "( ( ( [SM 3 ) ( ( ( [MED 8 ) 5 ) ] ) ) ] )\t9", "( ( ( [MIN 3 ) 1 ) ] )\t1"
    write_official(tmp_path, f"Source\tTarget\r\n{first}\r\n{second}\r\n")
    data = load_listops(ListOpsOptions(source="official"), DataFolder(tmp_path))
    assert [len(split) for split in data.splits.values()] == [2, 1, 1]
    assert " ".join(words_of(sequences(data.train)[0])) == "[SM 3 [MED 8 5 ] ]"
    assert data.train.labels().tolist() == [9, 1]
    assert data.signature.features == 18
    assert data.signature.length == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[MAX 3 1 ]\t3\n", r"basic_train\.tsv:1: expected the header"),
        ("Source\tTarget\n[MAX 3 1 ]\t3\n[MAX 3 1 ]\t1\n", r":3: the label is 1, but .* value 3"),
        ("Source\tTarget\n[MAX 3 1 ]\t10\n", r":2: label '10', expected a digit"),
        ("Source\tTarget\n[MAX 3 1\t3\n", r":2: 1 operators without their closing"),
        ("Source\tTarget\n[MAX 3 1 ] 3\n", r":2: 1 fields, expected 2"),
        ("Source\tTarget\n", r"basic_train\.tsv has no expressions"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    write_official(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        load_listops(ListOpsOptions(source="official"), DataFolder(tmp_path))


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, download=False)
    with pytest.raises(MissingDataError, match="listops-1000"):
        load_listops(ListOpsOptions(source="official"), folder)
    with pytest.raises(MissingDataError, match=r"test_d20s\.tsv"):
        load_listops(ListOpsOptions(source="nyu"), folder)
    write_official(tmp_path, "Source\tTarget\n")
    (tmp_path / "lra_release/lra_release/listops-1000/basic_val.tsv").unlink()
    with pytest.raises(MissingDataError, match=r"basic_val\.tsv is missing"):
        load_listops(ListOpsOptions(source="official"), folder)


@pytest.mark.parametrize(("name", "longest"), [("d20s", 939), ("d20", 806), ("d8", 93)])
def test_every_label_of_nyu_is_recomputed(
    name: str, longest: int, real_data: Callable[..., Path], tmp_path: Path
) -> None:
    source = real_data("ucr") / "listops_nyu"
    lines = [line.split(b"\t") for line in (source / f"test_{name}.tsv").read_bytes().splitlines()]
    tokens = [tokenize(expression) for _, expression in lines]
    values = evaluate(np.concatenate(tokens))
    assert len(values) == 10000
    assert values.tolist() == [int(label) for label, _ in lines]
    (tmp_path / "listops_nyu").symlink_to(source)
    data = load_listops(ListOpsOptions(source="nyu", nyu=name), DataFolder(tmp_path))  # type: ignore[arg-type]
    assert [len(split) for split in data.splits.values()] == [8000, 1000, 1000]
    assert data.signature.length == longest
    parts = np.concatenate([split.index for split in data.splits.values()])
    assert np.array_equal(np.sort(parts), np.arange(10000))


def test_row_of_the_paper() -> None:
    task = TASKS["listops"]
    assert task.paper is not None
    assert (task.paper.n_layers, task.paper.d_model, task.paper.prenorm) == (8, 128, False)
    assert task.published["S4D-Lin"] == 60.52
