"""One step: forward and backward, optimizer, checkpoint."""
