"""The mathematics as machine code, by numba: operators of torch, each beside the loops behind it.

``scan`` (tables and the scan over time), ``kernel`` and ``direct`` (convolution term by term) are
operators with their adjoints; ``*_code`` are their loops, imported when first used; ``runtime``
compiles them, shares the work among threads and says whether all this can run here.
"""
