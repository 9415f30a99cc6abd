"""Tasks: labelled sequences with fixed splits, one file per family."""

from s4d_torch.data.dataset import Batch, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, MissingDataError, Source, default_root
from s4d_torch.data.own.arrays import load_arrays
from s4d_torch.data.own.find import find_task
from s4d_torch.data.own.series import load_ucr
from s4d_torch.data.own.sounds import load_audio_folder
from s4d_torch.data.own.table import load_table
from s4d_torch.data.task import TASKS, Hyperparameters, Task
from s4d_torch.data.tasks.bidmc import load_bidmc
from s4d_torch.data.tasks.cifar import load_cifar
from s4d_torch.data.tasks.digits import load_digits
from s4d_torch.data.tasks.fsdd import load_fsdd
from s4d_torch.data.tasks.lra.listops import load_listops
from s4d_torch.data.tasks.lra.retrieval import load_retrieval
from s4d_torch.data.tasks.lra.text import load_text
from s4d_torch.data.tasks.mnist import load_mnist, load_pmnist
from s4d_torch.data.tasks.pathfinder.task import load_pathfinder, load_pathx
from s4d_torch.data.tasks.speech import load_speech
from s4d_torch.data.tasks.symbols import load_fsdd_audio, load_mnist_pixels

__all__ = [
    "Batch",
    "DataFolder",
    "Dataset",
    "Hyperparameters",
    "MissingDataError",
    "Sequences",
    "Signature",
    "Source",
    "Split",
    "TASKS",
    "Task",
    "default_root",
    "find_task",
    "load_arrays",
    "load_audio_folder",
    "load_bidmc",
    "load_cifar",
    "load_digits",
    "load_fsdd",
    "load_fsdd_audio",
    "load_listops",
    "load_mnist",
    "load_mnist_pixels",
    "load_pathfinder",
    "load_pathx",
    "load_pmnist",
    "load_retrieval",
    "load_speech",
    "load_table",
    "load_text",
    "load_ucr",
]
