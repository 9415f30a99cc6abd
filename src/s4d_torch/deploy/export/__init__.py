"""Trained models as graphs for other runtimes."""
