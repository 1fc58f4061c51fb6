"""Recipes: validated TOML."""

from truing.config.after_rollback import recipe_after_rollbacks
from truing.config.builtin_recipes import builtin_recipe_names, is_builtin_recipe, recipe_path
from truing.config.loader import load_recipe, read_table, resolve, to_toml
from truing.config.overrides import dotted_keys, with_overrides
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
from truing.config.sections import EpisodeConfig, FrozenModel, OptimizerConfig, PositiveFloat, PositiveInt
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
from truing.config.trl_options import TranslatedOptions, TrlOptions, translate_options

__all__ = [
    "AlertsConfig",
    "TrlOptions",
    "BootstrapConfig",
    "CorrectionConfig",
    "EntropyConfig",
    "EpisodeConfig",
    "GatesConfig",
    "GrpoConfig",
    "GuardConfig",
    "KlConfig",
    "OptimizerConfig",
    "FrozenModel",
    "PolicyStage",
    "PositiveInt",
    "PpoConfig",
    "PositiveFloat",
    "Recipe",
    "ReferenceConfig",
    "ReinforceConfig",
    "RftConfig",
    "RlooConfig",
    "SftConfig",
    "Stage",
    "TranslatedOptions",
    "dotted_keys",
    "builtin_recipe_names",
    "load_recipe",
    "is_builtin_recipe",
    "with_overrides",
    "read_table",
    "recipe_path",
    "resolve",
    "recipe_after_rollbacks",
    "to_toml",
    "translate_options",
]
