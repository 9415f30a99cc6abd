"""The targets of `s4d bench`, the five numbers, and the sizes that serve them."""

from dataclasses import replace

import pytest

from s4d_torch.bench import Case, Measurement, Shape, Sizes, contenders, goals, jax_layers, models
from s4d_torch.bench.contenders import (
    BACKWARD,
    DPLR_LAYERS,
    EXPONENTIALS,
    FORWARD,
    GIVEN,
    OFFICIAL,
    OURS,
    POWERS,
    STEP,
    TRAINING,
)
from s4d_torch.bench.fresh_process import EMPTY, FILLED, FIRST_PUSH, IMPORT
from s4d_torch.bench.models import SMALL_LSTM
from s4d_torch.bench.sizes import DEMO
from s4d_torch.bench.summary import NOT_YET, headlines

CASE = Case(BACKWARD, batch=1, length=1024, d_model=128, d_state=64)


def verdict(records: list[Measurement], start: str) -> goals.TargetResult:
    (found,) = [v for v in goals.judge(records) if v.name.startswith(start)]
    return found


def trained(shape: Shape, seconds: dict[str, float], threads: int = 1) -> list[Measurement]:
    case = shape.case(TRAINING, threads)
    return [Measurement("train", name, case, t) for name, t in seconds.items()]


def test_both_forms_of_the_listing_are_judged() -> None:
    def measured(form: str, ours: float) -> goals.TargetResult:
        times = {OURS: ours, POWERS: 9.0, EXPONENTIALS: 3.0}
        records = [Measurement("kernel", name, CASE, t) for name, t in times.items()]
        return verdict(records, f"kernel forward+backward, L=1024: paper's listing, {form}")

    assert measured("as printed", 0.1).measured == pytest.approx(90)
    assert measured("with exp", 0.1).measured == pytest.approx(30)
    assert [measured("with exp", t).met for t in (0.05, 0.1, 1.0)] == ["aim", "yes", "no"]


def test_a_training_step_is_judged_at_its_own_shape_with_one_thread() -> None:
    _, small, _, large = Sizes().train
    records = [
        *trained(small, {OURS: 1.0, OFFICIAL: 3.5}),
        *trained(large, {OURS: 1.0, OFFICIAL: 2.0}),
        *trained(large, {OURS: 1.0, OFFICIAL: 9.0}, threads=2),
    ]
    assert verdict(records, "training step 3 x 64 x 32").met == "yes"
    found = verdict(records, "training step 4 x 128 x 64")
    assert (found.measured, found.met) == (2.0, "no")
    assert verdict(records, "training step 4 x 64 x 32").met == "not measured"


def test_ours_over_the_lstm_is_bounded_from_above() -> None:
    for ours, met in ((0.7, "aim"), (1.2, "yes"), (1.4, "no")):
        found = verdict(trained(DEMO, {OURS: ours, SMALL_LSTM: 1.0}), "training step 4 x 32 x 32")
        assert found.measured == pytest.approx(ours)
        assert found.met == met


def test_threads_are_judged_at_small_and_at_large_sizes() -> None:
    demo, small, *large = Sizes().train
    records = [
        *trained(demo, {OURS: 1.0}),
        *trained(demo, {OURS: 0.8}, threads=4),
        *trained(small, {OURS: 1.0}),
        *trained(small, {OURS: 1.25}, threads=4),
        *trained(large[0], {OURS: 1.0}),
        *trained(large[0], {OURS: 0.5}, threads=4),
        *trained(large[1], {OURS: 1.0}),  # with one thread only
    ]
    few = verdict(records, "threads, small")
    assert (few.measured, few.met) == (pytest.approx(0.8), "no")
    assert few.where == "worst of 2: 3 x 64 x 32, batch 8, L=256"
    assert verdict(records, "threads, training steps of L=1024").met == "yes"


def test_the_faster_of_the_compiled_steps_counts() -> None:
    times = {models.EAGER: 1e-3, models.COMPILED: 2e-4, models.STREAM: 4e-5}
    case = replace(CASE, way=STEP)
    records = [Measurement("step", name, case, t) for name, t in times.items()]
    assert verdict(records, "step of a 6-layer").measured == pytest.approx(25)
    assert verdict(records, "the same, time").measured == pytest.approx(40)


def test_the_worst_place_counts() -> None:
    places = {(1, 256): 2.0, (16, 512): 0.5, (16, 1024): 3.0}
    records = [
        Measurement("sweep", name, replace(CASE, batch=batch, length=length), seconds)
        for (batch, length), ratio in places.items()
        for name, seconds in ((OURS, 1.0), (GIVEN, ratio))
    ]
    forward = replace(CASE, way=FORWARD)  # shown, and not judged
    records += [Measurement("sweep", n, forward, t) for n, t in ((OURS, 1.0), (GIVEN, 0.1))]
    found = verdict(records, "SSM forward+backward at every L")
    assert (found.measured, found.met) == (0.5, "no")
    assert found.where == "worst of 3: forward+backward, batch 16, L=512"


def test_growth_and_memory_are_bounded_from_above() -> None:
    times = {1024: 1.0, 2048: 2.0, 4096: 4.4}
    records = [Measurement("growth", OURS, replace(CASE, length=n), t) for n, t in times.items()]
    records.append(Measurement("memory", OURS, CASE, bytes=3 * CASE.input_bytes))
    assert verdict(records, "growth").measured == pytest.approx(2.2)
    assert verdict(records, "growth").met == "yes"
    assert verdict(records, "extra peak memory").measured == pytest.approx(3)


def test_compilation_is_what_an_empty_cache_costs() -> None:
    case = replace(CASE, way=FIRST_PUSH)
    records = [Measurement("import", n, case, t) for n, t in ((EMPTY, 9.0), (FILLED, 2.0))]
    found = verdict(records, "first use with an empty cache, compile_step")
    assert (found.measured, found.met) == (7.0, "yes")
    assert verdict(records, "first use with an empty cache, the demo's").met == "not measured"


def test_nothing_measured_is_said() -> None:
    assert {v.met for v in goals.judge([])} == {"not measured"}
    assert {h.measured for h in headlines([])} == {NOT_YET}


def everything() -> list[Measurement]:
    """Records at the default sizes."""
    sizes = replace(Sizes(), threads=2)
    groups = {
        "kernel": (sizes.kernel, contenders.kernels()),
        "ssm": (sizes.ssm, contenders.state_spaces()),
        "sweep": (sizes.sweep, contenders.against_given()),
        "layer": (sizes.layer, contenders.layers()),
        "dplr": (sizes.dplr, contenders.layers(DPLR_LAYERS)),
        "jax": (sizes.jax, jax_layers.contenders()),
        "growth": (tuple((1, n) for n in sizes.growth), {OURS: None}),
        "gaps": (sizes.gaps, contenders.irregular()),
    }
    records = [
        Measurement(work, name, sizes.case(way, place), 1.0, bytes=1 if work == "gaps" else None)
        for work, (places, names) in groups.items()
        for place in places
        for name in names
        for way in (FORWARD, BACKWARD)
    ]
    steps = dict.fromkeys(models.training_steps(), 1.0)
    for shape in sizes.train:
        for threads in sizes.one_and_all:
            records += trained(shape, steps, threads)
    records += [Measurement("step", name, replace(CASE, way=STEP), 1.0) for name in models.steps()]
    records += [Measurement("memory", n, CASE, bytes=1) for n in (OURS, GIVEN)]
    records += [Measurement("import", OURS, replace(CASE, way=IMPORT), 1.0)]
    records += [
        Measurement("import", name, replace(CASE, way=way), 1.0)
        for name in (EMPTY, FILLED)
        for way in (TRAINING, FIRST_PUSH)
    ]
    records += [
        Measurement("loading", f"digits: {what}", replace(CASE, way=TRAINING), 1.0)
        for what in ("read", "step")
    ]
    return records


def test_the_sizes_measured_by_default_serve_every_target_and_headline() -> None:
    records = everything()
    assert [v.name for v in goals.judge(records) if v.met == "not measured"] == []
    assert [h.about for h in headlines(records) if h.measured == NOT_YET] == []


def test_the_headlines_give_the_range_of_what_was_measured() -> None:
    _, small, _, large = Sizes().train
    records = [
        *trained(small, {OURS: 1.0, OFFICIAL: 3.5}),
        *trained(large, {OURS: 1.0, OFFICIAL: 2.0}),
    ]
    assert headlines(records)[0].measured == "2 to 3.5 times as fast, at 2 sizes"


def test_other_lengths_and_batches_replace_those_of_a_work() -> None:
    assert Sizes().at((), ()) == Sizes()
    sizes = Sizes().at((64, 128), (2,))
    assert sizes.ssm == sizes.sweep == ((2, 64), (2, 128))
    assert sizes.growth == (64, 128)
    assert Sizes().at((64,), ()).sweep == ((1, 64), (16, 64))
    assert sizes.train[:2] == (Shape(4, 32, 32, 2, 64), Shape(4, 32, 32, 2, 128))
    assert Sizes().at((), (5,)).train[0] == DEMO._replace(batch=5)


def test_on_a_gpu_threads_are_not_compared() -> None:
    assert replace(Sizes(), threads=4).one_and_all == (1, 4)
    gpu = replace(Sizes(), threads=4, device="cuda")
    assert gpu.one_and_all == (4,)
    assert gpu.case(FORWARD, (1, 64)).device == "cuda"
