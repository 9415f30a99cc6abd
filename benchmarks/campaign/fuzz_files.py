"""Files of every format that is read, damaged in every way, through the entries that read them."""

import functools
import gzip
import io
import json
import random
import tarfile
import warnings
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s4d_torch import S4D, SequenceModel, Stream
from s4d_torch.data.dataset import Dataset
from s4d_torch.data.files.archive import Limits, extract, is_archive
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.tasks.mnist import read_idx
from s4d_torch.data.user_files import find_task, read_items
from s4d_torch.training import Run, train_on
from training_job import small_config, small_data

CELLS = ["", "nan", "inf", "-1e999", "1e40", "x" * 300, "\0", '"', '"a\nb"', "1,5", "é", "½", "0x1"]
CELLS += [
    "-",
    ",",
    ";;;",
    "\ud800",
    "?",
    "NA",
    "1_000",
    "٣",
    "[1]",
    "true",
    "1e",
    " ",
    "\t",
    "\x1b[31m",
]


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Cut, flipped, overwritten, doubled, or with a number in it that is too large."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 3, 20])):
        at = chance.randrange(len(data) or 1)
        # headers decide more than what follows
        at = chance.randrange(min(at + 1, 200) or 1) if chance.random() < 0.5 else at
        match chance.randrange(9):
            case 0:
                del data[at:]
            case 1 | 2 | 3:
                data[at : at + 1] = bytes([data[at] ^ 1 << chance.randrange(8)]) if data else b"x"
            case 4:
                data[at : at + 8] = chance.randbytes(chance.randint(0, 16))
            case 5:
                data[at:at] = data[at : at + 100]
            case 6:
                data[at : at + 4] = chance.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"])
            case 7:
                data += chance.randbytes(chance.randint(1, 100))
            case 8:
                del data[at : at + chance.randint(1, 50)]
    return bytes(data)


def edited(chance: random.Random, text: str) -> bytes:
    """Text in which cells and lines are others."""
    lines = text.split("\n")
    for _ in range(chance.choice([1, 1, 2, 6])):
        at = chance.randrange(len(lines))
        cells = lines[at].replace(":", ",").split(",")
        match chance.randrange(8):
            case 0:
                lines.insert(at, lines[chance.randrange(len(lines))])
            case 1:
                del lines[at]
            case 2:
                lines[at] = chance.choice(CELLS)
            case 3:
                lines[at] = ",".join(cells[:-1])
            case _:
                cell = chance.choice(cells)
                lines[at] = lines[at].replace(cell, chance.choice(CELLS), 1)
        lines = lines or [""]
    raw = chance.choice(["\n", "\n", "\r\n"]).join(lines)
    coding = chance.choice(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig"])
    content = raw.encode(coding, "replace" if coding == "latin-1" else "surrogatepass")
    return damaged(chance, content) if chance.random() < 0.3 else content


def check_dataset(dataset: Dataset) -> None:
    """What every reader promises of what it has read."""
    signature = dataset.signature
    for name, split in dataset.splits.items():
        for i in range(min(len(split), 5)):
            values = signature.read(np.asarray(split.inputs[0][i])).double()
            assert len(values) >= 1, f"{name} has a sequence without samples"
            assert bool(values.isfinite().all()), f"{name} holds what is no number"
        targets = np.asarray(split.targets, dtype=np.float64)
        assert np.isfinite(targets).all(), f"{name} has a target that is no number"
        if signature.kind == "classification" and len(targets):
            assert 0 <= targets.min() <= targets.max() < signature.outputs, "a class that is none"


def load(path: Path, folder: Path) -> Dataset:
    """As ``s4d train PATH`` reads it."""
    task, options = find_task(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return task.load(options, DataFolder(folder / "data", download=False))


def through(path: Path, folder: Path, chance: random.Random) -> None:
    """To train on, or to predict from with a run on good data."""
    if chance.random() < 0.7:
        check_dataset(load(path, folder))
        return
    good = path.with_name(f"good{path.suffix}")
    task, options = find_task(str(good))
    for item in read_items(path, good_signature(str(good.parent), good.suffix), task, options):
        assert item is not None


@functools.cache
def good_signature(folder: str, suffix: str) -> Any:
    place = Path(folder)
    return load(place / f"good{suffix}", place).signature


@functools.cache
def good_csv() -> str:
    rows = [
        f"{case},{t},{np.sin(case + t):.3f},{(case * t) % 7},{'ab'[case % 2]}"
        for case in range(12)
        for t in range(6)
    ]
    return "\n".join(["id,time,x,y1,label", *rows, ""])


@functools.cache
def good_ts() -> str:
    head = "@problemName x\n@timestamps false\n@univariate true\n@classLabel true a b\n@data\n"
    rows = [
        ",".join(f"{np.cos(i * t):.3f}" for t in range(8)) + f":{'ab'[i % 2]}" for i in range(12)
    ]
    return head + "\n".join([*rows, ""])


def csv(chance: random.Random, folder: Path) -> None:
    (folder / "good.csv").write_text(good_csv())
    (folder / "x.csv").write_bytes(edited(chance, good_csv()))
    through(folder / "x.csv", folder, chance)


def ts(chance: random.Random, folder: Path) -> None:
    (folder / "x_TRAIN.ts").write_bytes(edited(chance, good_ts()))
    check_dataset(load(folder / "x_TRAIN.ts", folder))


def arrays() -> dict[str, Any]:
    X = np.random.default_rng(0).standard_normal((12, 6, 2))
    return {"X": X.astype(np.float32), "y": np.arange(12) % 3}


def npz(chance: random.Random, folder: Path) -> None:
    content, good = io.BytesIO(), arrays()
    np.savez(folder / "good.npz", **good)
    odd = [
        *(good["X"].astype(object), good["X"][:, :0], good["X"][:0], good["X"] * np.nan),
        *(good["X"].astype("U"), good["X"].astype(np.complex64), good["X"] * 1e38 * 1e3),
        *(good["X"][..., None], good["X"][:, 0, 0], np.zeros(12, "M8[s]"), good["X"].astype(">f8")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if chance.random() < 0.4:
            good[chance.choice(["X", "y", "z"])] = chance.choice(odd)
        (np.savez_compressed if chance.random() < 0.3 else np.savez)(content, **good)
    raw = content.getvalue()
    (folder / "x.npz").write_bytes(damaged(chance, raw) if chance.random() < 0.8 else raw)
    through(folder / "x.npz", folder, chance)


def npy(chance: random.Random, folder: Path) -> None:
    content = io.BytesIO()
    np.save(content, arrays()["X"])
    np.save(folder / "y.npy", arrays()["y"])
    (folder / "x.npy").write_bytes(damaged(chance, content.getvalue()))
    task, options = find_task(str(folder / "x.npy"))
    options = type(options)(path=folder / "x.npy", targets=str(folder / "y.npy"))
    check_dataset(task.load(options, DataFolder(folder / "data", download=False)))


@functools.cache
def good_wav() -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(
            (np.random.default_rng(0).standard_normal(400) * 3000).astype("<i2").tobytes()
        )
    return content.getvalue()


def wav(chance: random.Random, folder: Path) -> None:
    for i in range(8):
        place = folder / "sounds" / "ab"[i % 2] / f"{i}.wav"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(good_wav() if i else damaged(chance, good_wav()))
    check_dataset(load(folder / "sounds", folder))


def idx(chance: random.Random, folder: Path) -> None:
    raw = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (5, 4, 3)) + bytes(60)
    if packed := chance.random() < 0.5:
        raw = gzip.compress(damaged(chance, raw) if chance.random() < 0.5 else raw)
    place = folder / f"x{'.gz' * packed}"
    place.write_bytes(damaged(chance, raw))
    found = read_idx(place, 3)
    assert found.ndim == 3, "three dimensions"


def cifar(chance: random.Random, folder: Path) -> None:
    place = folder / "data" / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    record = bytes([3]) + bytes(3072)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (place / name).write_bytes(record * 4)
    (place / "data_batch_2.bin").write_bytes(damaged(chance, record * 4))
    task, options = find_task("scifar")
    check_dataset(task.load(options, DataFolder(folder / "data", download=False)))


def archive(chance: random.Random, folder: Path, kind: str) -> None:
    members = {"a.txt": b"first" * 50, "sub/b.bin": bytes(range(256)), "c": b""}
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w", chance.choice([0, 8])) as packed:
            for name, inside in members.items():
                packed.writestr(name, inside)
    else:
        form = chance.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
        with tarfile.open(fileobj=content, mode="w", format=form) as packed_tar:
            for name, inside in members.items():
                long = name * 60 if chance.random() < 0.3 and form != tarfile.USTAR_FORMAT else name
                info = tarfile.TarInfo(long)
                info.size = len(inside)
                packed_tar.addfile(info, io.BytesIO(inside))
    raw = content.getvalue()
    if kind == "tar" and chance.random() < 0.4:
        raw, kind = gzip.compress(damaged(chance, raw)), "tgz"
    path = folder / f"x.{kind}"
    path.write_bytes(damaged(chance, raw))
    is_archive(path)
    extract(path, folder / "out", Limits(total=1 << 20))
    outside = [each for each in folder.iterdir() if each.name not in ("out", path.name)]
    assert not outside, f"{outside} is outside"


@functools.cache
@torch.enable_grad()
def saved() -> dict[str, dict[str, bytes]]:
    """Files of a run, of weights, of a layer and of a stream, by their names."""
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        place = Path(root)
        run = train_on(small_data(), small_config(training={"epochs": 1}), out=place / "run")
        SequenceModel(2, 3, 4, 1, d_state=4).save_pretrained(place / "model")
        S4D(4, 4).save_pretrained(place / "layer")
        torch.manual_seed(0)
        assert run.folder is not None
        return {
            name: {
                str(file.relative_to(place / name)): file.read_bytes()
                for file in (place / name).rglob("*")
                if file.is_file() and file.name != ".lock"
            }
            for name in ("run", "model", "layer")
        }


def rewritten(chance: random.Random, folder: Path, name: str) -> str:
    """The files of ``saved``, one of them damaged or gone; which."""
    files = saved()[name]
    victim = chance.choice(sorted(files))
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if file == victim and chance.random() < 0.05:
            continue
        if file == victim:
            text = file.endswith((".json", ".csv")) and chance.random() < 0.6
            content = changed_json(chance, content, file) if text else damaged(chance, content)
        (folder / file).write_bytes(content)
    return victim


def changed_json(chance: random.Random, content: bytes, file: str) -> bytes:
    """JSON that can be read, with something in it that should not be."""
    if file.endswith(".csv"):
        return edited(chance, content.decode())
    described = json.loads(content)
    values = [None, 0, -1, 1e9, 10**30, "x", [], {}, True, 1.5, [1, "a"], {"a": 1}, float("nan")]
    place: Any = described
    while isinstance(place, dict) and place:
        name = chance.choice(sorted(place))
        if not isinstance(place[name], dict) or chance.random() < 0.2:
            if chance.random() < 0.2:
                del place[name]
            else:
                place[name] = chance.choice(values)
            break
        place = place[name]
    if chance.random() < 0.05:
        described = chance.choice(values)
    return json.dumps(described).encode()


@torch.no_grad()
def pretrained(chance: random.Random, folder: Path) -> None:
    name = chance.choice(["model", "layer"])
    rewritten(chance, folder, name)
    if name == "model":
        y = SequenceModel.from_pretrained(folder).eval()(torch.ones(1, 5, 2))[0]
    else:
        y = S4D.from_pretrained(folder).eval()(torch.ones(1, 5, 4))[0]
    assert bool(y.isfinite().all()), "weights that are no numbers"


@torch.no_grad()
def run(chance: random.Random, folder: Path) -> None:
    victim = rewritten(chance, folder, "run")
    found = Run.load(folder)
    (y,) = (
        found.predict([np.ones((12, 1), np.float32)])
        if hasattr(found, "predict")
        else (found.model.eval()(torch.ones(1, 12, 1))[0])
    )
    assert bool(torch.as_tensor(y).isfinite().all()), f"no numbers, after damage to {victim}"


@functools.cache
def snapshot_bytes() -> tuple[SequenceModel, bytes]:
    import tempfile

    torch.manual_seed(1)
    made = SequenceModel(2, 3, 4, 1, d_state=4).eval()
    live = Stream(made)
    live.push(torch.ones(5, 2))
    with tempfile.TemporaryDirectory() as root:
        live.snapshot(Path(root) / "x")
        return made, (Path(root) / "x").read_bytes()


def snapshot(chance: random.Random, folder: Path) -> None:
    made, content = snapshot_bytes()
    (folder / "x").write_bytes(damaged(chance, content))
    live = Stream(made)
    live.restore(folder / "x")
    assert bool(live.push(torch.ones(1, 2)).isfinite().all()), "a state that is no number"


CASES: dict[str, Callable[[random.Random, Path], None]] = {
    "csv": csv,
    "npz": npz,
    "npy": npy,
    "ts": ts,
    "wav": wav,
    "idx": idx,
    "cifar": cifar,
    "tar": functools.partial(archive, kind="tar"),
    "zip": functools.partial(archive, kind="zip"),
    "pretrained": pretrained,
    "run": run,
    "snapshot": snapshot,
}
