"""Data files as rows: sources, validation, splits without leakage."""
