"""Readers of file formats, and the download and unpacking of archives."""

from s4d_torch.data.files.archive import extract
from s4d_torch.data.files.download import MissingDataError, Source, fetch
from s4d_torch.data.files.npy import read_blocks, read_whole, stored_arrays
from s4d_torch.data.files.png import DamagedImageError, read_png, write_png
from s4d_torch.data.files.sound import SUFFIXES, inspect_audio, read_audio
from s4d_torch.data.files.ts import SeriesFile
from s4d_torch.data.files.wfdb import read_header, read_record

__all__ = ["Source", "MissingDataError", "fetch", "extract"]
__all__ += ["stored_arrays", "read_blocks", "read_whole"]
__all__ += ["read_png", "write_png", "DamagedImageError"]
__all__ += ["SUFFIXES", "inspect_audio", "read_audio"]
__all__ += ["SeriesFile", "read_header", "read_record"]
