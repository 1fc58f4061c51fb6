"""Data of the board: run directories, events, samples, texts."""
