"""Training: one loop."""

from s4d_torch.training.loop import Progress, accuracy, fit

__all__ = ["Progress", "accuracy", "fit"]
