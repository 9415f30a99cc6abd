"""What a state space model is compared with: the same calls around other layers."""

import json
import os
from contextlib import suppress
from pathlib import Path

from s4d_torch.nn.baselines.attention import TransformerModel
from s4d_torch.nn.baselines.baseline import MODELS, Baseline
from s4d_torch.nn.baselines.convnet import ConvNet, ResNet
from s4d_torch.nn.baselines.recurrent import RecurrentModel
from s4d_torch.nn.pretrained import CONFIG, Pretrained

__all__ = [
    "MODELS", "Baseline", "RecurrentModel", "TransformerModel", "ConvNet", "ResNet",
    "load_model",
]  # fmt: skip


def load_model(folder: str | os.PathLike[str]) -> Pretrained:
    """The model that ``save_pretrained`` wrote into ``folder``, of whatever class it is.

    Its ``preprocessing`` is the caller's business.
    """
    name = "SequenceModel"  # reports a missing or broken file in full
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        name = str(json.loads((Path(folder) / CONFIG).read_text("utf-8")).get("model", name))
    return MODELS[name].read_pretrained(folder)
