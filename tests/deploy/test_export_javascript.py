"""Exports run by ONNX Runtime in JavaScript: native in Node, and WebAssembly in a browser too."""

import json
import os
import re
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from browser import CHROMIUM, needs_browser
from s4d_torch import SequenceModel
from s4d_torch.deploy import export_model
from s4d_torch.deploy.export.exporter import Exported

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NODE = shutil.which("node")
PACKAGES = os.environ.get("S4D_TEST_NODE_MODULES", "")
RUNTIMES = ("onnxruntime-node", "onnxruntime-web")

# Reads the calls of one file from standard input, and writes their results to standard output.
SCRIPT = """
const load = require("node:module").createRequire(process.argv[1] + "/");
const ort = load(process.argv[2]);
const calls = JSON.parse(require("node:fs").readFileSync(0));
const arrays = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };
const tensor = ({ type, data, dims }) => new ort.Tensor(
  type, arrays[type].from(data, type === "int64" ? BigInt : Number), dims);
const plain = ({ data, dims }) => ({ data: Array.from(data, Number), dims });
(async () => {
  const session = await ort.InferenceSession.create(process.argv[3]);
  const results = [];
  for (const call of calls) {
    const feeds = Object.entries(call).map(([name, value]) => [name, tensor(value)]);
    const found = await session.run(Object.fromEntries(feeds));
    results.push(Object.fromEntries(Object.entries(found).map(([k, v]) => [k, plain(v)])));
  }
  console.log(JSON.stringify({ inputs: session.inputNames, results }));
})();
"""


def run_in_node(runtime: str, file: Path, *calls: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """What a runtime answers to each call of a file."""
    if NODE is None:
        pytest.skip("needs node")
    if not (Path(PACKAGES) / "node_modules" / runtime).is_dir():
        pytest.skip(
            f"needs the npm package {runtime}: npm install --ignore-scripts {' '.join(RUNTIMES)} "
            "in a folder that S4D_TEST_NODE_MODULES names"
        )
    given = [{name: _plain(x) for name, x in call.items()} for call in calls]
    done = subprocess.run(
        [NODE, "--input-type=commonjs", "-e", SCRIPT, PACKAGES, runtime, str(file)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["inputs"]) == set(calls[0])
    return [
        {name: torch.tensor(y["data"]).reshape(y["dims"]) for name, y in each.items()}
        for each in found["results"]
    ]


def _plain(x: Tensor) -> dict[str, Any]:
    kind = str(x.dtype).removeprefix("torch.")
    return {"type": kind, "data": x.flatten().tolist(), "dims": list(x.shape)}


def exported(folder: Path, **options: Any) -> tuple[SequenceModel, Exported]:
    model = SequenceModel(2, 3, 8, 2, d_state=8, generator=Generator().manual_seed(0), **options)
    return model.eval(), export_model(model, folder / "export")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "pooling": "last"}, {"method": "s4", "towers": 2}],
    ids=["causal", "both ways", "pairs"],
)
@torch.no_grad()
def test_ragged_batches_answer_as_in_torch(
    runtime: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model, done = exported(tmp_path, **options)
    generator, lead = Generator().manual_seed(1), (4, 2)[: model.towers]
    u = torch.randn(*lead, 150, 2, generator=generator)
    ragged = torch.randint(1, 151, lead, generator=generator)
    calls = [{"u": u, "lengths": lengths} for lengths in (torch.full(lead, 150), ragged)]
    answers = run_in_node(runtime, done.sequence, *calls)
    for call, answer in zip(calls, answers, strict=True):
        wanted = model(u, lengths=call["lengths"])[0]
        torch.testing.assert_close(answer["y"], wanted, rtol=1e-4, atol=1e-5)
    assert (answers[0]["y"] - answers[1]["y"]).abs().max() > 1e-3  # lengths were heard


@pytest.mark.parametrize("runtime", RUNTIMES)
@torch.no_grad()
def test_steps_answer_as_in_torch(runtime: str, tmp_path: Path) -> None:
    model, done = exported(tmp_path)
    u = torch.randn(3, 2, generator=Generator().manual_seed(1))
    inputs = done.facts["step"]["inputs"][1:]
    state = {
        each["name"]: torch.zeros(3, *each["shape"][1:], dtype=torch.float64) for each in inputs
    }
    assert done.step is not None
    (answer,) = run_in_node(runtime, done.step, {"u": u, **state})
    wanted, _ = model.step(u, model.initial_state(3))
    torch.testing.assert_close(answer["y"], wanted, rtol=1e-4, atol=1e-5)


@needs_browser
@torch.no_grad()
def test_the_page_of_the_docs(tmp_path: Path) -> None:
    packages = Path(PACKAGES) / "node_modules"
    if not (packages / "onnxruntime-web").is_dir():
        pytest.skip("needs the npm package onnxruntime-web; see S4D_TEST_NODE_MODULES above")
    docs = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    (page,) = re.findall(r"^```html\n(.*?)^```$", docs, re.DOTALL | re.MULTILINE)
    model = SequenceModel(1, 3, 8, 2, d_state=8, generator=Generator().manual_seed(0)).eval()
    export_model(model, tmp_path / "gestures")
    (tmp_path / "node_modules").symlink_to(packages)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/page.html"
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000")
        command = [str(CHROMIUM), *options, "--dump-dom", address]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        server.shutdown()
    found = re.search(r'<pre id="answers">([^<]+)</pre>', shown)
    assert found, shown
    u = torch.sin(torch.arange(100) / 5)[None, :, None]
    answers = torch.tensor([float(word) for word in found[1].split()])
    torch.testing.assert_close(answers, model(u)[0][0], rtol=0, atol=2e-5)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
