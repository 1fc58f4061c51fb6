"""Facts on an update for the doctor: digests of weights, AdamW's step, rewards computed again, values."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truing.algos import UpdateConfig
from truing.config.stages import PpoConfig
from truing.distributed.sharded_tensors import whole_tables
from truing.doctor.oracle.token_gradients import expected_value_gradients
from truing.instrumentation.adamw_float64 import RecomputedUpdate, recompute_update
from truing.learner.learner import Learner
from truing.learner.optimizer import gradient_norm
from truing.learner.optimizer_step import OptimizerStep
from truing.models.digest import joint_sum, quick_sums
from truing.models.forward.rounding_noise import is_coarse
from truing.models.forward.score import computed_precision
from truing.rewards import Rewards
from truing.rewards.judge import Judge
from truing.rollouts.collect import GradeFn
from truing.types.rollout import Rollout
from truing.utils.phase_clock import phase

MAX_WEIGHTS = 8_000_000
"""Weights per digest, some 30 ms: all of an adapter; another slice of a full model in each update."""

REGRADED_ATTEMPTS = 16
"""Attempts whose reward is computed again."""

MIN_GRADIENT = 1e-6
"""A gradient against which AdamW's ε is negligible."""

MIN_STEP_SHARE = 0.1
"""Least change of some entry by AdamW, as a share of the learning rate."""


def rotating_slice(
    parameters: Mapping[str, Tensor], update_index: int, max_entries: int = MAX_WEIGHTS
) -> dict[str, Tensor]:
    """Return all weights, or, if there are more than ``max_entries``, this update's slice of them.

    Slices advance through all weights in the order of their names and start over after the last.
    """
    total = sum(weight.numel() for weight in parameters.values())
    if total <= max_entries:
        return whole_tables({name: weight.detach() for name, weight in parameters.items()})
    start, position = update_index % math.ceil(total / max_entries) * max_entries, 0
    bounds = dict[str, slice]()
    for name in sorted(parameters):
        length = parameters[name].numel()
        low, high = max(start - position, 0), min(start + max_entries - position, length)
        if low < high:
            bounds[name] = slice(low, high)
        position += length
    of_slice = whole_tables({name: parameters[name].detach() for name in bounds})
    return {name: of_slice[name].reshape(-1)[bounds[name]] for name in bounds}


def regrade_facts(rollouts: Mapping[str, Rollout], rewards: Rewards, grade: GradeFn) -> list[dict[str, Any]]:
    """Return stored and recomputed rewards of some attempts.

    There are none with an LLM judge, and none with functions that judge a collection together: one attempt
    alone may earn another reward.
    """
    alone = (not isinstance(fn, Judge) and not hasattr(fn, "prepare") for fn, _ in rewards.values())
    if not rewards or not all(alone):
        return []
    graded = [rollout for rollout in rollouts.values() if not math.isnan(rollout.reward)][:REGRADED_ATTEMPTS]
    return [
        {"sample_id": each.rollout_id, "stored": each.reward, "again": grade(each).reward} for each in graded
    ]


def value_facts(first: OptimizerStep, setting: UpdateConfig, *, dropout: bool) -> dict[str, Any]:
    """Compare the gradient of the loss with respect to the critic's values with its closed form.

    At the first update the values are those of the samples, unless dropout has moved them: then they are
    those of the update itself.
    """
    stage, samples = setting.stage, first.samples
    assert isinstance(stage, PpoConfig)  # the only stage with a critic
    value_N, got_N = (first.streams[name].nan_to_num(0.0) for name in ("new_value", "value_gradient"))
    got_N = got_N.double()
    old_N, returns_N, mask_N = (
        torch.cat([getattr(sample, name) for sample in samples])
        for name in ("value", "returns", "value_mask")
    )
    value_N = value_N if dropout else old_N
    expected_N = expected_value_gradients(
        value_N, old_N, returns_N, mask_N, stage.value_coef, stage.value_clip
    )
    worst = int((got_N - expected_N).abs().argmax())
    owner = [(sample.sample_id, t) for sample in samples for t in range(len(sample))][worst]
    large_N = expected_N.abs() > 0.5 * expected_N.abs().max()  # large ones show a factor best
    return {
        "tokens": int(mask_N.sum()),
        "scale": float(expected_N.abs().max()),
        "largest": float((got_N - expected_N).abs().max()),
        "factor": float((got_N[large_N] / expected_N[large_N]).median()) if large_N.any() else 1.0,
        "where": owner,
    }


@contextmanager
def update_facts(learner: Learner, update_index: int) -> Iterator[dict[str, Any]]:
    """Yield facts of the updates within the block: weight digests before and after, one recomputed update.

    ``next`` is the digest of the next update's slice: it shows changes between updates. ``still`` are weights
    that should have changed and did not.
    """
    facts: dict[str, Any] = {}
    due_to_move: set[str] = set()
    with phase("doctor"):
        before = quick_sums(rotating_slice(learner.parameters, update_index))

    @phase("doctor")
    def note_due(*_: object) -> None:
        learning_rate = learner.optimizer.param_groups[0]["lr"]
        due_to_move.update(weights_due_to_move(learner.parameters, update_index, learning_rate))

    handle = learner.optimizer.register_step_pre_hook(note_due)
    try:
        with _recompute_adamw(learner, facts, update_index):
            yield facts
    finally:
        handle.remove()
    with phase("doctor"):
        facts["weights"] = weight_facts(learner.parameters, update_index, before, due_to_move)


def weights_due_to_move(
    parameters: Mapping[str, Tensor], update_index: int, learning_rate: float
) -> list[str]:
    """Return the float32 weights that AdamW must change: their gradient is far above ε.

    A tenth of the learning rate must exceed the rounding of the weight. At the end of a schedule or the start
    of a warm-up it often does not, and rounding absorbs the step.
    """
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in parameters.items()
    }
    weights, names = rotating_slice(parameters, update_index), list[str]()
    for name, gradient in rotating_slice(gradients, update_index).items():
        if gradient.dtype is torch.float32:
            rounding = torch.finfo(torch.float32).eps * weights[name].detach().abs()
            if bool(((gradient.abs() > MIN_GRADIENT) & (MIN_STEP_SHARE * learning_rate > rounding)).any()):
                names.append(name)
    return names


def weight_facts(
    parameters: Mapping[str, Tensor],
    update_index: int,
    before: Mapping[str, str],
    due_to_move: Collection[str],
) -> dict[str, Any]:
    """Return the fact ``weights``: digests before and after an update, and unchanged weights."""
    after = quick_sums(rotating_slice(parameters, update_index))
    fits = sum(weight.numel() for weight in parameters.values()) <= MAX_WEIGHTS
    following = after if fits else quick_sums(rotating_slice(parameters, update_index + 1))
    still = sorted(name for name in due_to_move if before[name] == after[name])
    return {
        "before": joint_sum(before),
        "after": joint_sum(after),
        "next": joint_sum(following),
        "still": still,
    }


@contextmanager
def _recompute_adamw(learner: Learner, facts: dict[str, Any], update_index: int) -> Iterator[None]:
    """Recompute one weight's first update; if it is the only one, compare at the end of the block."""
    names = sorted(learner.parameters)
    name = names[update_index * 7919 % len(names)]
    recomputed: list[RecomputedUpdate | None] = []
    coarse = is_coarse(computed_precision(learner.model))
    small = sum(each.numel() for each in learner.parameters.values()) <= MAX_WEIGHTS

    @phase("doctor")
    def keep(*_: object) -> None:
        dtypes = {each.grad.dtype for each in learner.parameters.values() if each.grad is not None}
        if small and dtypes:  # the last update counts, as in `grad/norm`
            coarsest = max(torch.finfo(dtype).eps for dtype in dtypes)
            facts["clip"] = {"norm": float(gradient_norm(learner.parameters)), "eps": coarsest}
        recomputed.append(
            recompute_update(name, learner.parameters[name], learner.optimizer, learner.optimizer_cfg)
        )

    @phase("doctor")
    def compare(*_: object) -> None:
        if recomputed[0] is not None and len(recomputed) == 1:
            facts["update"] = recomputed[0].fact()
            if coarse and not math.isnan(share := recomputed[0].swallowed_share()):
                facts["update"]["swallowed"] = share

    handles = [
        learner.optimizer.register_step_pre_hook(keep),
        learner.optimizer.register_step_post_hook(compare),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if len(recomputed) == 1:
        compare()
