"""`s4d bench`: the rivals compute what we compute, and the report says what was measured."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from s4d_torch import METHODS, S4D, SSM
from s4d_torch.bench import (
    QUICK,
    WORKS,
    Case,
    Contender,
    Measurement,
    NotAvailable,
    Sizes,
    Stopwatch,
    contenders,
    fresh_process,
    goals,
    machine,
    models,
    plot,
    report,
    threads,
)
from s4d_torch.bench.contenders import (
    BACKWARD,
    DPLR_LAYERS,
    EXPONENTIALS,
    FORWARD,
    GIVEN,
    OURS,
    POWERS,
)
from s4d_torch.bench.measure import Call
from s4d_torch.bench.peers import Cauchy, Listing, PeerLayer
from s4d_torch.cli import main

CASE = Case(BACKWARD, batch=2, length=64, d_model=4, d_state=8)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe 100 columns wide, wherever the tests run."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


# ---- the rivals are honest --------------------------------------------------------------------


def make(method: str) -> SSM:
    generator = torch.Generator().manual_seed(0)
    return SSM(4, 16, method=METHODS[method], generator=generator)


@pytest.mark.parametrize("form", ["power", "exp"])
def test_the_listing_has_our_kernel(form: str) -> None:
    ssm = make("s4d")
    ours = ssm.kernel(512).detach()
    assert_close(
        Listing(ssm, form).kernel(512).detach(), ours, atol=1e-3 * float(ours.abs().max()), rtol=0
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [64, 512])
def test_the_cauchy_rival_has_the_kernel_of_s4(length: int, shared: bool) -> None:
    ssm = make("s4")
    ours = ssm.kernel(length).detach()
    theirs = Cauchy(ssm, length, shared=shared).kernel(length).detach()
    assert_close(theirs, ours, atol=1e-3 * float(ours.abs().max()), rtol=0)


def test_the_rivals_layer_is_our_layer() -> None:
    """Same kernel, same D, same GELU and GLU: the same output, and gradients of the input."""
    layer = S4D(4, 16, generator=torch.Generator().manual_seed(0))
    rival = PeerLayer(Listing(layer.ssm))
    rival.output.load_state_dict(layer.output.state_dict())
    u = torch.randn(2, 100, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    ours, theirs = layer(u)[0], rival(u)
    assert_close(theirs, ours, atol=1e-3, rtol=0)
    grads = [torch.autograd.grad(y.square().sum(), u)[0] for y in (ours, theirs)]
    assert_close(grads[1], grads[0], atol=1e-2, rtol=0)


def test_the_rivals_train_as_many_numbers_as_we_do() -> None:
    """A rival that left out a gradient would look faster than it is."""
    for method, rival in (("s4d", Listing(make("s4d"))), ("s4", Cauchy(make("s4"), 64))):
        count = [sum(p.numel() for p in module.parameters()) for module in (make(method), rival)]
        assert count[0] == count[1]


def test_every_contender_gives_gradients_to_input_and_parameters() -> None:
    for name, contender in {**contenders.state_spaces(), **contenders.layers(DPLR_LAYERS)}.items():
        grads = contender.build(CASE)()
        assert isinstance(grads, tuple), name
        assert len(grads) >= 2, name
        assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads), name


def test_forward_keeps_no_graph() -> None:
    y = contenders.state_spaces()[OURS].build(replace(CASE, way=FORWARD))()
    assert isinstance(y, torch.Tensor)
    assert not y.requires_grad


def test_the_sweep_makes_its_kernel_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept system would hide the cost of the kernel."""
    made = []
    original = SSM._state_space
    monkeypatch.setattr(
        SSM, "_state_space", lambda self, *a: (made.append(self.training), original(self, *a))[1]
    )
    contenders.against_given()[OURS].build(replace(CASE, way=FORWARD))()
    assert all(made)


# ---- the stopwatch ----------------------------------------------------------------------------


def test_contenders_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []

    def contender(name: str) -> Contender:
        def run() -> None:
            calls.append(name)
            torch.ones(300, 300) @ torch.ones(300, 300)

        return Contender(lambda case: run)

    watch = Stopwatch(repeats=3)
    pair = {"a": contender("a"), "b": contender("b")}
    first, second = watch.race("work", CASE, pair)
    assert calls[:4] == ["a", "b", "a", "b"]
    assert (first.contender, second.contender) == ("a", "b")
    assert first.runs == second.runs
    assert 3 <= first.runs <= 30  # more than asked for, where they are quick
    assert first.first is not None
    assert first.seconds is not None
    assert first.seconds > 0


def test_what_does_not_fit_or_fails_is_a_note() -> None:
    def absent(_: Case) -> Call:
        raise NotAvailable("not here")

    def broken(_: Case) -> Call:
        raise RuntimeError("out of luck")

    watch = Stopwatch(repeats=2, longest=1.0, budget=1e9)
    contestants = {
        "large": Contender(absent, memory=lambda case: 5e9),
        "absent": Contender(absent),
        "broken": Contender(broken),
    }
    records = watch.race("work", CASE, contestants)
    assert [record.note for record in records] == [
        "left out: needs about 5 GB",
        "not here",
        "failed: RuntimeError: out of luck",
    ]
    assert all(record.seconds is None for record in records)


def test_what_would_take_too_long_is_left_out() -> None:
    watch = Stopwatch(repeats=1, longest=0.0)
    quadratic = {"slow": Contender(lambda case: lambda: None, order=2)}
    (record,) = watch.race("work", CASE, quadratic)
    assert record.seconds is not None
    (record,) = watch.race("work", replace(CASE, length=128), quadratic)
    assert record.note.startswith("left out: would take about")


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_machine_names_what_a_time_depends_on() -> None:
    facts = machine()
    for name in ("cpu", "cores", "threads", "torch", "numpy", "numba", "OMP_WAIT_POLICY", "date"):
        assert name in facts
    assert facts["sgemm_gflops"] > 0
    json.dumps(facts)


# ---- fresh processes --------------------------------------------------------------------------


def test_peak_memory_of_a_new_process() -> None:
    """An FFT of twice the length holds complex spectra: more than its input, less than 40 times."""
    case = Case(BACKWARD, batch=2, length=2**14, d_model=16, d_state=8)
    size, note = fresh_process.peak_memory("ssm", GIVEN, case)
    assert note == ""
    assert size is not None
    assert 1 < size / case.input_bytes < 40
    assert fresh_process.peak_memory("ssm", "nobody", case) == (None, "failed: KeyError: 'nobody'")


def test_import_in_a_new_process_takes_some_time() -> None:
    assert 0 < fresh_process.import_seconds(1) < 60


# ---- targets ----------------------------------------------------------------------------------


def verdict(records: list[Measurement], start: str) -> goals.TargetResult:
    (found,) = [v for v in goals.judge(records, 128) if v.name.startswith(start)]
    return found


def test_both_forms_of_the_listing_are_judged() -> None:
    def measured(form: str, ours: float) -> goals.TargetResult:
        times = {OURS: ours, POWERS: 9.0, EXPONENTIALS: 3.0}
        records = [Measurement("kernel", name, BACKWARD, 1, 1024, t) for name, t in times.items()]
        return verdict(records, f"kernel forward+backward, L=1024: paper's listing, {form}")

    assert measured("as printed", 0.1).measured == pytest.approx(90)
    assert measured("with exp", 0.1).measured == pytest.approx(30)
    assert [measured("with exp", t).met for t in (0.05, 0.1, 1.0)] == ["aim", "yes", "no"]


def test_the_faster_of_the_compiled_steps_counts() -> None:
    times = {models.EAGER: 1e-3, models.COMPILED: 2e-4, models.STREAM: 4e-5}
    records = [Measurement("step", name, "one step", 1, 1, t) for name, t in times.items()]
    assert verdict(records, "step of a 6-layer").measured == pytest.approx(25)
    assert verdict(records, "the same, time").measured == pytest.approx(40)


def test_the_worst_place_counts() -> None:
    places = {(1, 256): 2.0, (16, 512): 0.5, (16, 1024): 3.0}
    records = [
        Measurement("sweep", name, FORWARD, batch, length, seconds)
        for (batch, length), ratio in places.items()
        for name, seconds in ((OURS, 1.0), (GIVEN, ratio))
    ]
    found = verdict(records, "SSM at every L")
    assert (found.measured, found.met) == (0.5, "no")
    assert found.where == "worst of 3: forward, batch 16, L=512"


def test_growth_and_memory_are_bounded_from_above() -> None:
    times = {1024: 1.0, 2048: 2.0, 4096: 4.4}
    records = [Measurement("growth", OURS, FORWARD, 1, n, t) for n, t in times.items()]
    records.append(Measurement("memory", OURS, BACKWARD, 8, 16384, bytes=3 * 4 * 8 * 16384 * 128))
    assert verdict(records, "growth").measured == pytest.approx(2.2)
    assert verdict(records, "growth").met == "yes"
    assert verdict(records, "extra peak memory").measured == pytest.approx(3)


def test_nothing_measured_is_said() -> None:
    assert {v.met for v in goals.judge([], 128)} == {"not measured"}


def test_the_sizes_measured_by_default_serve_every_target() -> None:
    """Records at the default sizes leave no target unmeasured."""
    sizes = Sizes()
    groups = {
        "kernel": (sizes.kernel, contenders.kernels()),
        "ssm": (sizes.ssm, contenders.state_spaces()),
        "sweep": (sizes.sweep, contenders.against_given()),
        "layer": (sizes.layer, contenders.layers()),
        "dplr": (sizes.dplr, contenders.layers(DPLR_LAYERS)),
        "growth": (tuple((1, n) for n in sizes.growth), {OURS: None}),
    }
    records = [
        Measurement(work, name, way, *place, 1.0)
        for work, (places, names) in groups.items()
        for place in places
        for name in names
        for way in (FORWARD, BACKWARD)
    ]
    records += [Measurement("step", name, "one step", 1, 1, 1.0) for name in models.steps()]
    records += [Measurement("memory", OURS, BACKWARD, *place, bytes=1) for place in sizes.memory]
    records += [Measurement("import", OURS, way, 0, 0, 1.0) for way in ("import", "compile")]
    records += [
        Measurement("loading", f"digits: {what}", "training step", 32, 64, 1.0)
        for what in ("read", "step")
    ]
    assert [v.name for v in goals.judge(records, 128) if v.met == "not measured"] == []


def test_other_lengths_and_batches_replace_those_of_a_work() -> None:
    assert Sizes().at((), ()) == Sizes()
    sizes = Sizes().at((64, 128), (2,))
    assert sizes.ssm == sizes.sweep == ((2, 64), (2, 128))
    assert sizes.growth == (64, 128)
    assert Sizes().at((64,), ()).sweep == ((1, 64), (16, 64))


# ---- the command ------------------------------------------------------------------------------

IN_PROCESS = [name for name in WORKS if name not in ("memory", "curve", "import")]


def test_a_quick_run_writes_tables_json_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "results"
    arguments = ["--quick", "--repeats", "2", "--work", ",".join(IN_PROCESS), "--out", str(out)]
    assert main(["bench", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "Targets (quick" in shown
    content = json.loads((out / "bench.json").read_text("utf-8"))
    assert set(content) == {"schema", "command", "machine", "settings", "targets", "records"}
    assert content["command"].startswith("s4d bench --work kernel,")
    assert content["settings"]["d_model"] == QUICK.d_model
    assert {record["work"] for record in content["records"]} == set(IN_PROCESS)
    assert [r for r in content["records"] if r["note"].startswith("failed")] == []
    measured = [t for t in content["targets"] if t["measured"] is not None]
    assert len(measured) >= 8
    assert all(t["met"] in ("aim", "yes", "no") for t in measured)
    assert "| work | measured | bar | aim | met |" in (out / "targets.md").read_text("utf-8")

    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", "utf-8")
    assert main(["bench", "--show", str(out / "bench.json"), "--markdown", str(page)]) == 0
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{report.BEGIN}\n**Quick sizes")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text.split()
    assert "`s4d bench --work kernel," in text


def test_runs_become_one_and_the_later_measurement_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {**machine(), "cpu": "a processor"}
    settings = {"d_model": 128, "d_state": 64, "quick": False}
    slow, fast = (Measurement("growth", OURS, FORWARD, 1, 256, t) for t in (2.0, 1.0))
    other = Measurement("memory", OURS, BACKWARD, 8, 256, bytes=1)
    first = report.BenchReport("first", here, settings, [slow, other])
    second = report.BenchReport("second", here, settings, [fast])
    both = first.followed_by(second)
    assert both.records == [other, fast]
    assert both.command == "first; second"

    elsewhere = report.BenchReport("third", {**here, "cpu": "another"}, settings, [fast])
    for name, run in (("first", first), ("third", elsewhere)):
        run.save(tmp_path / f"{name}.json")
    assert main(["bench", "--show", *(str(tmp_path / f"{n}.json") for n in ("first", "third"))])
    assert "differ in cpu cannot be one: a processor, another" in capsys.readouterr().err


def test_pages_without_markers_and_foreign_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text("[]", "utf-8")
    assert main(["bench", "--show", str(foreign)]) == 1
    assert "foreign.json was not written by this version" in capsys.readouterr().err
    page = tmp_path / "page.md"
    page.write_text("nothing", "utf-8")
    with pytest.raises(OSError, match="must hold the lines"):
        report.insert(page, "text")


# ---- tables and picture -----------------------------------------------------------------------


def curve() -> list[Measurement]:
    return [
        Measurement("curve", name, BACKWARD, 1, length, factor * length * 1e-6, bytes=1000 * length)
        for name, factor in ((OURS, 1), ("nn.LSTM", 5), ("another", 7))
        for length in (256, 1024)
    ]


def test_a_picture_needs_two_lengths(tmp_path: Path) -> None:
    assert plot.draw(curve(), tmp_path / "new" / "x.png")
    assert (tmp_path / "new" / "x.png").stat().st_size > 10_000
    assert not plot.draw(curve()[:1], tmp_path / "y.png")
    assert not (tmp_path / "y.png").exists()


def test_without_matplotlib_there_is_a_sentence_and_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    saved = tmp_path / "bench.json"
    settings = {"d_model": 128, "d_state": 64, "quick": False}
    report.BenchReport("s4d bench", machine(), settings, curve()).save(saved)
    page = tmp_path / "page.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n", "utf-8")
    assert main(["bench", "--show", str(saved), "--markdown", str(page)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no picture: pictures need matplotlib" in shown
    assert "![" not in page.read_text("utf-8")


def test_cells_show_the_ratio_to_ours_and_absent_packages_one_line() -> None:
    records = [*curve(), Measurement("curve", "Foo", BACKWARD, 1, 256, note="foo is not installed")]
    (grid,) = report.grids(records)
    assert grid.columns == ["L=256", "L=1024"]
    assert [row[0][0] for row in grid.rows] == [OURS, "nn.LSTM", "another"]
    assert grid.rows[1][1] == ("1.28 ms, 0.244 MB", "5x, 1x")
    assert report.absentees(records) == ["foo is not installed."]
    there = Measurement("layer", "Foo", BACKWARD, 1, 256, seconds=1.0)  # in another run
    assert report.absentees([*records, there]) == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(2.5, "2.5 s"), (0.0125, "12.5 ms"), (3.2e-5, "32 us"), (1e-7, "0.1 us"), (4321.0, "4321 s")],
)
def test_times_are_shown_in_a_unit_that_fits(seconds: float, shown: str) -> None:
    assert report.show_time(seconds) == shown


def test_the_page_of_the_docs_has_its_markers() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
    text = page.read_text("utf-8")
    assert text.index(report.BEGIN) < text.index(report.END)


def test_the_command_does_not_load_numba_before_it_is_needed() -> None:
    """`s4d --help` has to stay fast."""
    code = "import sys, s4d_torch.cli; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
