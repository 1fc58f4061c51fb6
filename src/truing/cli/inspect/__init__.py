"""Commands that show a run."""
