"""Small models on handwritten digits, side by side, and a page about them."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from s4d_torch.data.dataset import Dataset
from s4d_torch.explore.interactive import state_spaces
from s4d_torch.nn.method import METHODS
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.paper.report import Chart, Code, Heading, Line, Page, Paragraph, Table
from s4d_torch.training import Config, Reporter, Run, default_config, train_on
from s4d_torch.training.build import build_model

PIXELS = 64
SHOWN = 4  # kernels in the report
COLUMNS = ("model", "test accuracy", "parameters", "seconds")


def digit_models(epochs: int, seed: int, *, quick: bool = False) -> dict[str, Config]:
    """The paper's models and an LSTM of their size; with ``quick`` very small and for one epoch."""
    base = default_config("digits")
    model, training = base.model, replace(base.training, epochs=epochs, seed=seed)
    if quick:
        model = replace(model, d_model=8, d_state=4)
        training = replace(training, epochs=1, batch_size=128)
    base = replace(base, model=model, training=training)
    times = {"dt_min": base.method.dt_min, "dt_max": base.method.dt_max}
    rows = {
        "S4D-LegS": METHODS["s4d"],
        "S4D-Inv": METHODS["s4d"].replace(init="inv"),
        "S4D-Lin": METHODS["s4d"].replace(init="lin"),
        "S4": METHODS["s4"],
        "DSS": METHODS["dss"],
    }
    configs = {name: replace(base, method=method.replace(**times)) for name, method in rows.items()}
    # One layer of 48 cells has 19 402 parameters, S4D 19 690. Its settings did best on the
    # validation set among pooling mean and last, and learning rates 0.003 to 0.02.
    lstm = replace(
        base,
        model=replace(base.model, architecture="lstm", n_layers=1, pooling="last"),
        optimizer=replace(base.optimizer, lr=0.01, clip=1.0),
    )
    return {**configs, "LSTM": lstm}


def compare(
    data: Dataset, configs: Mapping[str, Config], reporter: Callable[[str], Reporter]
) -> dict[str, Run]:
    """A run of each config on the same data, each told about to the ``reporter`` of its name."""
    # torch loads much of itself at the first step of all; that is none of the models' time
    train_on(data.shortened(train=2, test=2), next(iter(configs.values())))
    return {
        name: train_on(data, config, reporter=reporter(name)) for name, config in configs.items()
    }


def result_rows(runs: Mapping[str, Run]) -> list[list[str]]:
    """A row of :data:`COLUMNS` for each run."""
    rows = []
    for name, run in runs.items():
        accuracy, found = run.summary["test"]["accuracy"], run.summary
        rows.append(
            [name, f"{accuracy:.1%}", f"{found['parameters']:,}", f"{found['seconds']:.1f}"]
        )
    return rows


def report(runs: dict[str, Run]) -> Page:
    """The table, the learning curves and what the layers have learned, as a page."""
    shown = runs["S4D-LegS"]
    seed = shown.config.training.seed
    axes = ("epoch", "validation_accuracy")
    curves = [
        Line(name, *([float(row[axis]) for row in run.rows] for axis in axes))
        for name, run in runs.items()
    ]
    caption = "Accuracy of the weights that did best on the validation set"
    learning = "Validation accuracy after each epoch"
    machine = f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    page = Page("Digits, pixel by pixel")
    page.add(
        Paragraph(
            f"Handwritten digits of 8x8 pixels, read as sequences of {PIXELS} numbers; one run of "
            f"each model, seed {seed}. A difference of a point is three of the 359 test digits."
        ),
        Heading("Results"),
        Table(list(COLUMNS), result_rows(runs), caption),
        Heading("Learning curves"),
        Chart(curves, "epoch", "validation accuracy", learning, percent=True),
        Heading("Kernels"),
        Paragraph(
            "A state space layer is a convolution. These are the kernels of the first features of "
            "S4D-LegS's first layer, at the start and as learned."
        ),
        _kernels(build_model(shown.config, shown.signature), "At the start"),
        _kernels(shown.model, "Learned"),
        Heading("Machine and command"),
        Paragraph(f"{machine}, {torch.get_num_threads()} thread(s)"),
        Code("s4d demo"),
    )
    return page


def _kernels(model: Pretrained, caption: str) -> Chart:
    kernels = state_spaces(model)[0].kernel(PIXELS).detach()[:SHOWN]
    lines = [
        Line(f"feature {i}", list(range(PIXELS)), kernel.tolist())
        for i, kernel in enumerate(kernels)
    ]
    return Chart(lines, "samples ago", "weight", caption, title=f"Kernels: {caption}")
