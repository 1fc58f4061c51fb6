"""What is measured beside an update, for the doctor to judge: digests of weights, AdamW's own step."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truing.algos import UpdateConfig
from truing.config.stages import PpoConfig
from truing.doctor.oracle.token_gradients import expected_value_gradients
from truing.instrumentation.adamw_float64 import RecomputedUpdate, recompute_update
from truing.learner.learner import Learner
from truing.learner.step import Trace
from truing.models.digest import joint_sum, quick_sums
from truing.rewards import Rewards, grade
from truing.rewards.judge import Judge
from truing.types.rollout import Rollout
from truing.utils.phase_clock import phase

MAX_WEIGHTS = 8_000_000
"""Weights that are summed at once, some 30 ms: all of an adapter; of a full model another part each time."""

REGRADED_ATTEMPTS = 16
"""Attempts that are graded twice."""

MIN_GRADIENT = 1e-6
"""A gradient beside which AdamW's ε is nothing."""

MIN_STEP_SHARE = 0.1
"""Of the rate: so much at least AdamW moves some entry of a weight by."""


def rotating_slice(
    parameters: Mapping[str, Tensor], update_index: int, max_entries: int = MAX_WEIGHTS
) -> dict[str, Tensor]:
    """All weights, or where there are more, so many of them: the part whose turn it is.

    Parts follow one another through all weights in the order of their names, and begin anew after the last.
    """
    total = sum(weight.numel() for weight in parameters.values())
    if total <= max_entries:
        return dict(parameters)
    start, place = update_index % math.ceil(total / max_entries) * max_entries, 0
    part: dict[str, Tensor] = {}
    for name in sorted(parameters):
        flat = parameters[name].detach().reshape(-1)
        low, high = max(start - place, 0), min(start + max_entries - place, len(flat))
        if low < high:
            part[name] = flat[low:high]
        place += len(flat)
    return part


def regrade_facts(rollouts: Mapping[str, Rollout], rewards: Rewards) -> list[dict[str, Any]]:
    """Some attempts graded once more, beside what they had earned; none where a judge would be asked."""
    if not rewards or any(isinstance(function, Judge) for function, _ in rewards.values()):
        return []
    earned = [rollout for rollout in rollouts.values() if not math.isnan(rollout.reward)][:REGRADED_ATTEMPTS]
    return [
        {"sample_id": each.rollout_id, "stored": each.reward, "again": grade(each, rewards).reward}
        for each in earned
    ]


def value_facts(trace: Trace, setting: UpdateConfig) -> dict[str, Any]:
    """The gradient of a minibatch's loss by each value of the critic, beside its closed form."""
    stage, samples = setting.stage, trace.samples
    assert isinstance(stage, PpoConfig)  # who else has a critic
    nothing = {sample.sample_id: torch.zeros(len(sample)) for sample in samples}
    got_N = torch.cat([(nothing | trace.value_gradient)[sample.sample_id] for sample in samples]).double()
    value_N, returns_N, mask_N = (
        torch.cat([getattr(sample, name) for sample in samples])
        for name in ("value", "returns", "value_mask")
    )
    expected_N = expected_value_gradients(value_N, returns_N, mask_N, stage.value_coef)
    worst = int((got_N - expected_N).abs().argmax())
    owner = [(sample.sample_id, t) for sample in samples for t in range(len(sample))][worst]
    pulled_N = expected_N.abs() > 0.5 * expected_N.abs().max()  # by their size a factor is read best
    return {
        "tokens": int(mask_N.sum()),
        "scale": float(expected_N.abs().max()),
        "largest": float((got_N - expected_N).abs().max()),
        "factor": float((got_N[pulled_N] / expected_N[pulled_N]).median()) if pulled_N.any() else 1.0,
        "where": owner,
    }


@contextmanager
def update_facts(learner: Learner, update_index: int) -> Iterator[dict[str, Any]]:
    """Facts of the updates within the block: sums of weights before and after, and one update recomputed.

    ``next`` is the sum of the part whose turn comes next: whoever changes it in between is seen. ``still``
    are weights that a gradient pulled, and that are as they were.
    """
    facts: dict[str, Any] = {}
    tugged: set[str] = set()
    with phase("doctor"):
        before = quick_sums(rotating_slice(learner.parameters, update_index))
    watch = learner.optimizer.register_step_pre_hook(
        lambda *_: tugged.update(
            weights_due_to_move(learner.parameters, update_index, learner.optimizer.param_groups[0]["lr"])
        )
    )
    try:
        with _recompute_adamw(learner, facts, update_index):
            yield facts
    finally:
        watch.remove()
    with phase("doctor"):
        facts["weights"] = weight_facts(learner.parameters, update_index, before, tugged)


def weights_due_to_move(
    parameters: Mapping[str, Tensor], update_index: int, learning_rate: float
) -> list[str]:
    """Weights in float32 whose gradient is large enough for AdamW to move them by its whole rate.

    A tenth of it must be more than the last digit of what it is added to: at the end of a schedule, or at the
    start of a warm-up, it often is not, and rounding takes it all.
    """
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in parameters.items()
    }
    part, found = rotating_slice(parameters, update_index), list[str]()
    for name, gradient in rotating_slice(gradients, update_index).items():
        if gradient.dtype is torch.float32:
            digit = torch.finfo(torch.float32).eps * part[name].detach().abs()
            if bool(((gradient.abs() > MIN_GRADIENT) & (MIN_STEP_SHARE * learning_rate > digit)).any()):
                found.append(name)
    return found


def weight_facts(
    parameters: Mapping[str, Tensor],
    update_index: int,
    before: Mapping[str, str],
    due_to_move: Collection[str],
) -> dict[str, Any]:
    """Sums of weights after an update, beside those before it."""
    after = quick_sums(rotating_slice(parameters, update_index))
    whole = sum(weight.numel() for weight in parameters.values()) <= MAX_WEIGHTS
    following = after if whole else quick_sums(rotating_slice(parameters, update_index + 1))
    still = sorted(name for name in due_to_move if before[name] == after[name])
    return {
        "before": joint_sum(before),
        "after": joint_sum(after),
        "next": joint_sum(following),
        "still": still,
    }


@contextmanager
def _recompute_adamw(learner: Learner, facts: dict[str, Any], turn: int) -> Iterator[None]:
    """Compute some weights of the first update a second time; where it is the only one, up to the end."""
    names = sorted(learner.parameters)
    name = names[turn * 7919 % len(names)]
    made: list[RecomputedUpdate | None] = []
    small = sum(each.numel() for each in learner.parameters.values()) <= MAX_WEIGHTS

    def keep(*_: object) -> None:
        gradients = [each.grad for each in learner.parameters.values() if each.grad is not None]
        if small and gradients:  # of the last update that was computed, as `grad/norm` is
            coarsest = max(torch.finfo(gradient.dtype).eps for gradient in gradients)
            facts["clip"] = {"norm": float(torch.nn.utils.get_total_norm(gradients)), "eps": coarsest}
        made.append(
            recompute_update(name, learner.parameters[name], learner.optimizer, learner.optimizer_cfg)
        )

    def compare(*_: object) -> None:
        if made[0] is not None and len(made) == 1:
            facts["update"] = made[0].fact()

    handles = [
        learner.optimizer.register_step_pre_hook(keep),
        learner.optimizer.register_step_post_hook(compare),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if len(made) == 1:
        compare()
