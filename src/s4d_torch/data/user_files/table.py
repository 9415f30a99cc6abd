"""A user's own table: a CSV file in long form, one row for each case and time, or in wide form.

Long: a header line, then rows such as ``case,time,x,y,label``: the case a row belongs to, its time
(optional; without it, rows count in their order), one or more values, and the target of the case,
the same in all its rows. Times are numbers or ISO dates; they only put the rows of a case in
order, and samples are taken as evenly spaced, unless ``time_column`` names their column: then
models are told the time between rows, and rows without a single value are left out. Rows of
different cases may be mixed.

Wide: one row for each case, such as ``case,t0,t1,t2,label``: its values over time in as many
columns (in the order of the numbers in their names), its target and, if there is one, its name.
Empty cells at the end of a row only fill up a shorter series.

A column without a name, where pandas puts the numbers of the rows, is not read.
"""

from dataclasses import asdict, replace

from s4d_torch.data.dataset import Dataset
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.task import LAPTOP, Task, register
from s4d_torch.data.user_files.assembly import existing_file
from s4d_torch.data.user_files.long_table import read_long_table
from s4d_torch.data.user_files.table_reader import TableOptions, TableReader
from s4d_torch.data.user_files.wide_table import read_wide_table

__all__ = ["TableOptions", "load_table"]


def load_table(options: TableOptions, folder: DataFolder) -> Dataset:
    """The cases of the table, each (time, values), in units of the training cases."""
    file = existing_file(options.path)
    key = asdict(options) | {"path": ""}

    def build(scratch: Scratch) -> Dataset:
        table = TableReader(file, options)
        read = read_wide_table if table.layout == "wide" else read_long_table
        return read(table, scratch)

    return folder.prepared("table", key, [file], build)


register(
    Task(
        name="table",
        summary="your own CSV file: a row for each case and time, or for each case",
        options=TableOptions,
        load=load_table,
        metric="accuracy",
        size="your own",
        small=replace(LAPTOP, epochs="auto"),
    )
)
