"""A whole model one sample at a time: the compiled step, sampling and generation.

``plan`` -> ``tables`` (flat arrays, as ``layout`` has them) -> ``machine`` (a stream and its calls)
-> ``step``; the ``*_code`` modules are machine code by numba, imported when they are first needed.
"""

from s4d_torch.nn.stepping.generation import Generation
from s4d_torch.nn.stepping.step import CompiledStep, compiles

__all__ = ["CompiledStep", "Generation", "compiles"]
