"""Recipes: TOML files, validated."""

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
from truing.config.problems import problems, table_at, validated
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
    "BootstrapConfig",
    "CorrectionConfig",
    "EntropyConfig",
    "EpisodeConfig",
    "FrozenModel",
    "GatesConfig",
    "GrpoConfig",
    "GuardConfig",
    "KlConfig",
    "OptimizerConfig",
    "PolicyStage",
    "PositiveFloat",
    "PositiveInt",
    "PpoConfig",
    "Recipe",
    "ReferenceConfig",
    "ReinforceConfig",
    "RftConfig",
    "RlooConfig",
    "SftConfig",
    "Stage",
    "TranslatedOptions",
    "TrlOptions",
    "builtin_recipe_names",
    "dotted_keys",
    "is_builtin_recipe",
    "load_recipe",
    "problems",
    "read_table",
    "recipe_after_rollbacks",
    "recipe_path",
    "resolve",
    "table_at",
    "to_toml",
    "translate_options",
    "validated",
    "with_overrides",
]
