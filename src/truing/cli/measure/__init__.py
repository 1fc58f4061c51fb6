"""Commands that measure Truing itself."""
