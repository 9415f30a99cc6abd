"""Weights of the official code, read into layers and models."""
