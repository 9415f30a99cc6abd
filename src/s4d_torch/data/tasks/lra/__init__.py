"""The text tasks of the Long Range Arena: ListOps, Text and Retrieval."""

from s4d_torch.data.tasks.lra.listops import ListOpsOptions, load_listops
from s4d_torch.data.tasks.lra.retrieval import RetrievalOptions, load_retrieval
from s4d_torch.data.tasks.lra.text import TextOptions, load_text

__all__ = ["ListOpsOptions", "load_listops"]
__all__ += ["RetrievalOptions", "load_retrieval"]
__all__ += ["TextOptions", "load_text"]
