"""The tasks that come with the package, one file or package per family.

Importing a family registers its tasks.
"""

from s4d_torch.data.tasks.bidmc import BidmcOptions, load_bidmc
from s4d_torch.data.tasks.cifar import CifarOptions, load_cifar
from s4d_torch.data.tasks.digits import DigitsOptions, load_digits
from s4d_torch.data.tasks.fsdd import FsddOptions, load_fsdd
from s4d_torch.data.tasks.lra.listops import load_listops
from s4d_torch.data.tasks.lra.retrieval import load_retrieval
from s4d_torch.data.tasks.lra.text import load_text
from s4d_torch.data.tasks.mnist import MnistOptions, PermutedMnistOptions, load_mnist, load_pmnist
from s4d_torch.data.tasks.pathfinder import load_pathfinder, load_pathx
from s4d_torch.data.tasks.speech import SpeechOptions, load_speech
from s4d_torch.data.tasks.symbols import (
    QUANTIZATIONS,
    Quantization,
    counted_bits,
    load_fsdd_audio,
    load_mnist_pixels,
)

__all__ = ["BidmcOptions", "load_bidmc"]
__all__ += ["CifarOptions", "load_cifar"]
__all__ += ["DigitsOptions", "load_digits"]
__all__ += ["FsddOptions", "load_fsdd"]
__all__ += ["load_listops", "load_retrieval", "load_text"]
__all__ += ["MnistOptions", "PermutedMnistOptions", "load_mnist", "load_pmnist"]
__all__ += ["load_pathfinder", "load_pathx"]
__all__ += ["SpeechOptions", "load_speech"]
__all__ += ["QUANTIZATIONS", "Quantization", "counted_bits", "load_fsdd_audio", "load_mnist_pixels"]
