"""Why the reward does not go up: hypotheses, each found, open or ruled out."""
