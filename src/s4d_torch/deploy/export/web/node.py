"""The model of a written page, run by node: samples in, answers out."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

SECONDS = 300  # until a program is given up

# Takes the two parts out of the page itself, so that what is checked is what was written.
DRIVER = """
const fs = require("node:fs");
const text = fs.readFileSync(process.argv[1], "utf8");
const part = (id) => text.split(new RegExp(`<script id="${id}"[^>]*>`))[1].split("</script>")[0];
const { Model, selfTest } = new Function(`${part("runtime")}; return { Model, selfTest };`)();
const page = JSON.parse(part("model"));
const model = new Model(page.model), answers = [];
for (const block of JSON.parse(fs.readFileSync(0, "utf8")))
  if (block.length) answers.push(...model.push(block)); else model.reset();
const { engine } = model;
console.log(JSON.stringify({ answers, engine, selfTest: selfTest(model, page.test) }));
"""


class Answers(NamedTuple):
    """y (all samples, outputs), what the page finds by itself when it is opened, and by what."""

    y: Tensor
    self_test: float
    engine: str


class NodeError(ValueError):
    """A page whose model node cannot run."""


def find_node() -> str | None:
    return shutil.which("node")


def answers(node: str, page: Path, blocks: Sequence[Tensor], outputs: int) -> Answers:
    """u, each (samples, numbers of a sample); no samples is a reset."""
    given = json.dumps([[x if isfinite(x) else None for x in u.flatten().tolist()] for u in blocks])
    command = [node, "--input-type=commonjs", "-e", DRIVER, str(page)]
    try:
        ran = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NodeError(f"node could not be run: {error}; nothing was written") from error
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines()
        said = next((line for line in lines if re.match(r"\w*Error: ", line)), "".join(lines[:1]))
        raise NodeError(f"node failed with {ran.returncode}: {said}; nothing was written")
    found = json.loads(ran.stdout)
    numbers = [float("nan") if value is None else value for value in found["answers"]]
    y = torch.tensor(numbers, dtype=torch.float64).unflatten(0, (-1, outputs))
    by_itself = float("inf") if found["selfTest"] is None else float(found["selfTest"])
    return Answers(y, by_itself, found["engine"])
