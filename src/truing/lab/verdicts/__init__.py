"""Verdicts from pairs and checks, and the promotion of validated arms."""
