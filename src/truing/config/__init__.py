"""Recipes: validated TOML."""

from truing.config.after_rollback import safer
from truing.config.builtin_recipes import embedded_recipes, names_embedded, recipe_path
from truing.config.loader import load_recipe, read_table, resolve, to_toml
from truing.config.overrides import dotted_keys, overridden
from truing.config.policy_options import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    GuardConfig,
    KlConfig,
    ReferenceConfig,
)
from truing.config.recipe import Recipe, Stage
from truing.config.sections import EpisodeConfig, OptimizerConfig, Part, Positive, Rate
from truing.config.stages import (
    GrpoConfig,
    PolicyStage,
    PpoConfig,
    ReinforceConfig,
    RftConfig,
    RlooConfig,
    SftConfig,
)
from truing.config.trackers import AlertsConfig
from truing.config.trl_options import Aliases, Translated, translate

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
