"""NumPy files that are damaged where numpy and zipfile do not look: one sentence with the file."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.data.files.npy import stored_arrays


def as_npy() -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros((4, 3), np.float32))
    return content.getvalue()


@pytest.mark.parametrize(
    ("found", "changed"),
    [(b"{'descr'", b"{'descr(("), (b"(4, 3)", b"(4, -3"), (b"'<f4'", b"'<\xff4'"), (b"}", b" ")],
    ids=["brackets", "negative", "type", "open"],
)
def test_a_header_that_is_no_python(found: bytes, changed: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(as_npy().replace(found, changed, 1))
    with pytest.raises(ValueError, match=r"x\.npy: x is damaged or no array"):
        stored_arrays(tmp_path / "x.npy")


def test_a_negative_size_is_damage(tmp_path: Path) -> None:
    header = as_npy().replace(b"(4, 3), ", b"(4, -3),", 1)
    (tmp_path / "x.npy").write_bytes(header)
    with pytest.raises(ValueError, match=r"x is damaged or no array: its shape is \(4, -3\)"):
        stored_arrays(tmp_path / "x.npy")


def test_a_member_that_begins_before_the_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as packed:
        packed.writestr("X.npy", as_npy())
    content = bytearray((tmp_path / "x.npz").read_bytes())
    end = content.rindex(b"PK\x05\x06")
    content[end + 16 : end + 20] = (1 << 20).to_bytes(4, "little")  # where the directory would be
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npz is damaged or no \.npz file"):
        stored_arrays(tmp_path / "x.npz")
