"""What the paper says in words alone: choices for images and ListOps, tying, dt for speech.

None of these is a table of the paper; each is what it would take to see whether the sentence holds.
"""

from dataclasses import replace
from typing import Any

from s4d_torch.paper.recipes.ablation_tables import ABLATION, SPEAKERS, frozen
from s4d_torch.paper.recipes.benchmark_tables import PROTOCOL
from s4d_torch.paper.recipes.recipe import Change, Column, Recipe, method
from s4d_torch.paper.recipes.scales import ablation, large
from s4d_torch.training.config import Config

IN_WORDS = "Not a table of the paper, which has a sentence only."


def as_it_is(config: Config) -> Config:
    return config


def model(**changes: Any) -> Change:
    """Some options of the network changed."""
    return lambda config: replace(config, model=replace(config.model, **changes))


def narrower(config: Config) -> Config:
    """Half as wide."""
    return replace(config, model=replace(config.model, d_model=config.model.d_model // 2))


def smaller(config: Config) -> Config:
    """Half as deep, half as wide."""
    half = replace(config.model, n_layers=config.model.n_layers // 2)
    return narrower(replace(config, model=half))


def longer_memory(config: Config) -> Config:
    """Step sizes from a tenth of the usual on: the slowest states remember ten times as long."""
    dt_min = config.method.dt_min / 10
    return replace(config, method=config.method.with_steps(dt_min, config.method.dt_max))


def causal_s4(config: Config) -> Config:
    """As S4 was first published: it looks back only, and mixes features by a plain linear map."""
    config = method("s4", bidirectional=False)(config)
    return replace(config, model=replace(config.model, mixing="linear"))


IMAGES = Recipe(
    "image-choices",
    "Choices for the images of the Long Range Arena",
    "appendix B, sCIFAR / LRA Image",
    large,
    {
        "as it is": as_it_is,
        "no dropout": model(dropout=0.0),
        "batch norm": model(norm="batch"),
        "half as wide": narrower,
    },
    [Column("Image", "image")],
    note=f"{IN_WORDS} {PROTOCOL}",
)
LISTOPS = Recipe(
    "listops-choices",
    "Choices for ListOps",
    "appendix B, ListOps",
    large,
    {"post-norm": model(prenorm=False), "pre-norm": model(prenorm=True), "smaller": smaller},
    [Column("ListOps", "listops")],
    note=f"{IN_WORDS} {PROTOCOL}",
)
TYING = Recipe(
    "tying",
    "A and B of their own for each channel, or one for all",
    "appendix B, training protocol of the ablations",
    ablation,
    {"tied": method(n_ssm=1), "untied": method(n_ssm=None)},
    ABLATION,
    note=IN_WORDS,
)
SPEECH_DT = Recipe(
    "speech-dt",
    "Frozen A and B on speech, with the usual step sizes and with longer memories",
    "section 5.3 (i)",
    ablation,
    {
        "trained": method(),
        "frozen": frozen(method()),
        "frozen, longer memory": frozen(longer_memory),
    },
    [Column("SC (AR)", "sc35", "validation")],
    note=f"{IN_WORDS} A step size of 0.001 remembers 1000 samples, and a clip has 16000; a longer "
    f"memory is one of step sizes from 0.0001 on. {SPEAKERS}",
)
ORIGINAL = Recipe(
    "original-s4",
    "S4 as here, and as first published: causal, without a gate",
    "Table 5, S4 (original)",
    large,
    {"S4-LegS": method("s4"), "S4 (original)": causal_s4},
    [Column("Image", "image"), Column("Text", "text")],
    {"S4-LegS": "88.65 (0.23) | 86.82 (0.13)", "S4 (original)": "87.26 | 76.02"},
    note="The original also had another schedule, which is not changed here. The paper says of "
    f"the ablation datasets that S4 became better, and prints no numbers for them. {PROTOCOL}",
)

TABLES = (IMAGES, LISTOPS, TYING, SPEECH_DT, ORIGINAL)
