"""What ``s4d bench`` measures: contenders, works and targets."""
