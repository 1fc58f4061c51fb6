"""One update: forward and backward, optimizer, checkpoint."""
