"""Reviews and pairs of papers as bytes: what the files hold, the splits, and bad files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.data.folder import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.lra.retrieval import RetrievalOptions, load_retrieval
from s4d_torch.data.tasks.lra.text import TextOptions, load_text


def texts(split: Split, tower: int = 0) -> list[bytes]:
    return [split.inputs[tower][int(i)].tobytes() for i in split.index]


# ---- reviews ----------------------------------------------------------------------------------


def write_reviews(root: Path, each: int = 10) -> None:
    for part in ("train", "test"):
        for name in ("pos", "neg"):
            folder = root / "aclImdb" / part / name
            folder.mkdir(parents=True)
            for i in range(each):
                (folder / f"{i}_7.txt").write_bytes(f"{part} {name} {i}: café<br />".encode())


def test_reviews_are_bytes_with_their_labels(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    data = load_text(TextOptions(), DataFolder(tmp_path))
    assert [len(split) for split in data.splits.values()] == [18, 2, 20]
    assert data.signature.tokens
    assert data.signature.features == 256
    assert data.signature.classes == ("neg", "pos")
    for name, split in data.splits.items():
        part = "test" if name == "test" else "train"
        for text, label in zip(texts(split), split.labels(), strict=True):
            assert text.startswith(f"{part} {('neg', 'pos')[label]}".encode())
            assert text.endswith("café<br />".encode())
    learnt, validated = set(texts(data.train)), set(texts(data.validation))
    assert len(learnt | validated) == 20
    batch = data.batch(data.test, np.arange(3))
    assert batch.lengths is not None
    assert batch.inputs.shape == (3, int(batch.lengths.max()))


def test_reviews_are_cut_and_shuffled_by_their_options(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    folder = DataFolder(tmp_path)
    short = load_text(TextOptions(max_length=7), folder)
    assert short.signature.length == 7
    assert set(texts(short.train)) == {b"train p", b"train n"}
    first = load_text(TextOptions(), folder)
    assert texts(load_text(TextOptions(), folder).train) == texts(first.train)
    assert set(first.train.labels()[:8]) == {0, 1}  # not all of one class first
    other = load_text(TextOptions(split_seed=1), folder)
    assert texts(other.train) != texts(first.train)


def test_bad_reviews_are_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, download=False)
    with pytest.raises(MissingDataError, match="aclImdb"):
        load_text(TextOptions(), folder)
    write_reviews(tmp_path)
    empty = tmp_path / "aclImdb" / "train" / "pos" / "3_7.txt"
    empty.write_bytes(b"")
    with pytest.raises(ValueError, match=r"3_7\.txt is empty"):
        load_text(TextOptions(), folder)
    for file in (tmp_path / "aclImdb" / "test" / "neg").glob("*"):
        file.unlink()
    empty.write_bytes(b"x")
    with pytest.raises(MissingDataError, match=r"neg has no reviews"):
        load_text(TextOptions(), folder)
    (tmp_path / "aclImdb" / "test" / "neg").rmdir()
    with pytest.raises(
        MissingDataError, match=r"no folder test.neg; unpack aclImdb_v1.tar.gz again"
    ):
        load_text(TextOptions(), folder)
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        TextOptions(max_length=0)
    with pytest.raises(ValueError, match="validation must lie between 0 and 1"):
        TextOptions(validation=1.0)


@pytest.fixture(scope="module")
def reviews(
    real_data: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Dataset]:
    root = tmp_path_factory.mktemp("text")  # prepared afresh: what is tested is this code
    source = real_data("imdb") / "aclImdb"
    (root / "aclImdb").symlink_to(source)
    return source, load_text(TextOptions(), DataFolder(root))


def test_the_real_reviews(reviews: tuple[Path, Dataset]) -> None:
    source, data = reviews
    assert [len(split) for split in data.splits.values()] == [22500, 2500, 25000]
    assert int(data.test.labels().sum()) == 12500
    assert int(data.train.labels().sum()) + int(data.validation.labels().sum()) == 12500
    assert 0.45 < data.train.labels()[:1000].mean() < 0.55
    assert data.signature.length == 4096
    everything = np.concatenate([data.train.index, data.validation.index])
    assert np.array_equal(np.sort(everything), np.arange(25000))
    lengths = data.test.inputs[0].lengths(data.test.index)
    assert lengths.min() > 10
    assert 0.02 < (lengths == 4096).mean() < 0.04
    assert data.train.inputs[0].values.min() > 0  # 0 is for padding alone
    for name, label in (("pos/0_10.txt", 1), ("neg/0_2.txt", 0)):
        review = (source / "test" / name).read_bytes()[:4096]
        assert data.test.labels()[texts(data.test).index(review)] == label


# ---- pairs of papers --------------------------------------------------------------------------

PAIRS = "lra_release/lra_release/tsv_data"


def write_pairs(root: Path, **changed: bytes) -> Path:
    folder = root / PAIRS
    folder.mkdir(parents=True)
    lines = [
        b"1.0\tA-1\tB-2\tb'we cite \\xe2\\x80\\x9cthem\\xe2\\x80\\x9d\\n'\tb\"it's 'that'\\t\"\n",
        b'0.0\tA-3\tB-4\tplain "text\tother\r\n',
        b"1\tA-5\tB-6\tb''\tb'last'\n",
    ]
    for part, count in (("train", 3), ("eval", 2), ("test", 1)):
        content = changed.get(part, b"".join(lines[:count]))
        (folder / f"new_aan_pairs.{part}.tsv").write_bytes(content)
    return folder


def test_pairs_are_turned_back_into_bytes(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    data = load_retrieval(RetrievalOptions(), DataFolder(tmp_path))
    assert [len(split) for split in data.splits.values()] == [3, 2, 1]
    assert data.signature.towers == 2
    pairs = zip(texts(data.train, 0), texts(data.train, 1), data.train.labels(), strict=True)
    assert {(a, b, int(label)) for a, b, label in pairs} == {
        ("we cite “them”\n".encode(), b"it's 'that'\t", 1),
        (b'plain "text', b"other", 0),
        (b"\0", b"last", 1),  # an empty text keeps one sample
    }
    batch = data.batch(data.train, np.arange(3))
    assert batch.inputs.shape == (3, 2, data.signature.length)
    assert batch.lengths is not None
    assert batch.lengths.shape == (3, 2)


def test_pairs_are_cut_after_they_are_decoded(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    data = load_retrieval(RetrievalOptions(max_length=10), DataFolder(tmp_path))
    assert data.signature.length == 10
    assert b"we cite \xe2\x80" in texts(data.train)


def test_pairs_in_one_folder_less(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    (tmp_path / "lra_release" / "lra_release" / "tsv_data").rename(
        tmp_path / "lra_release" / "tsv_data"
    )
    data = load_retrieval(RetrievalOptions(), DataFolder(tmp_path, download=False))
    assert len(data.train) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1.0\ta\tb\ttext\n", r"train\.tsv:1: 4 fields separated by tabs; expected 5"),
        (b"1.0\ta\tb\tc\td\n2\ta\tb\tc\td\n", r"train\.tsv:2: label '2'; expected 0 or 1"),
        (b"yes\ta\tb\tc\td\n", r"train\.tsv:1: label 'yes'; expected 0 or 1"),
        (b"1.0\ta\tb\tb'open\td\n", r"train\.tsv:1: a text that starts as bytes"),
        (b"1.0\ta\tb\tb'x' + 'y'\td\n", r"train\.tsv:1: a text that starts as bytes"),
        (b"", r"train\.tsv is empty"),
    ],
)
def test_malformed_pairs_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write_pairs(tmp_path, train=content)
    with pytest.raises(ValueError, match=message):
        load_retrieval(RetrievalOptions(), DataFolder(tmp_path))


def test_missing_pairs_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="tsv_data"):
        load_retrieval(RetrievalOptions(), DataFolder(tmp_path, download=False))
    (write_pairs(tmp_path) / "new_aan_pairs.eval.tsv").unlink()
    with pytest.raises(MissingDataError, match=r"new_aan_pairs\.eval\.tsv is missing"):
        load_retrieval(RetrievalOptions(), DataFolder(tmp_path))
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        RetrievalOptions(max_length=0)


# ---- the paper --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "batch_size", "epochs", "s4d_inv"),
    [("text", 16, 32, 87.34), ("retrieval", 64, 20, 91.09)],
)
def test_rows_of_the_paper(name: str, batch_size: int, epochs: int, s4d_inv: float) -> None:
    task = TASKS[name]
    assert task.paper is not None
    assert (task.paper.batch_size, task.paper.epochs) == (batch_size, epochs)
    assert (task.paper.n_layers, task.paper.d_model, task.paper.norm) == (6, 256, "batch")
    assert task.published["S4D-Inv"] == s4d_inv
