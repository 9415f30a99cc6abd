"""The tasks that come with the package, one file or package per family.

Importing a family registers its tasks.
"""

from s4d_torch.data.tasks.bidmc import load_bidmc
from s4d_torch.data.tasks.cifar import load_cifar
from s4d_torch.data.tasks.digits import load_digits
from s4d_torch.data.tasks.ett import load_ett
from s4d_torch.data.tasks.fsdd import load_fsdd
from s4d_torch.data.tasks.lra.listops import load_listops
from s4d_torch.data.tasks.lra.retrieval import load_retrieval
from s4d_torch.data.tasks.lra.text import load_text
from s4d_torch.data.tasks.mnist import load_mnist, load_pmnist
from s4d_torch.data.tasks.pathfinder import load_pathfinder, load_pathx
from s4d_torch.data.tasks.pendulum import load_pendulum
from s4d_torch.data.tasks.quantization import QUANTIZATIONS
from s4d_torch.data.tasks.speech import load_speech
from s4d_torch.data.tasks.spoken import load_spoken
from s4d_torch.data.tasks.symbols import (
    load_digits_pixels,
    load_fsdd_audio,
    load_mnist_pixels,
    load_spoken_audio,
)

__all__ = ["load_bidmc", "load_cifar", "load_digits", "load_ett", "load_fsdd"]
__all__ += ["load_digits_pixels", "load_fsdd_audio", "load_listops"]
__all__ += ["load_mnist", "load_mnist_pixels", "load_pathfinder", "load_pathx", "load_pendulum"]
__all__ += [
    "load_pmnist",
    "load_retrieval",
    "load_speech",
    "load_spoken",
    "load_spoken_audio",
    "load_text",
    "QUANTIZATIONS",
]
