"""Exported pages in a browser: spoken to, drawn on, typed into; and their scripts in node."""

import json
import shutil
import subprocess
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from browser import browse, needs_browser
from c_models import job_of
from s4d_torch import SequenceModel
from s4d_torch.data import Signature
from s4d_torch.data.files.sound import read_audio
from s4d_torch.data.task import TASKS
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.web import web_page

NODE = shutil.which("node")
RATE = 8000
SOUND = Signature.of_classes(
    ("yes", "no", "<b>"), length=RATE, sample_rate=float(RATE), input_scale=(1e-3,)
)


def job(inputs: int = 1, **known: Any) -> Job:
    generator = Generator().manual_seed(0)
    outputs = known["signature"].outputs if "signature" in known else 3
    model = SequenceModel(inputs, outputs, 4, 2, d_state=4, generator=generator).eval()
    return replace(job_of(model), **known)


@torch.no_grad()
def answer(given: Job, u: Tensor) -> Tensor:
    """The model's own, to samples (length, features) as it reads them."""
    return given.model(u[None])[0][0]


def write_wav(path: Path, samples: np.ndarray, rate: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.rint(samples * 32767).astype("<i2").tobytes())
    return path


def words(rate: int) -> np.ndarray:
    """Two tones of a third of a second, with pauses."""
    t = np.arange(round(0.3 * rate)) / rate
    pause, tone = np.zeros(round(0.7 * rate)), 0.4 * np.sin(2 * np.pi * 440 * t)
    return np.concatenate([pause, tone, pause, tone])


# -- pages ----------------------------------------------------------------------------------------

UNTIL = """
const until = async (ready) => {
  for (let i = 0; i < 900 && !ready(); i++) await new Promise((done) => setTimeout(done, 20));
  if (!ready()) throw new Error("it did not happen");
};
"""

LISTEN = (
    UNTIL
    + """
const { view } = started;
document.getElementById("mode").value = MODE;
document.getElementById("listen").click();
if (MODE === "words") await until(() => document.querySelectorAll("#heard li").length >= 1);
else await until(() => view.read.length > 6500);
await view.stop();
await view.reader.working;
const [sample, ...y] = view.answers;
return { read: view.read, sample, y, heard: document.getElementById("heard").textContent,
  best: document.getElementById("best").textContent, checked: started.difference,
  message: document.getElementById("message").textContent,
  lines: view.history.rows.length,
  loud: Math.max(...view.history.loudness.map((each) => each[1])) };
"""
)


@needs_browser
@pytest.mark.parametrize("mode", ["words", "always"])
def test_a_microphone_is_heard(mode: str, tmp_path: Path) -> None:
    given = job(signature=SOUND)
    file = write_wav(tmp_path / "words.wav", words(48000), 48000)
    seen = browse(
        tmp_path,
        web_page(given, "words"),
        f"const MODE = {mode!r};" + LISTEN,
        options=(
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-audio-capture={file}",
            "--autoplay-policy=no-user-gesture-required",
        ),
    )
    assert seen["message"] == ""
    assert seen["checked"] < 1e-5
    assert seen["loud"] > 0.2
    assert seen["lines"] > 10
    u = torch.tensor(seen["read"])[:, None]
    assert seen["sample"] == len(u)
    wanted = answer(given, u)
    torch.testing.assert_close(torch.tensor(seen["y"]), wanted, rtol=0, atol=1e-4)
    best = SOUND.classes[int(wanted.argmax())]
    assert seen["best"] == best
    if mode == "words":
        assert best in seen["heard"]
        assert 0.25 * RATE < len(u) < 0.6 * RATE  # the tone, little of the pauses
    assert float(u.abs().max()) == pytest.approx(0.4 * 32768 * 1e-3, rel=0.1)


FILE = """
const bytes = Uint8Array.from(BYTES);
await started.view.takeFile(new File([bytes], "clip.wav"));
await started.view.reader.working;
const [sample, ...y] = started.view.answers;
const answers = { sample, y, read: started.view.read, message: message.textContent };
await started.view.takeFile(new File(["no sound"], "notes.txt"));
return { ...answers, refused: message.textContent };
"""


@needs_browser
def test_a_long_sound_is_read_as_a_whole(tmp_path: Path) -> None:
    given = job(signature=SOUND)
    script = """
    const noise = Float32Array.from({ length: 240000 }, (_, t) => 0.3 * Math.sin(t * t % 1000));
    await started.view.play(noise, "noise");
    const [sample, ...y] = started.view.answers, { history, read } = started.view;
    return { sample, y, count: read.length, u: read.slice(0, 100), rows: history.rows.length,
      first: history.times[0], last: history.times.at(-1) };
    """
    seen = browse(tmp_path, web_page(given, "words"), script)
    assert seen["sample"] == seen["count"] == 240000
    assert 2900 < seen["rows"] <= 3001
    assert seen["first"] < 0.05
    assert seen["last"] == 30.0
    t = torch.arange(240000, dtype=torch.float64)
    wave = (0.3 * torch.sin(t * t % 1000)).float()
    u = (wave.double() * 32768 * 1e-3).float()[:, None]
    torch.testing.assert_close(torch.tensor(seen["u"])[:, None], u[:100], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.tensor(seen["y"]), answer(given, u), rtol=0, atol=1e-4)


@needs_browser
@pytest.mark.parametrize("fixed", [False, True])
def test_a_sound_file_is_read(fixed: bool, tmp_path: Path) -> None:
    task = replace(TASKS["fsdd"], fixed_length=fixed)
    given = job(signature=SOUND, task=task)
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 3000)
    file = write_wav(tmp_path / "clip.wav", noise, RATE)
    script = FILE.replace("BYTES", json.dumps(list(file.read_bytes())))
    seen = browse(tmp_path, web_page(given, "words"), script)
    assert seen["message"] == ""
    assert seen["refused"].startswith("notes.txt cannot be read: it is no wav file")
    samples, _ = read_audio(file)
    u = SOUND.read(samples)
    if fixed:
        u = torch.nn.functional.pad(u, (0, 0, 0, RATE - len(u)))
    torch.testing.assert_close(torch.tensor(seen["read"])[:, None], u)
    torch.testing.assert_close(torch.tensor(seen["y"]), answer(given, u), rtol=0, atol=1e-4)


DRAW = (
    UNTIL
    + """
const { view } = started;
await view.read(PIXELS);
const y = view.answer, rows = view.history.rows.length;
document.getElementById("clear").click();
const cleared = [best.textContent, view.history.rows.length];
const pad = document.getElementById("pad"), box = pad.getBoundingClientRect();
pad.setPointerCapture = null;
const point = (type, x, y) => pad.dispatchEvent(new PointerEvent(type, { bubbles: true,
  clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerId: 1 }));
point("pointerdown", 0.5, 0.3);
point("pointermove", 0.5, 0.7);
point("pointerup", 0.5, 0.7);
await until(() => view.history.rows.length === 64);
const { data } = document.getElementById("seen").getContext("2d").getImageData(0, 0, 8, 8);
const seen = Array.from({ length: 64 }, (_, i) => data[4 * i]);
return { y, rows, cleared, seen, bars: document.querySelectorAll("#bars li").length,
  wide: document.documentElement.scrollWidth - innerWidth };
"""
)


@needs_browser
def test_a_drawing_is_read(tmp_path: Path) -> None:
    digits = TASKS["digits"]
    dataset = digits.load(digits.options(), None)
    known = {"signature": dataset.signature, "task": digits, "options": digits.options()}
    given = job(**known)
    values = dataset.test.inputs[0].values[0]  # (64, 1), up to 16
    script = DRAW.replace("PIXELS", json.dumps((values[:, 0] / 16).tolist()))
    seen = browse(tmp_path, web_page(given, "digits"), script, size="500,900")
    wanted = answer(given, dataset.signature.read(values))
    torch.testing.assert_close(torch.tensor(seen["y"]), wanted, rtol=0, atol=1e-4)
    assert seen["rows"] == 64
    assert seen["cleared"] == ["–", 0]
    picture = torch.tensor(seen["seen"]).unflatten(0, (8, 8))
    assert bool((picture[:, 3:5] > 100).all())  # an upright stroke fills the height
    assert bool((picture[:, :2] == 0).all())
    assert bool((picture[:, 6:] == 0).all())
    assert seen["bars"] == 10
    assert seen["wide"] <= 0  # nothing to scroll sideways on a phone


NUMBERS = """
const { view } = started, field = document.getElementById("field");
const read = async (text) => {
  field.value = text;
  await view.read();
  return { rows: view.rows, message: message.textContent };
};
const plain = await read(TEXT), named = await read("b,a\\n" + SWAPPED);
const short = await read("1 2\\n3"), word = await read("1 2\\n3 x"), empty = await read("");
const unknown = await read("a,c\\n1,2");
document.getElementById("example").click();
await view.reader.working;
return { plain, named, short, word, empty, unknown, example: view.rows.length,
  best: document.getElementById("best").textContent };
"""


@needs_browser
def test_numbers_are_read(tmp_path: Path) -> None:
    known = Signature(
        "regression",
        *(2, 1, 50),
        channels=("a", "b"),
        input_shift=(1.0, -2.0),
        input_scale=(0.5, 3.0),
        target_shift=10.0,
        target_scale=4.0,
    )
    given = job(2, signature=known)
    x = np.round(np.random.default_rng(0).normal(size=(30, 2)), 3)
    text = "\n".join(f"{a}, {b}" for a, b in x)
    swapped = "\n".join(f"{b}, {a}" for a, b in x)
    script = NUMBERS.replace("TEXT", json.dumps(text)).replace("SWAPPED", json.dumps(swapped))
    seen = browse(tmp_path, web_page(given, "numbers"), script)
    wanted = answer(given, known.read(x))
    for way in ("plain", "named"):
        y = torch.tensor(seen[way]["rows"])
        assert y.shape == (30, 1)
        torch.testing.assert_close(y[-1], wanted, rtol=0, atol=1e-4)
        assert seen[way]["message"] == ""
    assert seen["short"] == {"rows": [], "message": "line 2 has 1 values, expected 2"}
    assert seen["word"] == {"rows": [], "message": 'line 2: "x" is no finite number'}
    assert seen["empty"] == {"rows": [], "message": ""}
    assert seen["unknown"]["message"] == 'no column is called "b"; there are a, c'
    assert seen["example"] == 200
    assert float(seen["best"]) != 0


@needs_browser
def test_a_page_that_computes_something_else_says_so(tmp_path: Path) -> None:
    text = web_page(job(), "a model").replace("x[h] += mix(", "x[h] -= mix(")
    script = "return [checked.textContent, checked.className, best.textContent];"
    words, kind, _ = browse(tmp_path, text, script)
    assert words.startswith("This browser does not compute what the model does")
    assert kind == "bad"


# -- scripts --------------------------------------------------------------------------------------


def run_scripts(program: str, *names: str) -> Any:
    """What a program prints as JSON, with some of the page's scripts before it."""
    if NODE is None:
        pytest.skip("needs node (nodejs)")
    assets = Path(web_page.__code__.co_filename).parent / "assets"
    text = "\n".join((assets / f"{name}.js").read_text("utf-8") for name in names)
    command = [NODE, "--input-type=commonjs", "-e", text + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_wav_files_are_read_as_the_package_reads_them(name: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    file = tmp_path / "clip.wav"
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (50, 2))
    soundfile.write(file, samples, 11025, subtype=name)
    program = f"""
    const bytes = require("node:fs").readFileSync({json.dumps(str(file))});
    const found = readWav(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    const channels = found.channels.map((channel) => [...channel]);
    console.log(JSON.stringify({{ rate: found.rate, channels }}));
    """
    found = run_scripts(program, "sound")
    wanted, rate = read_audio(file)
    scale = 1.0 if wanted.dtype.kind == "f" else float(2 ** (8 * wanted.dtype.itemsize - 1))
    assert found["rate"] == rate
    np.testing.assert_allclose(np.array(found["channels"]).T, wanted / scale, atol=1e-7)


@pytest.mark.parametrize(("source", "target"), [(48000, 8000), (44100, 16000), (8000, 16000)])
def test_sound_at_another_rate(source: int, target: int) -> None:
    program = f"""
    const tone = (hertz, rate) => Float32Array.from({{ length: rate / 2 }}, (_, t) =>
      Math.sin(2 * Math.PI * hertz * t / rate));
    const sound = tone(440, {source}), whole = resampled(sound, {source}, {target});
    const resampler = new Resampler({source}, {target}), parts = [];
    for (let at = 0; at < sound.length; at += 777)
      parts.push(...resampler.push(sound.subarray(at, at + 777)));
    const wanted = tone(440, {target});
    const inner = [...wanted.keys()].slice(200, -200);
    const high = resampled(tone({0.62 * target}, {source}), {source}, {target});
    console.log(JSON.stringify({{
      length: [whole.length, wanted.length],
      error: Math.max(...inner.map((t) => Math.abs(whole[t] - wanted[t]))),
      chunks: Math.max(...parts.map((x, t) => Math.abs(x - whole[t]))), parts: parts.length,
      high: Math.max(...[...high.keys()].slice(200, -200).map((t) => Math.abs(high[t]))),
    }}));
    """
    found = run_scripts(program, "sound")
    assert found["length"] == [target // 2, target // 2]
    assert found["error"] < 2e-3
    assert found["chunks"] < 1e-6
    assert found["parts"] > target // 2 - 100
    if target < source:
        assert found["high"] < 2e-3  # what the lower rate cannot carry is gone


def test_words_are_cut_out_of_a_stream() -> None:
    program = f"""
    const sound = Float32Array.from({json.dumps(words(RATE).round(5).tolist())}), found = [];
    sound.forEach((x, t) => {{ sound[t] += 0.002 * Math.sin(t * t); }});
    const gate = new Gate({RATE}, (what, samples) => {{
      if (what === "begin") found.push(0);
      if (what === "samples") found[found.length - 1] += samples.length;
    }});
    for (let at = 0; at < sound.length; at += 341) gate.push(sound.subarray(at, at + 341));
    gate.close();
    const hum = Float32Array.from({{ length: 10 * {RATE} }}, (_, t) =>
      t < {RATE} ? 0 : Math.sin(t));
    const words = found.splice(0);
    gate.push(hum);
    console.log(JSON.stringify([words, found]));
    """
    found, hum = run_scripts(program, "sound")
    assert len(found) == 2
    assert all(0.28 * RATE < samples < 0.45 * RATE for samples in found)
    assert len(hum) == 1  # what goes on and on is the noise that words have to rise above
    assert 4.9 * RATE < hum[0] < 5.2 * RATE


def test_drawings_get_the_place_of_the_training_images() -> None:
    program = """
    const size = 100, ink = new Float32Array(size * size);
    for (let y = 10; y < 30; y++) for (let x = 60; x < 70; x++) ink[y * size + x] = 1;
    const whole = fittedPixels(ink, size, 8, 1), inner = fittedPixels(ink, size, 28, 20 / 28);
    const blank = fittedPixels(new Float32Array(size * size), size, 8, 1);
    console.log(JSON.stringify([...[whole, inner, blank].map((each) => [...each])]));
    """
    whole, inner, blank = (np.array(x) for x in run_scripts(program, "pixels"))
    picture = np.zeros((8, 8))
    picture[:, 2:6] = 1  # twice as high as wide, and as high as the image
    np.testing.assert_allclose(whole.reshape(8, 8), picture)
    picture = np.zeros((28, 28))
    picture[4:24, 9:19] = 1
    np.testing.assert_allclose(inner.reshape(28, 28), picture)
    assert not blank.any()
