"""Live streams: answers as samples arrive, the same as for the whole sequence at once.

A :class:`Stream` or many :class:`Streams` go through one runner (:mod:`.runner`) and can be stored
(:mod:`.snapshots`); :mod:`.session` follows a source of samples (:mod:`.sources`) to its end.
"""

from s4d_torch.deploy.stream.live import Stream, Streams, crossover_of

__all__ = ["Stream", "Streams", "crossover_of"]
