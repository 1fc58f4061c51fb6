"""Recipes: validated TOML."""

from truing.config.aliases import Aliases, Translated, translate
from truing.config.control import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    GuardConfig,
    KlConfig,
    ReferenceConfig,
)
from truing.config.embedded import embedded_recipes, names_embedded, recipe_path
from truing.config.following import AlertsConfig
from truing.config.overrides import dotted_keys, overridden
from truing.config.parts import EpisodeConfig, OptimizerConfig, Part, Positive, Rate
from truing.config.reading import load_recipe, read_table, resolve, to_toml
from truing.config.recipe import Recipe, Stage
from truing.config.safer import safer
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
    "AlertsConfig",
    "Aliases",
    "BootstrapConfig",
    "CorrectionConfig",
    "EntropyConfig",
    "EpisodeConfig",
    "GatesConfig",
    "GrpoConfig",
    "GuardConfig",
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
    "Translated",
    "dotted_keys",
    "embedded_recipes",
    "load_recipe",
    "names_embedded",
    "overridden",
    "read_table",
    "recipe_path",
    "resolve",
    "safer",
    "to_toml",
    "translate",
]
