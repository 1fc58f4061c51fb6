"""Functions that all algorithms with a policy loss share; they differ in their advantages."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from truing.algos.base import Algorithm, LossTerm, StepConfig
from truing.algos.flatten import flatten
from truing.algos.loss_terms import entropy_term, is_demonstration, kl_term, policy_term, supervised_term
from truing.config import PolicyStage
from truing.ops.losses import OBJECTIVES, Objective
from truing.ops.masks import MaskPolicy
from truing.types.rollout import Rollout
from truing.types.sample import Sample


def policy_algorithm(
    compute_advantages: Callable[[Sequence[Sample], StepConfig], list[Sample]],
) -> Algorithm:
    """Return the algorithm with these advantages for rollouts; demonstrations stay unchanged."""

    def rollout_advantages(samples: Sequence[Sample], config: StepConfig) -> list[Sample]:
        demonstrations = [sample for sample in samples if is_demonstration(sample)]
        sampled = [sample for sample in samples if not is_demonstration(sample)]
        return compute_advantages(sampled, config) + demonstrations

    return Algorithm(
        source="rollouts",
        to_samples=all_samples,
        needs_reference=lambda config: config.kl.needs_reference,
        objective=objective,
        critic=lambda cfg: "",
        compute_advantages=rollout_advantages,
        terms=policy_terms,
    )


def policy_terms(config: StepConfig) -> tuple[LossTerm, ...]:
    """Return the policy term, and the other terms with a weight above 0."""
    policy_objective = objective(config.stage)
    terms = [policy_term(policy_objective, config.gates, config.correction)]
    if config.kl.coef > 0 and config.kl.where == "loss":
        terms.append(kl_term(config.kl, policy_objective.aggregation))
    if config.entropy.coef > 0:
        terms.append(entropy_term(config.entropy.coef, policy_objective.aggregation))
    if config.bootstrap.steps > 0:
        terms.append(supervised_term(config.bootstrap.coef))
    return tuple(terms)


def objective(cfg: PolicyStage) -> Objective:
    """Return the named objective, with the limits that the recipe sets."""
    limits = {"clip_low": cfg.clip_low, "clip_high": cfg.clip_high, "max_ratio": cfg.max_weight}
    return replace(
        OBJECTIVES[cfg.objective], **{name: value for name, value in limits.items() if value is not None}
    )


def all_samples(rollouts: Sequence[Rollout], cfg: PolicyStage, mask: MaskPolicy) -> list[Sample]:
    """Return the samples of all rollouts."""
    return [sample for rollout in rollouts for sample in flatten(rollout, mask)]
