"""The stopwatch of `s4d bench`, devices, facts of the machine, and fresh processes."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from s4d_torch.bench import (
    Case,
    Contender,
    Entrant,
    NotAvailable,
    Stopwatch,
    check_device,
    fresh_process,
    machine,
    threads,
)
from s4d_torch.bench.contenders import BACKWARD, GIVEN
from s4d_torch.bench.measure import Call, call_seconds

CASE = Case(BACKWARD, batch=2, length=64, d_model=4, d_state=8)


def work_on(calls: list[str], name: str) -> Contender:
    def run() -> None:
        calls.append(name)
        torch.ones(300, 300) @ torch.ones(300, 300)

    return Contender(lambda case: run)


def test_contenders_take_turns_after_a_warm_up() -> None:
    calls: list[str] = []
    watch = Stopwatch(repeats=3)
    pair = [Entrant(name, work_on(calls, name), CASE) for name in "ab"]
    first, second = watch.race("work", pair)
    assert calls[:4] == ["a", "b", "a", "b"]
    assert (first.contender, second.contender) == ("a", "b")
    assert first.runs == second.runs
    assert 3 <= first.runs <= 30  # more than asked for, where they are quick
    assert first.first is not None
    assert first.seconds is not None
    assert first.median is not None
    assert 0 < first.seconds <= first.median


def test_entrants_run_with_the_threads_of_their_case() -> None:
    seen: dict[str, set[int]] = {"one": set(), "two": set()}

    def contender(name: str) -> Contender:
        return Contender(lambda case: lambda: seen[name].add(torch.get_num_threads()))

    before = torch.get_num_threads()
    cases = {"one": replace(CASE, threads=1), "two": replace(CASE, threads=2)}
    race = [Entrant(name, contender(name), case) for name, case in cases.items()]
    records = Stopwatch(repeats=2).race("work", race)
    assert seen == {"one": {1}, "two": {2}}
    assert [record.case.threads for record in records] == [1, 2]
    assert torch.get_num_threads() == before


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
    records = watch.race("work", [Entrant(*each, CASE) for each in contestants.items()])
    assert [record.note for record in records] == [
        "left out: needs about 5 GB",
        "not here",
        "failed: RuntimeError: out of luck",
    ]
    assert all(record.seconds is None for record in records)


def test_what_would_take_too_long_is_left_out() -> None:
    watch = Stopwatch(repeats=1, longest=0.0)
    quadratic = Entrant("slow", Contender(lambda case: lambda: None, order=2), CASE)
    (record,) = watch.race("work", [quadratic])
    assert record.seconds is not None
    longer = quadratic._replace(case=replace(CASE, length=128))
    (record,) = watch.race("work", [longer])
    assert record.note.startswith("left out: would take about")
    other_threads = longer._replace(case=replace(CASE, threads=2))  # of which nothing is known
    (record,) = watch.race("work", [other_threads])
    assert record.seconds is not None


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("device", "module"), [("cuda", torch.cuda), ("mps", torch.mps)])
def test_a_time_ends_when_the_device_is_done(
    device: str, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(module, "synchronize", lambda: events.append("wait"))
    call_seconds(lambda: events.append("call"), 2, device)
    assert events == ["wait", "call", "call", "wait"]


def test_a_device_that_is_not_here_is_named() -> None:
    check_device("cpu")
    with pytest.raises(ValueError, match="must be one of cpu, cuda, mps; got 'tpu'"):
        check_device("tpu")
    for name, here in (
        ("cuda", torch.cuda.is_available()),
        ("mps", torch.backends.mps.is_available()),
    ):
        if not here:
            with pytest.raises(ValueError, match=f"device '{name}' is not to be found .* is cpu"):
                check_device(name)


def test_machine_names_what_a_time_depends_on() -> None:
    facts = machine()
    for name in ("cpu", "cores", "threads", "torch", "numpy", "numba", "OMP_WAIT_POLICY", "date"):
        assert name in facts
    for name in ("commit", "device", "jax"):
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


def test_a_first_use_is_timed_with_an_empty_cache_and_with_a_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders: list[str] = []

    def answer(*_: str, **environment: str) -> str:
        folders.append(environment["NUMBA_CACHE_DIR"])
        return f"{10.0 - len(folders)}"

    monkeypatch.setattr(fresh_process, "_python", answer)
    case = Case(fresh_process.FIRST_PUSH, 1, 8, 4, 4)
    assert fresh_process.first_use_seconds(case) == (9.0, 8.0)
    assert folders[0] == folders[1]  # what the first process compiled is there for the second


@pytest.mark.parametrize("way", fresh_process.FIRST_USES)
def test_what_a_new_process_is_asked_for_is_printed(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(way, batch=1, length=8, d_model=4, d_state=4)
    request = {"question": "first use", "about": [], "case": asdict(case)}
    fresh_process.main(json.dumps(request))
    assert float(capsys.readouterr().out) > 0
