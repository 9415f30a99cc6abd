"""What is kept of a run: checkpoints written whole, the best weights, the folder around them."""
