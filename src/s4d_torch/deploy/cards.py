"""What there is to know about a trained model before it is used: its card, and the card to read.

The models of the package and those that go to the Hub have the same fields.
"""

import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from s4d_torch._registry import unknown
from s4d_torch.data.dataset import Signature
from s4d_torch.data.task import TASKS
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import WEIGHTS
from s4d_torch.training import METRICS, Run
from s4d_torch.training.reports.describe import describe_signature, own_data
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.listing import interval_of_test
from s4d_torch.training.saved.packaged import About, Card
from s4d_torch.training.saved.run_folder import BEST, ENVIRONMENT

SAMPLES = 20_000  # that are pushed to take the time of one
UNSAID = "not said"
MANY_CLASSES = 20  # whose names are not all told


def card_of(run: Run, name: str, **words: str) -> Card:
    """The card of a finished run; ``words`` are fields of :class:`About` that say it better."""
    known = [field.name for field in fields(About)]
    for word in words:
        if word not in known:
            raise ValueError(unknown("field of a card", word, known))
    if run.folder is None or "test" not in run.summary:
        raise ValueError("a card needs a finished run in a folder: its scores and its weights")
    if packaged.is_packaged(run.folder):
        given: dict[str, Any] = {"name": name, **words}
        return replace(packaged.card(run.folder.name), **given)
    place, summary = run.folder / ENVIRONMENT, run.summary
    surroundings = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    metric = summary["metric"]
    return Card(
        name=name,
        command=_command(surroundings.get("command") or ()),
        commit=surroundings.get("commit") or UNSAID,
        scores={metric: summary["test"][metric]} | summary["test"],
        intervals=_intervals(summary),
        cases=summary.get("test_cases", 0),  # unknown in runs of earlier releases
        parameters=summary["parameters"],
        bytes=(run.folder / BEST / WEIGHTS).stat().st_size,
        microseconds=microseconds(run),
        **{**_words(run), **words},
    )


def _intervals(summary: Mapping[str, Any]) -> dict[str, list[float]]:
    """Of all scores where cases are few, else of the one that judges, where it follows from it."""
    known, first = dict(summary.get("test_intervals") or {}), interval_of_test(summary)
    return known if first is None else {summary["metric"]: list(first)} | known


def _command(arguments: Sequence[str]) -> str:
    """As it was typed, without places on the owner's machine."""
    return shlex.join(map(_without_place, arguments)) or UNSAID


def _without_place(text: str) -> str:
    """Of an absolute path the last name alone, also behind ``--option=``."""
    option, equals, value = text.rpartition("=")
    return f"{option}{equals}{Path(value).name if Path(value).is_absolute() else value}"


def _words(run: Run) -> dict[str, str]:
    """What a run knows of itself. What its owner alone knows is said to be missing."""
    task, own, signature = TASKS[run.config.task], own_data(run.config), run.signature
    data = f"{own.name}, data of its owner" if own else task.citation or task.summary
    chosen, usual = run.config.data, type(run.config.data)
    options = {
        key: value
        for key, value in asdict(chosen).items()
        if key not in ("path", "paths") and value != getattr(usual, key, None)
    }
    how = ", ".join(f"{key} {_without_place(str(value))}" for key, value in options.items())
    return {
        "title": own.name if own else task.summary,
        "reads": describe_signature(signature).rpartition(",")[0],
        "answers": _answers(signature),
        "data": data,
        "licence": (UNSAID if own else task.licence) or UNSAID,
        "split": f"the test split of {own.name if own else task.name}{how and f', with {how}'}",
        "not_for": "anything it was not tested on; its owner has not said more",
        "use": "",  # its owner knows where it will be
    }


def _answers(signature: Signature) -> str:
    if signature.kind == "classification":
        names = signature.classes if len(signature.classes) <= MANY_CLASSES else ()
        return f"one of {signature.outputs} classes{': ' * bool(names)}{', '.join(names)}"
    if signature.kind == "generation":
        return f"how probable each of {signature.outputs} symbols is to come next"
    what = f": {signature.target}" if signature.target else ""
    numbers = "a number" if signature.outputs == 1 else f"{signature.outputs} numbers"
    return f"{numbers}{' at each sample' * (signature.kind == 'tracking')}{what}"


def microseconds(run: Run) -> float | None:
    """Of one sample through the compiled step, the best of five, on one thread.

    None where a model has no step: it looks ahead, or is no state space.
    """
    model, signature = run.model, run.signature
    if not isinstance(model, SequenceModel) or run.config.method.bidirectional:
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = model.compile_step()
        shape = (1, SAMPLES) if signature.tokens else (1, SAMPLES, signature.features)
        u = torch.zeros(shape, dtype=torch.int64 if signature.tokens else torch.float32)
        step.push_many(u[:, :100])
        best = min(_seconds(step, u) for _ in range(5))
    finally:
        torch.set_num_threads(threads)
    return float(f"{1e6 * best / SAMPLES:.3g}")


def _seconds(step: Any, u: torch.Tensor) -> float:
    began = time.process_time()
    step.push_many(u)
    return time.process_time() - began


def page(card: Card) -> str:
    """The card to read, in Markdown."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Card) -> Iterator[str]:
    yield f"# {card.name}: {card.title}\n"
    if card.use:
        yield f"    {card.use}\n"
    yield f"- **reads** {card.reads}"
    yield f"- **answers** {card.answers}"
    yield f"- **learned from** {card.data}"
    yield f"- **licence of the data** {card.licence}"
    yield f"- **test** {shown(card)}, {card.cases:,} cases; {card.split}"
    speed = f"; {card.microseconds:.2g} us for a sample on one core" if card.microseconds else ""
    yield f"- **size** {card.parameters:,} parameters, {card.bytes / 1000:,.0f} kB{speed}"
    yield f"- **not for** {card.not_for}\n"
    changed = ", with changes" if card.commit.endswith("-dirty") else ""
    yield f"Trained by `{card.command}` at commit {card.commit[:10]}{changed}."


def shown(card: Card) -> str:
    """``accuracy 82.22% (95 % interval 75.98% to 87.12%)``."""
    metric, score = next(iter(card.scores.items()))
    show = METRICS[metric].show
    ends = card.intervals.get(metric)
    between = f" (95 % interval {show(ends[0])} to {show(ends[1])})" if ends else ""
    return f"{metric} {show(score)}{between}"
