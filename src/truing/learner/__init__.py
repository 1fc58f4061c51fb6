"""One update: the session, samples of a step, forward and backward, optimizer, checkpoint."""
