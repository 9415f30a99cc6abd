"""What may go wrong in a run: numbers that are none, and a wish to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn


class DivergenceError(RuntimeError):
    """The loss or a gradient is not finite; the message names where that began."""


class Interrupted(KeyboardInterrupt):
    """The run was stopped by the user after saving; the message says how to go on."""


def blame(model: nn.Module, forward: Callable[[], object]) -> str:
    """The first thing that is not finite: a weight, a layer's output, or a gradient."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the parameter {name}"
    first: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if not first and isinstance(tensor, Tensor) and not torch.isfinite(tensor).all():
                first.append(name or "the whole model")

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    if first:
        return f"the output of {first[0]}"
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name}"
    return "the loss"


@contextmanager
def listening() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C (or SIGTERM) has come; a second Ctrl-C is not waited for.

    The default would break off in the middle of a step, where nothing can be saved.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
