"""How much computing an experiment takes, by its sizes: a guess until runs like it are done.

The unit is a mode step, forward and backward: one mode of one channel over one sample.
"""

from __future__ import annotations

import time

import torch

from s4d_torch.data.task import TASKS
from s4d_torch.nn.model import SequenceModel
from s4d_torch.training.config import Config

# Sequences to learn from, where all of the published data is there.
SEQUENCES = {
    "scifar": 45_000,
    "image": 45_000,
    "sc35": 84_843,
    "bidmc-hr": 5_556,
    "bidmc-rr": 5_556,
    "bidmc-spo2": 5_556,
    "listops": 96_000,
    "text": 22_500,
    "retrieval": 147_086,
    "pathfinder": 160_000,
    "pathx": 160_000,
}
FEW = 1_000  # of anything else: no table of the paper needs it
WORDS = 35  # of Speech Commands
SHORT_LISTOPS = (8_000, 42)  # sequences and mean length of the NYU files
LEARNED_FROM = 0.8  # of the pictures that are drawn
MIXING, ATTENTION, DENSE = 0.4, 0.75, 2.0  # mode steps: a weight, a pair of samples; times for S4


def mode_steps(config: Config) -> float:
    """The work of a whole run; validation and test are small beside it."""
    sequences, length = _data(config)
    model, method = config.model, config.method
    per_sample = MIXING * model.d_model**2
    if model.architecture == "transformer":
        per_sample += ATTENTION * length * model.d_model
    elif model.architecture == "ssm":
        both = 2 if method.bidirectional else 1
        dense = DENSE if method.structure == "dplr" else 1.0
        per_sample += dense * both * model.d_model * model.d_state / 2
    else:  # convolutions and recurrent layers: several weights for each of ours
        per_sample *= 8
    return sequences * config.training.epochs * length * model.n_layers * per_sample


def _data(config: Config) -> tuple[float, float]:
    """(sequences to learn from, samples of each)."""
    task, options = config.task, config.data
    sequences, length = float(SEQUENCES.get(task, FEW)), float(TASKS[task].length or FEW)
    if task == "listops":
        made_here = (options.n_train, options.max_length)
        sequences, length = SHORT_LISTOPS if options.source == "nyu" else made_here
    if task == "sc35":
        sequences *= len(options.words) / WORDS if options.words else 1.0
        length = float(options.sample_rate)
    if task in ("pathfinder", "pathx"):
        sequences = LEARNED_FROM * options.count
    if task in ("text", "retrieval"):
        length = min(length, options.max_length)
    return min(sequences, config.training.train_size or sequences), length


def seconds_per_mode_step(length: int = 1024, batch: int = 8) -> float:
    """Measured here and now, on one thread: a few steps of a small model."""
    d_model, d_state, n_layers = 32, 32, 2
    model = SequenceModel(1, 10, d_model=d_model, d_state=d_state, n_layers=n_layers)
    u, times = torch.randn(batch, length, 1), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(4):  # the first loads compiled code
            began = time.perf_counter()
            model(u)[0].square().mean().backward()
            times.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    per_sample = d_model * d_state / 2 + MIXING * d_model**2
    return min(times[1:]) / (batch * length * n_layers * per_sample)
