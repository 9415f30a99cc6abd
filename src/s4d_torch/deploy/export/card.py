"""The model card of an export: what goes in, what comes out, and a few lines that use it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from s4d_torch.data.clock import Clock

MOST_NAMES = 8  # of features in a comment

Facts = Mapping[str, Any]
Example = Callable[[Facts], list[str]]
"""A program that uses an export, run in its folder: ten lines of Python or fewer, or some of C."""


def card(facts: Facts, example: Example | None) -> str:
    """The README of an export, from the facts of its ``export.json``."""
    config = facts["config"]
    layers = "1 layer" if config["n_layers"] == 1 else f"{config['n_layers']} layers"
    size = f"{layers}, d_model {config['d_model']}, d_state {config['d_state']}"
    parts = [
        f"# A state space model ({size})",
        _first_words(facts),
        *([] if example is None else [_use(facts, example)]),
        "## Inputs and outputs\n" + _tables(facts),
        "## Data\n" + _data(facts),
        "## Check\n" + _check(facts),
    ]
    if facts["quantized"] is not None:
        parts.append("## Quantisation\n" + _quantisation(facts))
    return "\n\n".join(parts) + "\n"


def _use(facts: Facts, example: Example) -> str:
    language = "c" if facts["to"] == "c" else "python"
    return f"## Use\n```{language}\n" + "\n".join(example(facts)) + "\n```"


def _first_words(facts: Facts) -> str:
    method = facts["config"]["method"]
    choices = ", ".join(method[name] for name in ("structure", "kernel", "discretization", "init"))
    return (
        f"Exported by s4d-torch {facts['versions']['s4d_torch']} ({choices}). It needs "
        f"{facts['needs']}; s4d-torch is not needed.\n\n"
        + "".join(f"- {line}\n" for line in _files(facts))
        + "- `export.json`: all of this page as data"
    )


def _files(facts: Facts) -> list[str]:
    if facts["sequence"] is None:
        return list(facts["step"]["about"])
    step = facts["why_no_step"] or (
        f"`{facts['step']['file']}`: one sample at a time, with the state in and out; "
        "zeros are the state before the first sample"
    )
    return [f"`{facts['sequence']['file']}`: whole sequences, of any number and length", step]


def onnx_example(facts: Facts) -> list[str]:
    shape, towers, tokens = _sizes(facts)
    dtype = "int64" if tokens else "float32"
    lines = [
        "import numpy as np",
        "import onnxruntime as ort",
        f'sequence = ort.InferenceSession("{facts["sequence"]["file"]}")',
        f"x = np.zeros({shape}, dtype=np.{dtype})  # {_your_data(facts)}",
        f"u = {_normalised(facts, 'np.array({}, np.float32)')}",
        f"lengths = np.full({shape[:towers]}, {shape[towers]})  # samples of each, without padding",
        '(y,) = sequence.run(["y"], {"u": u, "lengths": lengths})',
    ]
    if facts["step"] is not None:
        first = "u[:, :, 0]" if towers == 2 else "u[:, 0]"
        lines += [
            f'step = ort.InferenceSession("{facts["step"]["file"]}")',
            "state = {i.name: np.zeros([2, *i.shape[1:]]) for i in step.get_inputs()[1:]}",
            f'y_t, *state_t = step.run(None, {{"u": {first}, **state}})',
        ]
    return lines


def torch_example(facts: Facts) -> list[str]:
    shape, towers, tokens = _sizes(facts)
    lines = [
        "import torch",
        f'sequence = torch.export.load("{facts["sequence"]["file"]}").module()',
        f"x = torch.zeros({shape}{', dtype=torch.int64' if tokens else ''})  # {_your_data(facts)}",
        f"u = {_normalised(facts, 'torch.tensor({})')}",
        f"y = sequence(u, torch.full({shape[:towers]}, {shape[towers]}))",
    ]
    if facts["step"] is not None:
        first = "u[:, :, 0]" if towers == 2 else "u[:, 0]"
        shapes = [(2, *part["shape"][1:]) for part in facts["step"]["inputs"][1:]]
        lines += [
            f'step = torch.export.load("{facts["step"]["file"]}").module()',
            f"shapes = {shapes}",
            "state = tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)",
            f"y_t, state = step({first}, state)",
        ]
    return lines


def _sizes(facts: Facts) -> tuple[tuple[int, ...], int, bool]:
    """The shape of the example's data, two sequences of a thousand samples; towers; tokens."""
    sizes, config = {"batch": 2, "length": 1000}, facts["config"]
    shape = tuple(sizes.get(size, size) for size in facts["sequence"]["inputs"][0]["shape"])
    return shape, config["towers"], config["encoder"] == "embedding"


def _your_data(facts: Facts) -> str:
    names = [] if facts["data"] is None else facts["data"]["channels"][:MOST_NAMES]
    if (_read_as(facts) or {}).get("differences"):
        return "your data: the channels, and after them x[t] - x[t - 1] of each, 0 at the first t"
    return "your data" + (
        f": {', '.join(map(repr, names))}" if names and len(names) <= MOST_NAMES else ""
    )


def _normalised(facts: Facts, array: str) -> str:
    data = _read_as(facts)
    if data is None or not normalized(data):
        return "x"
    shift, scale = (array.format(list(data[name])) for name in ("input_shift", "input_scale"))
    return f"(x - {shift}) * {scale}"


def _read_as(facts: Facts) -> Mapping[str, Any] | None:
    """What is known of how data becomes what the model reads."""
    found: Mapping[str, Any] | None = facts["data"] or facts.get("preprocessing")
    return found


def normalized(data: Mapping[str, Any]) -> bool:
    """Whether a model reads other numbers than the data has."""
    changed = any(data["input_shift"]) or any(scale != 1 for scale in data["input_scale"])
    return changed and not data.get("tokens")


def _tables(facts: Facts) -> str:
    parts = []
    for file in filter(None, (facts["sequence"], facts["step"])):
        rows = [
            (way, f"`{each['name']}`", each["dtype"], f"({', '.join(map(str, each['shape']))})")
            for way in ("in", "out")
            for each in file[f"{way}puts"]
        ]
        parts.append(f"`{file['file']}`\n\n" + _table(("", "name", "type", "shape"), rows))
        if "operators" in file:
            parts.append(f"Operators, of opset {file['opset']}: {', '.join(file['operators'])}.")
    fixed = ""
    if facts["rate"] != 1:
        fixed = f" The sampling rate is fixed at `rate={facts['rate']:g}`."
    if facts["sequence"] is None:
        return "\n\n".join([*parts, facts["step"]["arithmetic"] + fixed])
    lengths = (
        "`lengths` holds the number of samples of each sequence of a right-padded batch; for "
        "sequences without padding, that of `u`. It has to be given."
    )
    arithmetic = (
        "All arithmetic is real: float32, and float64 for the state of the step, whose eigenvalues "
        "lie close to the unit circle. Inputs are not checked, neither for NaN nor for their range."
    )
    return "\n\n".join([*parts, lengths, arithmetic + fixed])


def _data(facts: Facts) -> str:
    data = facts["data"]
    if data is None:
        return _weights_alone(facts.get("preprocessing"))
    lines = []
    if data["channels"]:
        named = ", ".join(f"{i}: {name}" for i, name in enumerate(data["channels"]))
        lines.append(f"- features, in this order: {named}")
    if data["target"]:
        lines.append(f"- what is predicted: {data['target']}")
    if data["tokens"]:
        lines.append(f"- tokens from 0 to {data['features'] - 1}")
    elif normalized(data):
        lines.append(
            f"- the model reads `(x - shift) * scale` per feature, with shift "
            f"{list(data['input_shift'])} and scale {list(data['input_scale'])}"
        )
    else:
        lines.append("- the model reads the data as it is, without normalisation")
    if data["kind"] == "regression":
        lines.append(f"- a prediction is `y * {data['target_scale']!r} + {data['target_shift']!r}`")
    else:
        lines.append(f"- `y` holds {data['outputs']} logits; a softmax makes them probabilities")
    if data["classes"]:
        named = ", ".join(f"{i}: {name}" for i, name in enumerate(data["classes"]))
        lines.append(f"- classes: {named}")
    lines.append(f"- the longest sequence in training had {data['length']} samples")
    if data["sample_rate"] is not None:
        lines.append(f"- {data['sample_rate']:g} samples per second")
    if clock := data.get("clock"):
        lines.append(f"- {fixed_step(clock, facts['rate'])}")
    return "\n".join(lines)


def fixed_step(clock: Mapping[str, Any], rate: float) -> str:
    """What an export makes of a model that was told the times of its samples."""
    return (
        "in training the model was told the time between samples; these files are not, and take "
        f"all samples as {replace(Clock(**clock), step=clock['step'] * rate).unit} apart: give "
        "them evenly spaced samples, that far apart"
    )


def _weights_alone(found: Mapping[str, Any] | None) -> str:
    """The data of a model that was not exported from a run."""
    if found is None:
        return "Nothing is known of the data: the export was made from weights alone."
    lines = [
        f"- the model reads `(x - shift) * scale` per feature, with shift "
        f"{list(found['input_shift'])} and scale {list(found['input_scale'])}"
    ]
    if found.get("differences"):
        lines.append(
            f"- its {len(found['input_shift'])} features are the channels of a series and, after "
            "them, the first difference of each, `x[t] - x[t - 1]`, 0 for the first sample; "
            "whoever steps keeps the sample before"
        )
    if "target_shift" in found:
        scale, shift = found["target_scale"], found["target_shift"]
        lines.append(f"- a prediction of a regression is `y * {scale!r} + {shift!r}`")
    return "\n".join(lines)


def _check(facts: Facts) -> str:
    checked, rows = facts["checked"], []
    if checked["difference"] is None:
        return f"Not checked against the model: {checked['why_not']}."
    for name in ("sequence", "step"):
        for row in checked.get(name, []):
            samples, difference = row.get("length", row.get("steps")), f"{row['difference']:.1e}"
            ragged = "yes" if row.get("ragged") else "no"
            rows.append((name, row["batch"], samples, ragged, difference))
    words = (
        f"Compared with the model in PyTorch, the largest difference is "
        f"{checked['difference']:.1e} of the largest output; {checked['tolerance']:g} was allowed."
    )
    return words + "\n\n" + _table(("file", "batch", "samples", "ragged", "difference"), rows)


def _quantisation(facts: Facts) -> str:
    found = facts["quantized"]
    lines = [
        f"The mixing matrices are stored as {found['to']}"
        + (", with one scale per output;" if found["to"] == "int8" else ";")
        + " computation is in float32, and all else is stored as it was. On sample inputs the "
        f"output changes by {found['output_change']:.1e} of the largest."
    ]
    sizes = [
        (f"`{facts[name]['file']}`", before, facts[name]["bytes"])
        for name, before in found["bytes_before"].items()
    ]
    lines.append(_table(("file", "bytes before", "bytes now"), sizes))
    if scores := found["scores"]:
        lines.append(f"On {scores['sequences']} sequences of the {scores['split']} split:")
        rows = [
            (name, f"{before:.5g}", f"{scores['after'][name]:.5g}")
            for name, before in scores["before"].items()
        ]
        lines.append(_table(("score", "before", "now"), rows))
    return "\n\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
