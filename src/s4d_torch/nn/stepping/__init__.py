"""A whole model one sample at a time: the compiled step, sampling and generation."""
