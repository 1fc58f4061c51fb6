"""Commands that say what is wrong."""
