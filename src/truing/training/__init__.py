"""Training: one update (step.py), and the run around it (loop.py)."""
