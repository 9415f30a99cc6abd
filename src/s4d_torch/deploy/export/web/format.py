"""Export to a page: what is written, how it is checked on this machine, what the card says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s4d_torch.deploy.export.c.header import state_bytes
from s4d_torch.deploy.export.check import Comparison
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import check_steps, pushed
from s4d_torch.deploy.export.web import node
from s4d_torch.deploy.export.web.described import view_data
from s4d_torch.deploy.export.web.page import PAGE, web_page
from s4d_torch.nn.plan import ModelPlan

SELF_TEST = 1e-4  # of the largest output; as in assets/page.js
NO_NODE = "there is no node here; the page compares itself with the model when it is opened"
GIVEN = {
    "sound": "a microphone or a sound file",
    "drawing": "a pad to draw on or a picture",
    "text": "a field for text",
    "numbers": "a field for numbers",
}


@dataclass(frozen=True)
class WebFormat:
    """``index.html``, for causal models; run by node where there is one."""

    needs: str = "a web browser, no server and no network"
    tolerance: float = 1e-5
    states: tuple[str, ...] = ("float64",)
    quantizations: tuple[str, ...] = ("int8",)
    example: None = None

    def require(self) -> dict[str, str]:
        return {}

    def check(self, plan: ModelPlan) -> None:
        """Refuse a model that looks ahead, or with a choice that has no JavaScript form."""
        check_steps(plan, "js", "JavaScript")

    def check_name(self, name: str) -> None:
        """A title: any words."""
        if not name.strip():
            raise ValueError("the name of a page is its title, and was empty; nothing was written")

    def write(self, job: Job, place: Path, say: Callable[[str], None]) -> None:
        say(f"writing {PAGE}")
        (place / PAGE).write_text(web_page(job, job.title), encoding="utf-8")

    def compare(self, job: Job, place: Path, say: Callable[[str], None]) -> Comparison:
        """The self-test of the page, and pushes of several sizes."""
        program = node.find_node()
        if program is None:
            return Comparison({}, NO_NODE)
        say(f"running {PAGE} by node, and checking it against the model")

        def answers(blocks: Sequence[Tensor]) -> Tensor:
            found = node.answers(program, place / PAGE, blocks, job.plan.d_output)
            if not found.self_test <= SELF_TEST:
                raise node.NodeError(
                    f"the self-test of {PAGE} differs by {found.self_test:.1e}; nothing was written"
                )
            return found.y

        return Comparison({"step": [pushed(job, answers)]})

    def describe(self, job: Job, place: Path) -> dict[str, Any]:
        plan = job.plan
        read = plan.towers * (1 if plan.tokens else plan.d_input)
        u = {"name": "u", "dtype": "token" if plan.tokens else "number"}
        y = {"name": "y", "dtype": "number", "shape": ["samples", plan.d_output]}
        given = GIVEN[view_data(job)["kind"]]
        step = {
            "file": PAGE,
            "bytes": (place / PAGE).stat().st_size,
            "about": [
                f"`{PAGE}`: open it in a browser; it has {given}, and answers while it reads"
            ],
            "arithmetic": "Arithmetic is in float32, the state in float64.",
            "state": "float64",
            "state_bytes": state_bytes(replace(job, state=torch.float64)),
            "inputs": [{**u, "shape": ["samples", read]}],
            "outputs": [y],
        }
        return {"sequence": None, "step": step, "why_no_step": None}
