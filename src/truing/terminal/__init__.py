"""A run on a terminal: read, rendered, and kept up to date below the lines."""
