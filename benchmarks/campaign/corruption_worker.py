"""Makes one of everything that is kept on disk, or damages copies of it and has it read."""

import contextlib
import io
import json
import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corruption import copied, damage

from s4d_torch import S4D, SequenceModel, Stream, export_model
from s4d_torch.cli import main
from s4d_torch.training import Run, train_on
from training_job import small_config, small_data


def make(root: Path) -> None:
    train_on(small_data(), small_config(training={"epochs": 2}), out=root / "run", device="cpu")
    model = SequenceModel(1, 2, 4, 1, d_state=4)
    model.save_pretrained(root / "model")
    S4D(4, 4).save_pretrained(root / "layer")
    export_model(model, root / "export")
    (root / "stream").mkdir()
    stream = Stream(SequenceModel.from_pretrained(root / "model"))
    stream.push(torch.ones(7, 1))
    stream.snapshot(root / "stream" / "state")
    np.save(root / "input.npy", np.linspace(-1, 1, 12, dtype=np.float32)[:, None])


def command(*arguments: str) -> str:
    """What a command prints; its error is an error here, and says so in one line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    if code:
        assert "Traceback" not in err.getvalue(), err.getvalue()
        raise ValueError(err.getvalue())
    return out.getvalue()


def predict(folder: Path, root: Path) -> Any:
    return json.loads(command("predict", str(folder), str(root / "input.npy"), "--json"))


def go_on(folder: Path, root: Path) -> Any:
    """The same training again, which the checkpoints and the files of a run decide."""
    config = small_config(training={"epochs": 2})
    (folder / "summary.json").unlink(missing_ok=True)
    run = train_on(small_data(), config, out=folder, device="cpu")
    return {name: x for name, x in run.summary.items() if "seconds" not in name}


@torch.no_grad()
def weights(folder: Path, root: Path) -> Any:
    return SequenceModel.from_pretrained(folder).eval()(torch.ones(1, 9, 1))[0].tolist()


@torch.no_grad()
def layer(folder: Path, root: Path) -> Any:
    return S4D.from_pretrained(folder).eval()(torch.ones(1, 9, 4))[0].tolist()


def info(folder: Path, root: Path) -> Any:
    return command("info", str(folder))


def stream(folder: Path, root: Path) -> Any:
    live = Stream(SequenceModel.from_pretrained(root / "model"))
    live.restore(folder / "state")
    return live.push(torch.ones(1, 1)).tolist()


def export_again(folder: Path, root: Path) -> Any:
    """An export is replaced by a new one only where it is one."""
    export_model(SequenceModel.from_pretrained(root / "model"), folder)
    return "written"


READERS = {
    "predict": ("run", predict),
    "go on": ("run", go_on),
    "info": ("run", info),
    "load_run": ("run", lambda folder, root: Run.load(folder).config.to_json()),
    "weights": ("model", weights),
    "layer": ("layer", layer),
    "stream": ("stream", stream),
    "export": ("export", export_again),
}


def one(root: Path, seed: int, number: int, place: Path, known: dict[str, Any]) -> dict[str, str]:
    chance = random.Random(f"{seed} {number}")
    kind = sorted(READERS)[number % len(READERS)]
    source, read = READERS[kind]
    if kind not in known:
        copied(root / source, place)
        known[kind] = read(place, root)
    copied(root / source, place)
    files = sorted(file for file in place.rglob("*") if file.is_file() and file.name != ".lock")
    victim = chance.choice(files)
    what = f"{kind}, {victim.relative_to(place)}, {damage(chance, victim)}"
    said = ""
    try:
        found = read(place, root)
        # a file that is not read, or a bit that does not matter, changes nothing
        outcome = "right answer" if found == known[kind] or kind == "info" else "another answer"
        said = "" if outcome == "right answer" else f"{str(found)[:300]} / {str(known[kind])[:300]}"
    except (ValueError, OSError, TypeError) as error:
        lines = str(error).strip().splitlines()
        told = len(lines) <= 12 and len(str(error)) > 15 and "Traceback" not in str(error)
        outcome = "one sentence" if told else "an error that says little"
        said = "" if told else str(error)[:1000]
    except Exception:
        outcome, said = "an error that is not ours", traceback.format_exc()[-1500:]
    return {"kind": kind, "what": what, "outcome": outcome, "said": said}


def main_damage(root: Path, seed: int, start: int, stop: int) -> None:
    torch.set_num_threads(1)
    known: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(start, stop):
            found = one(root, seed, number, Path(scratch) / "copy", known)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        main_damage(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
