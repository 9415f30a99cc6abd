"""One page of HTML that holds a model and everything to use it."""

import json
from importlib.resources import files
from typing import Any

from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.web.described import described

PAGE = "index.html"
RUNTIME = ("loops", "kernels", "runtime")
# each script uses only what those before it define
VIEWS = {
    "sound": ("sound", "microphone", "sound_view"),
    "drawing": ("pixels", "drawing_view"),
    "text": ("numbers_view",),
    "numbers": ("numbers_view",),
}


def web_page(job: Job, name: str) -> str:
    """The whole page; ``name`` is its title."""
    data = described(job, name)
    scripts = ("chart", "answers", *VIEWS[data["view"]["kind"]], "page")
    text = _asset("page.html").replace("/*STYLE*/", _asset("style.css"))
    text = text.replace("/*RUNTIME*/", runtime(job))
    text = text.replace("/*SCRIPT*/", "\n".join(_asset(f"{each}.js") for each in scripts))
    return text.replace("/*MODEL*/", _as_json(data))  # last: nothing in it is replaced


def runtime(job: Job) -> str:
    """The script that computes, with the activation and the mixing of this model in it."""
    activation, mixing = job.plan.activation.js, job.plan.mixing.js
    assert activation is not None, "a choice without JavaScript was refused before"
    assert mixing is not None, "a choice without JavaScript was refused before"
    text = "".join(_asset(f"{name}.js") for name in RUNTIME)
    return text.replace("/*ACTIVATION*/x", activation).replace("/*MIXING*/v[h]", mixing)


def _as_json(data: dict[str, Any]) -> str:
    """Strict JSON; "<" could end the element that it stands in."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    place = files("s4d_torch.deploy.export.web").joinpath("assets", name)
    return place.read_text(encoding="utf-8")
