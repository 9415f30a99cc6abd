"""The compiled scan over samples that are not evenly spaced."""
