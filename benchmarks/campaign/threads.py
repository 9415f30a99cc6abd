"""One layer and one model called from many threads, and in forks: always the same answer."""

import subprocess

from common import HERE, Figures, environment, python

COUNT = 8000


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("threads")
    for kind in ("layer", "model", "stream", "fork"):
        calls = max(16, count // (4 if kind != "fork" else 80))
        done = subprocess.run(
            python(str(HERE / "threads_worker.py"), kind, str(seed), str(calls)),
            capture_output=True,
            text=True,
            # torch's own threads do not survive a fork, with or without this package
            env=environment(OMP_NUM_THREADS="1" if kind == "fork" else "2"),
            timeout=900,
        )
        if done.returncode:
            figures.fail(f"{kind}: {done.returncode}: {done.stderr[-2000:]}")
        else:
            figures.add(f"{kind}, the same answer", int(done.stdout.split()[-1]))
        print(f"  threads: {kind} done", flush=True)
    return figures
