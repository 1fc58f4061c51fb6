"""Recipes: validated TOML."""

from truing.config.control import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    KlConfig,
    ReferenceConfig,
)
from truing.config.parts import EpisodeConfig, OptimizerConfig, Part, Positive, Rate
from truing.config.reading import dotted_keys, load_recipe, resolve, to_toml
from truing.config.recipe import Recipe, Stage
from truing.config.stages import (
    GrpoConfig,
    PolicyStage,
    PpoConfig,
    ReinforceConfig,
    RftConfig,
    RlooConfig,
    SftConfig,
)

__all__ = [
    "BootstrapConfig",
    "CorrectionConfig",
    "EntropyConfig",
    "EpisodeConfig",
    "GatesConfig",
    "GrpoConfig",
    "KlConfig",
    "OptimizerConfig",
    "Part",
    "PolicyStage",
    "Positive",
    "PpoConfig",
    "Rate",
    "Recipe",
    "ReferenceConfig",
    "ReinforceConfig",
    "RftConfig",
    "RlooConfig",
    "SftConfig",
    "Stage",
    "dotted_keys",
    "load_recipe",
    "resolve",
    "to_toml",
]
