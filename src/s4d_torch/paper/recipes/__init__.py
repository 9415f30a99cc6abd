"""The paper's tables as data, and the sizes at which they can be run."""
