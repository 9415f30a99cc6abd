"""What is said about a run: of its data and model, as it goes on, at its end, beside others."""
