"""The mathematics as machine code, by numba: operators of torch, each beside the loops behind it.

``tables`` and ``scan`` (over time), ``vandermonde`` (kernels), ``direct`` and ``fourier``
(convolution, term by term and by transforms) are operators with their adjoints, and in plain torch
(``formulas``) for gradients of gradients; ``*_code`` are their loops, imported when first used,
written with vectors of neighbouring channels as values (``vectors``, ``vector_math``). ``operator``
is how they are known to torch; ``runtime`` compiles them, shares the work among threads and says
whether all this can run here; ``code_cache`` keeps what was compiled.
"""
