"""The forward pass: log-probabilities of a batch, along a tree of tokens or in padded rows."""
