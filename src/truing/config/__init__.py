"""Recipes: validated TOML."""

from truing.config.parts import (
    EpisodeConfig,
    GrpoConfig,
    OptimizerConfig,
    Part,
    Positive,
    Rate,
    Recipe,
    RftConfig,
    SftConfig,
    Stage,
)
from truing.config.reading import dotted_keys, load_recipe, resolve, to_toml

__all__ = [
    "EpisodeConfig",
    "GrpoConfig",
    "OptimizerConfig",
    "Part",
    "Positive",
    "Rate",
    "Recipe",
    "RftConfig",
    "SftConfig",
    "Stage",
    "dotted_keys",
    "load_recipe",
    "resolve",
    "to_toml",
]
