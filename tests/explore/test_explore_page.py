"""The page of ``s4d explore`` in a browser: poles to drag, keys, runs to load, code to copy."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from browser import browse, needs_browser
from s4d_torch import SSM
from s4d_torch.cli import main
from s4d_torch.cli.common.parsing import UsageError
from s4d_torch.cli.explore import Explore
from s4d_torch.explore.interactive import describe_run, explore_page
from s4d_torch.ssm.constraint import FLOOR
from s4d_torch.training import Run
from test_explore import AS_RUN, assert_near, evaluate


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("explore")
    small = ("--model.d-model", "4", "--model.n-layers", "2", "--model.d-state", "8")
    less = ("--epochs", "1", "--threads", "1", "--training.train-size", "100", "--quiet")
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S4D_TORCH_DATA", str(root / "data"))
        assert main(["train", "digits", *small, *less, "--out", str(root / "run")]) == 0
    torch.set_num_threads(threads)
    return root / "run"


def write(folder: Path, run: Path, *, as_json: bool = False) -> str:
    file = folder / "written"
    Explore(str(run), out=file, json=as_json).run(Console(quiet=True))
    return file.read_text("utf-8")


def test_the_page_asks_nothing_of_the_network() -> None:
    text = explore_page()
    assert not re.search(r"https?:|//\w+\.|\bsrc=|\bimport\(|fetch\(|XMLHttp|@import", text)
    assert not re.search(r"/\*(STYLE|SCRIPT|RUN)\*/", text)


def test_a_run_cannot_break_out_of_the_page() -> None:
    text = explore_page({**AS_RUN, "name": "</script><script>alert(1)</script>"})
    assert text.count("<script") == explore_page().count("<script")


STATE = """
const K = () => [...view.kernel];
const A = (n) => at(view.system.A, n);
const until = async (ready) => {
  for (let i = 0; i < 500 && !ready(); i++) await new Promise((done) => setTimeout(done, 20));
};
"""

DRAG = (
    STATE
    + """
const before = K();
const svg = plots[PLOT].svg, box = svg.getBoundingClientRect();
const was = at(polesOf(plots[PLOT]), n);
const [x, y] = plots[PLOT].at(was[0], BELOW ? -was[1] : was[1]);
const point = (type, dx, dy, target) => target.dispatchEvent(new PointerEvent(type, {
  clientX: box.left + x + dx, clientY: box.top + y + dy, bubbles: true, cancelable: true,
  pointerId: 1, pointerType: "touch" }));
point("pointerdown", 2, 1, svg);
const held = at(polesOf(plots[PLOT]), n);
for (let i = 1; i <= 5; i++) point("pointermove", 2 - 4 * i, 1 + 3 * i, document.body);
const during = K();
point("pointerup", -18, 16, document.body);
const now = at(polesOf(plots[PLOT]), n);
const height = (mark) => Number(svg.querySelector(`${mark}.chosen`).getAttribute("cy"));
const mirror = height(".conjugate") + height(".pole") - 2 * plots[PLOT].at(0, 0)[1];
const change = (a, b) => Math.max(...a.map((v, i) => Math.abs(v - b[i])));
const changed = change(before, during);
const shown = document.getElementById("pole-re").value, real = A(n)[0];
const ghost = document.querySelectorAll("#kernel .before").length;
document.getElementById("put-back").click();
await until(() => location.hash.includes("selected"));
return { was, held, now, moved: [...state.moved.keys()], changed, shown, real, ghost,
  mirrored: Math.abs(mirror), restored: change(before, K()), address: location.hash };
"""
)


@needs_browser
@pytest.mark.parametrize(
    ("plot", "pole", "below"), [("eigenvalues", 12, False), ("discrete", 1, True)]
)
def test_a_pole_is_dragged_with_its_conjugate(
    tmp_path: Path, plot: str, pole: int, below: bool
) -> None:
    constants = f"const PLOT = {plot!r}, n = {pole}, BELOW = {json.dumps(below)};"
    seen = browse(tmp_path, explore_page(), constants + DRAG)
    assert seen["held"] == seen["was"]  # no jump to the finger
    (x0, y0), (x1, y1) = seen["was"], seen["now"]
    assert x1 < x0
    assert y1 > y0 if below else y1 < y0
    assert seen["changed"] > 1e-3
    assert seen["mirrored"] < 0.2
    assert seen["ghost"] == 1
    assert float(seen["shown"]) == pytest.approx(seen["real"], rel=1e-4)
    assert seen["real"] != -0.5
    assert seen["moved"] == []
    assert seen["restored"] == 0
    assert f"selected={pole}" in seen["address"]


KEYS = (
    STATE
    + """
const svg = plots.eigenvalues.svg;
svg.focus();
const press = (key, shiftKey = false) => svg.dispatchEvent(
  new KeyboardEvent("keydown", { key, shiftKey, bubbles: true, cancelable: true }));
const steps = [];
press("Home");
for (const key of ["PageDown", "]", "["]) { press(key); steps.push(state.selected); }
press("End"); steps.push(state.selected);
const [re, im] = A(state.selected);
press("ArrowLeft"); const left = A(state.selected)[0];
press("ArrowUp"); const up = A(state.selected)[1];
press("ArrowUp", true); const fine = A(state.selected)[1];
for (let i = 0; i < 50; i++) press("ArrowRight");
const stopped = A(state.selected)[0];
document.querySelector("input[value=identity]").click();
press("ArrowRight"); const free = A(state.selected)[0];
const warned = document.getElementById("warning").textContent;
press("Delete"); const back = A(state.selected);
document.getElementById("reset").click();
return { steps, re, im, left, up, fine, stopped, free, warned, back, constraint: state.constraint };
"""
)


@needs_browser
def test_poles_move_by_the_keyboard_and_the_constraint_holds_them(tmp_path: Path) -> None:
    seen = browse(tmp_path, explore_page(), KEYS)
    assert seen["steps"] == [1, 2, 1, 15]
    assert seen["left"] < seen["re"]
    assert seen["im"] < seen["up"] < seen["fine"] < 2 * seen["up"] - seen["im"]
    assert seen["stopped"] == pytest.approx(-FLOOR)
    assert seen["free"] > 0
    assert "Unstable" in seen["warned"]
    assert seen["back"] == [seen["re"], seen["im"]]
    assert seen["constraint"] == "exp"


@needs_browser
@pytest.mark.parametrize("size", ["1400,900", "390,844"])
def test_the_page_fits_and_every_picture_is_labelled(tmp_path: Path, size: str) -> None:
    script = """
      const wide = document.documentElement.scrollWidth > innerWidth;
      const labels = [...document.querySelectorAll("figure svg")].map(
        (svg) => svg.querySelectorAll("text.label").length);
      const nameless = [...document.querySelectorAll("input, select, button")].filter((x) =>
        !x.labels?.length && !x.textContent.trim() && !x.getAttribute("aria-label"));
      const theme = document.documentElement.dataset.theme;
      return [wide, labels, nameless.map((x) => x.id), theme, choices.open, innerWidth];
    """
    wide, labels, nameless, theme, opened, width = browse(
        tmp_path, explore_page(), script, size, "#theme=dark"
    )
    assert not wide
    assert labels == [2] * 6
    assert nameless == []
    assert theme == "dark"
    assert opened == (width > 760)


@needs_browser
def test_an_address_brings_the_choice_back(tmp_path: Path) -> None:
    script = STATE + "return [toHash(state), document.getElementById('code').textContent, K()];"
    address = (
        "init=inv&N=12&imagScale=2&randomReal=true&seed=7&dt=0.03&rule=zoh&constraint=softplus"
        "&length=64&selected=2&moved=2:-0.25:9"
    )
    again, code, K = browse(tmp_path, explore_page(), script, hash=f"#{address}")
    assert again == address
    made: dict[str, Any] = {}
    exec(code, made)
    assert_near(K, made["K"].detach(), "the copied code's kernel")


@needs_browser
def test_the_copied_code_makes_the_picture(tmp_path: Path) -> None:
    addresses = [
        "init=real&N=6&C=ones&moved=1:-3:0",
        "B=hippo-half&rule=foh",
        "C=ones",
        "init=rand",
    ]
    script = f"""{STATE} return {addresses}.map((address) => {{
      state = fromHash(address, null);
      update();
      return [toHash(state), document.getElementById("code").textContent, K()];
    }});"""
    for address, (again, code, K) in zip(
        addresses, browse(tmp_path, explore_page(), script), strict=True
    ):
        assert again.startswith(address.partition("&moved")[0])
        made: dict[str, Any] = {}
        exec(code, made)
        assert_near(K, made["K"].detach(), f"{address}: the copied code's kernel")


def test_an_address_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    nonsense = "init=none&N=x&dt=&moved=1:a:b;;x&rule=__proto__&length=3&selected=NaN&seed=-1"
    assert evaluate(tmp_path, f"return toHash(fromHash('#{nonsense}', null));") == ""


LOAD = (
    STATE
    + """
const message = document.getElementById("message");
const input = document.getElementById("file");
const load = async (text, drop = false) => {
  message.textContent = "";
  const data = new DataTransfer();
  data.items.add(new File([text], "run.json", { type: "application/json" }));
  const dropped = new DragEvent("drop", { dataTransfer: data, bubbles: true });
  if (drop) document.body.dispatchEvent(dropped);
  else { input.files = data.files; input.dispatchEvent(new Event("change")); }
  await until(() => state.mode === "run" || message.textContent);
  return message.hidden ? "" : message.textContent;
};
const bad = [];
for (const text of BAD) bad.push(await load(text));
const atFirst = state.mode;
const good = await load(RUN, true);
const slide = (id, value) => {
  const slider = document.getElementById(id);
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
};
slide("layer", 2); slide("channel", 3); slide("length", 0);
const seen = { mode: state.mode, K: K(), hash: toHash(state), code: code.textContent };
document.getElementById("leave-run").click();
return { bad, atFirst, good, ...seen, left: state.mode };
"""
)


@needs_browser
def test_a_run_is_loaded_and_scrolled(tmp_path: Path, run_folder: Path) -> None:
    text = write(tmp_path, run_folder, as_json=True)
    content = json.loads(text)
    content["layers"][1]["C"]["re"][0][0][0] = None
    wrong = [
        ("not json", "not JSON"),
        ("[1]", "does not hold a run"),
        (json.dumps({**AS_RUN, "version": 9, "layers": []}), "version 9, this page reads 1"),
        (json.dumps({**AS_RUN, "layers": []}), 'no "layers"'),
        (json.dumps({**AS_RUN, "layers": [{"discretization": "x"}]}), "Layer 1"),
        (json.dumps(content), 'Layer 2 of this file is damaged: "C.re" should be finite'),
    ]
    given = f"const BAD = {json.dumps([bad for bad, _ in wrong])}, RUN = {json.dumps(text)};"
    seen = browse(tmp_path, explore_page(), given + LOAD)
    for (_, expected), message in zip(wrong, seen["bad"], strict=True):
        assert expected in message
        assert "s4d" in message
    assert (seen["atFirst"], seen["good"], seen["mode"], seen["left"]) == (
        "start",
        "",
        "run",
        "start",
    )
    run = Run.load(run_folder)
    ssm = [module for module in run.model.modules() if isinstance(module, SSM)][1].double()
    assert_near(seen["K"], ssm.kernel(64)[2].detach(), "kernel of layer 2, channel 3", 1e-7)
    assert seen["hash"].startswith("layer=2&channel=3&")
    made: dict[str, Any] = {}
    exec(seen["code"], made)  # as copied, whatever folder Python is started in
    assert made["K"].shape == (64,)
    assert_near(seen["K"], made["K"].detach(), "the copied code's kernel", 1e-7)


@needs_browser
def test_a_page_is_written_with_its_run_inside(tmp_path: Path, run_folder: Path) -> None:
    text = write(tmp_path, run_folder)
    script = STATE + "return [state.mode, state.layer, state.channel, view.cloud.re.length];"
    assert browse(tmp_path, text, script, hash="#layer=2&channel=4") == ["run", 1, 3, 16]


@needs_browser
def test_a_run_shows_as_many_samples_as_its_sequences_have(
    tmp_path: Path, run_folder: Path
) -> None:
    described = describe_run(Run.load(run_folder))
    script = (
        STATE
        + """
const shown = () => [state.length, K().length, document.getElementById("length-shown").textContent];
const first = shown(), slider = document.getElementById("length");
slider.value = slider.max; slider.dispatchEvent(new Event("input"));
const last = shown(), address = toHash(state), again = fromHash(address, run).length;
document.getElementById("reset").click();
const note = document.getElementById("run-note").textContent;
return { first, last, again, note, reset: shown() };
"""
    )
    seen = browse(tmp_path, explore_page(described | {"length": 5000}), script)
    assert seen["first"] == seen["last"] == seen["reset"] == [5000, 5000, "5000"]
    assert seen["again"] == 5000
    assert "up to 5000 samples" in seen["note"]
    assert described["length"] == 64


@needs_browser
def test_a_growing_pole_stays_in_sight(tmp_path: Path) -> None:
    script = (
        STATE
        + """
state = fromHash("constraint=identity&dt=0.1&moved=3:6:20", null);
update();
const inside = (id) => {
  const box = plots[id].svg.getBoundingClientRect();
  const [x, y] = plots[id].at(...at(polesOf(plots[id]), 3));
  return x > 0 && x < box.width && y > 0 && y < box.height;
};
return [A(3), inside("eigenvalues"), inside("discrete"), cabs(at(view.discrete.bar, 3))];
"""
    )
    pole, eigenvalue, discrete, size = browse(tmp_path, explore_page(), script)
    assert pole == [6, 20]
    assert size > 1.15
    assert eigenvalue
    assert discrete


def test_what_the_command_refuses(tmp_path: Path, run_folder: Path) -> None:
    with pytest.raises(UsageError, match="name it with --run"):
        Explore(json=True).run(Console(quiet=True))
    with pytest.raises(OSError, match="nothing"):
        Explore(str(tmp_path / "nothing")).run(Console(quiet=True))
    run = Run.load(run_folder)
    run.model.blocks = torch.nn.ModuleList()
    with pytest.raises(ValueError, match="no state spaces to look at"):
        describe_run(run)
