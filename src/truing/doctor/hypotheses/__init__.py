"""Hypotheses for a reward that does not rise: each found, open or ruled out."""
