"""Small files in the formats of CIFAR-10 and MNIST, filled with noise."""

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from s4d_torch.data import DataFolder, Dataset
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks import mnist as mnist_module

Bytes = npt.NDArray[np.uint8]
CIFAR, MNIST = "cifar-10-batches-bin", "mnist"
IDX = list(mnist_module.FILES)


def load(name: str, root: Path, **options: int) -> Dataset:
    task = TASKS[name]
    return task.load(task.options(**options), DataFolder(root, download=False))


def noise(*shape: int, seed: int = 0) -> Bytes:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, shape, dtype=np.uint8)


def write_cifar(root: Path, count: int = 20, batches: int = 5) -> dict[str, Bytes]:
    """Records of noise with labels 0, 1, ..., 9, 0, ...: the images (count, 32, 32, 3) by file."""
    (root / CIFAR).mkdir(parents=True, exist_ok=True)
    written = {}
    for seed, name in enumerate(["test_batch", *(f"data_batch_{i + 1}" for i in range(batches))]):
        images = noise(count, 32, 32, 3, seed=seed)
        labels = np.arange(count, dtype=np.uint8)[:, None] % 10
        planes = images.transpose(0, 3, 1, 2).reshape(count, -1)
        np.hstack([labels, planes]).tofile(root / CIFAR / f"{name}.bin")
        written[name] = images
    return written


def idx(array: Bytes) -> bytes:
    head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


def write_mnist(root: Path, train: int = 40, test: int = 20, suffix: str = ".gz") -> list[Bytes]:
    """Noise with labels 0, 1, ..., 9, 0, ...: training and test images (n, 28, 28)."""
    (root / MNIST).mkdir(parents=True, exist_ok=True)
    images = [noise(train, 28, 28, seed=1), noise(test, 28, 28, seed=2)]
    labels = [np.arange(len(each), dtype=np.uint8) % 10 for each in images]
    for name, array in zip(IDX, [images[0], labels[0], images[1], labels[1]], strict=True):
        content = gzip.compress(idx(array)) if suffix == ".gz" else idx(array)
        (root / MNIST / f"{name}{suffix}").write_bytes(content)
    return images


def linked(root: Path, folder: str, place: Path) -> Path:
    """A data folder of the test's own, so that what is prepared is built here."""
    (place / folder).symlink_to(root / folder)
    return place
