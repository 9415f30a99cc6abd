"""Data: labelled sequences with fixed splits, the tasks that read them, and users' own files.

``files/`` reads formats and downloads, ``tasks/`` has the tasks that come with the package,
``user_files/`` reads what users bring along.
"""

from s4d_torch.data.dataset import Batch, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, MissingDataError, Source, default_root
from s4d_torch.data.task import LAPTOP, TASKS, Hyperparameters, Task, register

# isort: split
# Importing these registers their tasks, in the order in which they are listed.
from s4d_torch.data.user_files import (
    find_task,
    load_arrays,
    load_audio_folder,
    load_table,
    load_ucr,
    read_items,
    read_symbols,
    write_symbols,
)

from s4d_torch.data.tasks import (  # isort: skip
    QUANTIZATIONS,
    load_bidmc,
    load_cifar,
    load_digits,
    load_fsdd,
    load_fsdd_audio,
    load_listops,
    load_mnist,
    load_mnist_pixels,
    load_pathfinder,
    load_pathx,
    load_pmnist,
    load_retrieval,
    load_speech,
    load_text,
)

__all__ = ["Batch", "Dataset", "Sequences", "Signature", "Split"]
__all__ += ["DataFolder", "MissingDataError", "Source", "default_root"]
__all__ += ["TASKS", "Task", "Hyperparameters", "LAPTOP", "register"]
__all__ += ["find_task", "load_arrays", "load_audio_folder", "load_table", "load_ucr"]
__all__ += ["read_items", "read_symbols", "write_symbols"]
__all__ += ["load_bidmc", "load_cifar", "load_digits", "load_fsdd", "load_fsdd_audio"]
__all__ += ["load_listops", "load_mnist", "load_mnist_pixels", "load_pathfinder", "load_pathx"]
__all__ += ["load_pmnist", "load_retrieval", "load_speech", "load_text", "QUANTIZATIONS"]
