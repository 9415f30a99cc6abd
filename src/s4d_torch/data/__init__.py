"""Tasks: labelled sequences with fixed splits, one file per family."""

from s4d_torch.data.cifar import load_cifar
from s4d_torch.data.dataset import Batch, Dataset, Sequences, Signature, Split
from s4d_torch.data.digits import load_digits
from s4d_torch.data.folder import DataFolder, MissingDataError, Source, default_root
from s4d_torch.data.mnist import load_mnist, load_pmnist
from s4d_torch.data.task import TASKS, Hyperparameters, Task

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
    "load_cifar",
    "load_digits",
    "load_mnist",
    "load_pmnist",
]
