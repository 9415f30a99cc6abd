"""Convolution as machine code: ``direct``, term by term, and ``fourier``, by transforms."""
