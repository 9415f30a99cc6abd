"""Train the models that come with the package, and put them into it with their cards.

    python benchmarks/zoo.py --data-dir DATA --work runs/zoo [--only words mnist]

A training that was broken off goes on. One that is done is only packed: the best weights, the
settings, the scores and the stored answers go to ``src/s4d_torch/models/NAME``, and a row into
docs/models.md. One that takes many hours has several parts, each of which begins with the weights
of the one before: ``--parts 2`` stops after two of them, and the next call goes on from there, or
from the model in the package where the folder of the part before is gone.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.deploy.cards import card_of, page, shown
from s4d_torch.training import Run
from s4d_torch.training.run import count_groups
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.packaged import About

KEPT = ("run.json", "signature.json", "summary.json")
BEGIN, END = "<!-- all models -->", "<!-- made by benchmarks/zoo.py -->"
LIMIT = 3_000_000  # bytes of all models


@dataclass(frozen=True, kw_only=True)
class Recipe(About):
    """How a model is trained, and what is to be said about it."""

    train: str
    parts: tuple[str, ...] = ("",)
    """options of trainings one after the other, each of which begins where the last one ended"""

    def runs(self, name: str) -> list[tuple[str, str]]:
        """The name and the options of each training."""
        if len(self.parts) == 1:
            return [(name, self.train)]
        names = [f"{name}-{i}" for i in range(1, len(self.parts) + 1)]
        begins = ["", *(f"--init-from {before}" for before in names)]
        each = zip(names, self.parts, begins, strict=False)
        return [
            (own, " ".join(f"{self.train} {more} {begin}".split())) for own, more, begin in each
        ]


RECIPES = {
    "words": Recipe(
        train="sc35 --causal --preset small --data.sample-rate 8000 --model.n-layers 4 "
        "--model.d-model 48 --model.d-state 32 --model.norm batch --model.mixing linear "
        "--model.dropout 0.05 --training.rate-jitter 0.2 --epochs 20 --batch-size 16 --lr 0.01",
        title="which of nine words is spoken, while it is spoken",
        reads="sound at 8 kHz, one channel; files at other rates by its timescales or resampled",
        answers="one of nine words: all that the copy of the data at hand has",
        data="Speech Commands 0.02 (Warden 2018): 1,800 clips to learn from, 180 to test",
        licence="CC BY 4.0",
        split="by speaker: those of the test are not among those learned from; 20 speakers to "
        "test, by whom the interval is",
        not_for="words or languages it has not heard (it has no class for 'none of them'), "
        "security, or anything that must not be misheard",
        use="s4d stream words clip.wav",
    ),
    "mnist": Recipe(
        train="mnist --causal --preset small --model.n-layers 2 --model.d-model 48 "
        "--model.d-state 32 --model.norm batch --epochs 2 --lr 0.01",
        title="a handwritten digit, read pixel by pixel",
        reads="784 grey pixels (0 to 255), row by row, of a digit in the middle of 28x28",
        answers="one of ten digits",
        data="MNIST (LeCun et al. 1998): 54,000 images to learn from, 10,000 to test",
        licence="no formal licence",
        split="the official test set; writers of the two sets differ",
        not_for="digits of other sizes, places or pens than those of MNIST, cheques, post",
        use="s4d info mnist",
    ),
    "spoken-digits": Recipe(
        train="fsdd --causal --preset small --training.pack --training.rate-jitter 0.2 --epochs 10",
        title="which digit is spoken, while it is spoken",
        reads="sound at 8 kHz, one channel, about half a second",
        answers="one of ten digits",
        data="the Free Spoken Digit Dataset (Jackson et al.): 3,000 clips of six speakers",
        licence="CC BY-SA 4.0",
        split="by take, as is customary: the speakers of the test are among those learned from",
        not_for="other voices than those six, which it has not been tested on; security",
        use="s4d stream spoken-digits clip.wav",
    ),
    "digits-pixels": Recipe(
        train="digits-pixels --epochs 30",
        title="writes handwritten digits, pixel by pixel",
        reads="up to 64 grey levels (0 to 16) of an 8x8 image, row by row",
        answers="how probable each level is for the next pixel",
        data="Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998): 1,797 images",
        licence="CC BY 4.0",
        split="at random: 1,258 images to learn from, 359 to test",
        not_for="anything but a first look at generating",
        use="s4d generate digits-pixels --count 16 --zoom 8 --out digits.png",
    ),
    "heart-rate": Recipe(
        train="bidmc-hr --causal --preset small --data.split patient --data.sample-rate 25 "
        "--data.seconds 16 --data.tempos 8 --model.n-layers 4 --model.d-model 32 "
        "--model.d-state 32 --model.norm layer --model.dropout 0.1 --epochs 8 --batch-size 16 "
        "--lr 0.01",
        title="beats per minute from ECG and pulse, while they are recorded",
        reads="ECG lead II in mV and the pulse oximeter's PLETH, 25 samples per second",
        answers="the heart rate in beats per minute, of what it has heard so far",
        data="BIDMC (Pimentel et al. 2016): 8 minutes each of 46 patients in intensive care",
        licence="PhysioNet terms (ODC-BY 1.0)",
        split="by patient: 32 to learn from, 7 to validate, 7 to test, by whom the interval is",
        not_for="medicine, in any way: seven patients are no test of what it does to others",
        use="s4d stream heart-rate < recording.csv",
    ),
    "grey-images": Recipe(
        train="image --causal --preset small --model.n-layers 3 --model.d-model 48 "
        "--model.d-state 32 --epochs 5",
        title="what a small grey photograph shows, read pixel by pixel",
        reads="1,024 grey pixels (0 to 255), row by row, of 32x32",
        answers="one of the ten classes of CIFAR-10",
        data="CIFAR-10 in grey (Krizhevsky 2009): 45,000 images to learn from, 10,000 to test",
        licence="no formal licence",
        split="the official test set",
        not_for="photographs: models that see in two dimensions do this far better",
        use="s4d info grey-images",
    ),
    # Seven and a half hours of two threads: the rate stays up until the last part brings it down.
    "colour-images": Recipe(
        train="scifar --model.n-layers 6 --model.d-model 128 --method.init inv --epochs 22 "
        "--lr 0.01 --threads 2",
        parts=(
            "--optimizer.schedule constant --seed 0",
            "--optimizer.schedule constant --optimizer.warmup 0.02 --seed 1",
            "--optimizer.schedule constant --optimizer.warmup 0.02 --seed 2",
            "--optimizer.schedule cosine --optimizer.warmup 0.02 --seed 3",
        ),
        title="what a small colour photograph shows, read pixel by pixel in both directions",
        reads="1,024 pixels of red, green and blue (0 to 255), row by row, of 32x32",
        answers="one of the ten classes of CIFAR-10",
        data="CIFAR-10 (Krizhevsky 2009): 45,000 images to learn from, 10,000 to test",
        licence="no formal licence",
        split="the official test set",
        not_for="photographs: models that see in two dimensions do this far better, in less time",
        use="s4d info colour-images",
    ),
}


def main() -> None:
    given = _arguments()
    for name in given.only or packaged.names():
        folder, command = train(name, given)
        pack(name, folder, command, DataFolder(given.data_dir or default_root()))
    total = sum(path.stat().st_size for path in packaged.FOLDER.rglob("*") if path.is_file())
    print(f"{total / 1e6:.2f} MB in {packaged.FOLDER.name}")
    fill(Path(__file__).parents[1] / "docs" / "models.md")
    if total > LIMIT:
        raise SystemExit(f"more than {LIMIT / 1e6:g} MB: train smaller ones")


def train(name: str, given: argparse.Namespace) -> tuple[Path, str]:
    """Do what is left of a model's trainings; the folder of the last one, and all commands."""
    runs = RECIPES[name].runs(name)[: given.parts]
    commands = [f"s4d train {options} --out {own}" for own, options in runs]
    data = ["--data-dir", str(given.data_dir)] if given.data_dir else []
    known = packaged.card(name).command if name in packaged.names() else ""
    for i, (own, options) in enumerate(runs):
        folder, is_last = given.work / own, i == len(runs) - 1
        in_package = known.startswith("; ".join(commands[: i + 1])) and not is_last
        if in_package or (folder / "summary.json").exists():
            continue
        words = shlex.split(options)
        if "--init-from" in words:
            before = given.work / runs[i - 1][0]
            words[words.index("--init-from") + 1] = str(before) if before.exists() else name
        words += ["--out", str(folder), *data]
        subprocess.run([sys.executable, "-m", "s4d_torch", "train", *words], check=True)
    return given.work / runs[-1][0], "; ".join(commands)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", choices=RECIPES, help="these, not those of the package"
    )
    parser.add_argument("--parts", type=int, help="of a model's trainings, not all")
    parser.add_argument("--work", type=Path, default=Path("runs/zoo"), help="where they train")
    parser.add_argument("--data-dir", type=Path, help="where the data is, or is downloaded to")
    return parser.parse_args()


def pack(name: str, source: Path, command: str, data: DataFolder) -> None:
    """Put the run in ``source`` into the package, tested once more."""
    target, recipe = packaged.FOLDER / name, RECIPES[name]
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "best", target / "best", ignore=shutil.ignore_patterns("*.lock"))
    for file in KEPT:
        shutil.copy(source / file, target / file)
    _write(target / KEPT[0], without_place(json.loads((target / KEPT[0]).read_text("utf-8"))))
    run = Run.load(source)
    card = card_of(run, name, **{each.name: getattr(recipe, each.name) for each in fields(About)})
    if len(card.commit) != 40:
        raise SystemExit(f"{source} was trained by changed code; commit, and train it again")
    dataset = run.dataset(data)
    tested = run.evaluate(dataset)
    if any(abs(tested.scores[x] - score) > 1e-6 for x, score in card.scores.items()):
        raise SystemExit(f"{name} scores {tested.scores} now; {card.scores} when it was trained")
    ends = {x: list(interval) for x, interval in tested.intervals.items()}
    # by the groups that are known now, whatever was known in training
    known = {"test_intervals": ends, **count_groups(dataset.test)}
    _write(target / "summary.json", run.summary | known)
    # without the folders of this machine
    card = replace(card, command=command, intervals=card.intervals | ends)
    _write(target / packaged.CARD, card.to_json())
    _write(target / packaged.ANSWERS, answers(run))
    (target / packaged.PAGE).write_text(page(card), encoding="utf-8")
    print(f"{name}: {shown(card)}, {card.bytes / 1000:.0f} kB, {card.microseconds} us a sample")


def without_place(config: dict[str, Any]) -> dict[str, Any]:
    """A config that names the run it begins with, and not where that was."""
    if begin := config["training"].get("init_from"):
        config["training"]["init_from"] = Path(begin).name
    return config


def answers(run: Run) -> list[Any]:
    """What the model says to the probe: outputs of its whole sequences."""
    u = run.signature.read(packaged.probe(run.signature))
    with torch.no_grad():
        y, _ = run.model(u)
    outputs = y if y.ndim == 2 else y[:, -1]
    return [[float(f"{number:.7g}") for number in row] for row in outputs.tolist()]


def fill(path: Path) -> None:
    """Put the table of all models into a page of the docs, between its two marks."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    rows = ["| model | what it does | test | size | a sample |", "| --- | --- | --- | --- | --- |"]
    for card in packaged.cards():
        size, time_taken = f"{card.bytes / 1000:,.0f} kB", f"{card.microseconds:.2g} us"
        rows.append(f"| `{card.name}` | {card.title} | {shown(card)} | {size} | {time_taken} |")
    path.write_text("\n".join([f"{before}{BEGIN}", *rows, f"{END}{after}"]), encoding="utf-8")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
