"""Statistics of paired runs: e-processes, power, noise."""
