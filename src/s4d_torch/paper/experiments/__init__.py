"""The grid of experiments: what is run, where, and what is shown meanwhile."""
