"""The disk space that the checkpoints of a run take, told before it trains."""

import math
import shutil
from pathlib import Path

from truing.algos import ALGORITHMS, StepConfig
from truing.config import Recipe
from truing.learner.memory_prediction import STATE_BYTES
from truing.models.policy import Policy
from truing.utils.memory import GB

WEIGHT_BYTES = STATE_BYTES // 3
"""Of a trained weight without its two moments: float32."""


def disk_note(recipe: Recipe, policy: Policy, run: Path) -> str:
    """Return how large checkpoints are, how many are kept, and whether the disk has space for them."""
    trained = sum(weight.numel() for weight in policy.parameters.values())
    sizes = {stage: checkpoint_bytes(recipe, stage, trained) for stage in recipe.stages}
    counts = {stage: kept_count(recipe, stage) for stage in recipe.stages}
    total, largest = sum(sizes[stage] * counts[stage] for stage in sizes), max(sizes.values())
    kept = ", ".join(f"{count} of {stage}" for stage, count in counts.items())
    text = (
        f"checkpoints: up to {_size(total)} on disk ({kept}; {_size(largest)} each), and one more"
        " while one is written"
    )
    free = shutil.disk_usage(run).free
    if total + largest <= free:
        return text
    return f"{text}. {run} has {_size(free)} free: free space, or lower checkpoint_limit"


def checkpoint_bytes(recipe: Recipe, stage: str, trained: int) -> int:
    """Return the bytes of a checkpoint of a stage with so many trained weights: float32, and two moments."""
    algorithm, setting = ALGORITHMS[stage], StepConfig.from_recipe(recipe, stage)
    copies = 2 if algorithm.critic(setting.stage) == "separate" else 1
    has_reference = recipe.reference.sync_every and algorithm.needs_reference(setting)
    return trained * (STATE_BYTES * copies + (WEIGHT_BYTES if has_reference else 0))


def kept_count(recipe: Recipe, stage: str) -> int:
    """Return the most checkpoints that a stage keeps, with those that a guard may return to."""
    steps, every = recipe.stage(stage).steps, recipe.checkpoint_every
    written = steps if every == "auto" else math.ceil(steps / every) if every else 1
    for_guard = 0
    if recipe.guard:
        is_regular = every != "auto" and every > 0
        for_guard = 1 + (min(written, 2 + recipe.guard.window // int(every)) if is_regular else 0)
    return min(recipe.checkpoint_limit, written) + for_guard


def _size(size: int) -> str:
    return f"{size / GB:.1f} GB" if size >= GB else f"{math.ceil(size / 1e6)} MB"
