"""Runs the cases of one kind, one after the other: a line of JSON for each."""

import json
import linecache
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

import fuzz_calls
import fuzz_files
import torch

SECONDS = 60  # for a case; the first of a process compiles
MEMORY = 24 << 30  # of addresses, of which torch and compiled code take a few without using them
OURS = str(Path(sys.modules["s4d_torch"].__file__ or "").parent)
CLEAR = (ValueError, TypeError, OSError, ImportError, KeyError, NotImplementedError)


class WrongAnswerError(Exception):
    """What came back is not what the entry promises."""


class TooSlowError(BaseException):
    """No part of the library catches this one."""


def judge(error: BaseException) -> str:
    """Whether an error is a clear one: raised by the library's own hand, with a message."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(OURS)]
    if isinstance(error, TooSlowError):
        return "too slow"
    if isinstance(error, AssertionError) and not ours[-1:]:
        return "wrong answer"
    last = frames[-1]
    raised = linecache.getline(last.filename, last.lineno or 0).strip().startswith("raise")
    # scikit-learn's checks of what an estimator is given are the ones its users know
    raised_in = last in ours or "/sklearn/" in last.filename
    from_system = isinstance(error, OSError) and error.filename is not None and bool(str(error))
    if isinstance(error, CLEAR) and (from_system or (raised_in and raised)):
        return "clear error" if len(str(error)) >= 15 else "an error that says nothing"
    return "an error that is not ours"


def run(kind: str, seed: int, number: int, folder: Path) -> dict[str, str]:
    chance = random.Random(f"{seed} {kind} {number}")
    torch.manual_seed(chance.randrange(2**31))
    cases = {**fuzz_calls.CASES, **fuzz_files.CASES}
    signal.alarm(SECONDS)
    try:
        cases[kind](chance, folder)
        outcome, said = "right answer", ""
    except (Exception, TooSlowError) as error:
        outcome = judge(error)
        # judged wrong, it is shown in full
        shown = traceback.format_exception(error) if outcome != "clear error" else []
        said = "".join(shown)[-1800:]
    finally:
        signal.alarm(0)
    return {"number": str(number), "outcome": outcome, "said": said}


def too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"took more than {SECONDS} s")


def main() -> None:
    kind, seed, start, stop = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_slow)
    with tempfile.TemporaryDirectory() as root:
        for number in range(start, stop):
            folder = Path(root) / str(number)
            folder.mkdir()
            print(json.dumps(run(kind, seed, number, folder)), flush=True)


if __name__ == "__main__":
    main()
