"""Users' files: to train on, to predict from, to continue, and to write generated symbols to.

Importing this registers the tasks ``arrays``, ``ucr``, ``audio-folder`` and ``table``.
"""

from s4d_torch.data.user_files.arrays import load_arrays
from s4d_torch.data.user_files.audio_folder import load_audio_folder
from s4d_torch.data.user_files.columns import order_of
from s4d_torch.data.user_files.inputs import (
    BYTES,
    Item,
    files_below,
    in_unit,
    read_items,
    read_sound,
)
from s4d_torch.data.user_files.lookup import find_task
from s4d_torch.data.user_files.symbol_files import (
    as_text,
    check_format,
    read_symbols,
    write_symbols,
)
from s4d_torch.data.user_files.table import load_table
from s4d_torch.data.user_files.ucr import load_ucr

__all__ = ["find_task", "load_arrays", "load_audio_folder", "load_table", "load_ucr"]
__all__ += ["BYTES", "Item", "in_unit", "read_items", "read_sound"]
__all__ += ["files_below", "order_of"]
__all__ += ["as_text", "check_format", "read_symbols", "write_symbols"]
