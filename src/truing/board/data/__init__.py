"""What the board reads: run directories, events, samples, texts."""
