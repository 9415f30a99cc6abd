"""Small training runs in fresh processes, and what they leave behind."""

import json
import random
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from common import HERE, environment, python

LIMIT = 240.0  # seconds for a process; one that takes longer hangs
RUN: dict[str, Any] = {"model": {"dropout": 0.2}, "data": {"ragged": True}}
STEPS = 24  # 3 epochs of 40 sequences in batches of 5
KINDS: dict[str, dict[str, Any]] = {
    "one process": {},
    "DDP": {"processes": 2},
    "FSDP2": {"processes": 2, "shard": True},
}


def command(folder: Path, **job: Any) -> list[str]:
    script = [str(HERE / "one_run.py"), json.dumps({"folder": str(folder), **RUN, **job})]
    if job.get("processes", 1) == 1:
        return python(*script)
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={2}")
    return python(*launcher, *script)


def start(folder: Path, **job: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(folder, **job),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code and the end of what was said; a process that hangs is ended."""
    try:
        said = process.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return 999, f"it hung for {LIMIT:.0f} s"
    return process.returncode, said[-3000:]


def wait_for(process: "subprocess.Popen[str]") -> None:
    """Until it is about to begin, after the seconds of its imports."""
    assert process.stdout is not None
    process.stdout.readline()


def aimed(kind: str, chance: random.Random) -> dict[str, Any]:
    """Killed before something it does to a file of the run, or after a step; by itself."""
    job = KINDS[kind]
    if kind == "one process" or chance.random() < 0.5:
        return {**job, "kill": chance.randint(1, 150)}
    victim = chance.randrange(2)
    return {**job, "victim": victim, "signals": [(chance.randint(1, STEPS), "SIGKILL")]}


def pair(folder: Path, shard: bool, **job: Any) -> list["subprocess.Popen[str]"]:
    """Two processes of a run without anybody who would end one if the other dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = []
    for rank in range(2):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        given = {"folder": str(folder), **RUN, "processes": 2, "shard": shard, **job}
        both.append(
            subprocess.Popen(
                python(str(HERE / "one_run.py"), json.dumps(given)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(**place, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            )
        )
    return both


def left_behind(run: Path) -> dict[str, Any]:
    """Names and bytes of a run's files, but for those that tell the time."""
    last = max((run / "checkpoints").glob("step-*"))
    files = [*run.iterdir(), *(run / "best").iterdir(), *last.iterdir()]
    timed = ("manifest.json", "summary.json", "environment.json")
    found: dict[str, Any] = {
        str(path.relative_to(run)): b"" if path.name in timed else path.read_bytes()
        for path in files
        if path.is_file()
    }
    summary = json.loads((run / "summary.json").read_text())
    found["summary"] = {name: x for name, x in summary.items() if "seconds" not in name}
    found["unfinished"] = [path.name for path in run.rglob(".?*") if path.name != ".lock"]
    return found


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    return ", ".join(sorted(names))


def undisturbed(kind: str, folder: Path) -> tuple[dict[str, Any], float]:
    """What a run leaves that nobody disturbs, and the seconds from its beginning to its end."""
    process = start(folder, **KINDS[kind])
    wait_for(process)
    began = time.monotonic()
    code, said = finish(process)
    if code:
        raise RuntimeError(f"a {kind} run that nobody disturbs ends with {code}: {said}")
    return left_behind(folder), time.monotonic() - began
