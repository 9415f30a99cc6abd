"""Models as C99: ``s4d.h`` and ``s4d.c``, which need the C library alone and allocate nothing.

A plan becomes constant arrays (``tables``), a header (``header``) and functions (``functions``,
``source``), written as C by ``text``; ``compiler`` builds them where there is a compiler.
"""

from s4d_torch.deploy.export.c.header import header, stack_bytes, state_bytes
from s4d_torch.deploy.export.c.source import source
from s4d_torch.deploy.export.c.tables import Tables, make_tables

__all__ = ["Tables", "header", "make_tables", "source", "stack_bytes", "state_bytes"]
