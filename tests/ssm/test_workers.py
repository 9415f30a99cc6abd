"""Threads for compiled work: every part runs once, and errors reach the caller."""

import multiprocessing
import threading
import time

import pytest

from s4d_torch.ssm.compiled.runtime import run_in_threads


def test_every_part_runs_once_and_the_first_in_this_thread() -> None:
    seen: list[tuple[int, str]] = []
    run_in_threads(
        lambda i: seen.append((i, threading.current_thread().name)), [(i,) for i in range(5)]
    )
    assert sorted(i for i, _ in seen) == [0, 1, 2, 3, 4]
    assert dict(seen)[0] == threading.current_thread().name


def test_parts_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)
    run_in_threads(together.wait, [(), (), ()])


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_of_any_part_reaches_the_caller_after_all_have_ended(bad: int) -> None:
    ended = []

    def work(i: int) -> None:
        if i == bad:
            raise ArithmeticError(f"part {i}")
        time.sleep(0.05)
        ended.append(i)

    with pytest.raises(ArithmeticError, match=f"part {bad}"):
        run_in_threads(work, [(0,), (1,), (2,)])
    assert sorted(ended) == [i for i in range(3) if i != bad]
    run_in_threads(ended.append, [(7,), (8,)])  # and the threads are there for the next


def test_callers_in_many_threads_do_not_mix() -> None:
    results: dict[int, list[int]] = {n: [] for n in range(8)}

    def caller(n: int) -> None:
        for i in range(50):
            run_in_threads(lambda k, i=i: results[n].append(10 * i + k), [(0,), (1,), (2,)])

    callers = [threading.Thread(target=caller, args=(n,)) for n in results]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    wanted = [10 * i + k for i in range(50) for k in range(3)]
    assert all(sorted(found) == wanted for found in results.values())


def _in_a_child(answers: "multiprocessing.SimpleQueue[int]") -> None:
    run_in_threads(answers.put, [(1,), (2,)])


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="cannot fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    run_in_threads(lambda: None, [(), ()])
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(answers,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert sorted([answers.get(), answers.get()]) == [1, 2]
