"""The repository around the package in a clone: ``dev/``, and recipes with environments of their own."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
"""Of an editable installation; of an installed package a folder without ``dev/``."""


def in_clone() -> bool:
    """Whether the package is in its repository."""
    return (REPOSITORY / "dev" / "__init__.py").is_file()
