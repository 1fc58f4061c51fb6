"""What all algorithms with a policy loss share; they differ in how they give credit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from truing.algos.base import Algorithm, LossTerm, UpdateConfig
from truing.algos.loss_terms import entropy_term, is_demonstration, kl_term, policy_term, supervised_term
from truing.config import PolicyStage
from truing.ops.losses import OBJECTIVES, Objective
from truing.ops.masks import MaskPolicy
from truing.rollouts.flatten import flatten
from truing.types.rollout import Rollout
from truing.types.sample import Sample


def policy_algorithm(
    compute_advantages: Callable[[Sequence[Sample], UpdateConfig], list[Sample]],
) -> Algorithm:
    """The algorithm that gives credit so, to what was drawn; demonstrations beside it stay as they are."""

    def of_drawn(samples: Sequence[Sample], setting: UpdateConfig) -> list[Sample]:
        shown = [sample for sample in samples if is_demonstration(sample)]
        drawn = [sample for sample in samples if not is_demonstration(sample)]
        return compute_advantages(drawn, setting) + shown

    return Algorithm(
        source="rollouts",
        to_samples=all_samples,
        needs_reference=lambda setting: setting.kl.needs_reference,
        objective=objective,
        critic=lambda cfg: "",
        compute_advantages=of_drawn,
        terms=policy_terms,
    )


def policy_terms(config: UpdateConfig) -> tuple[LossTerm, ...]:
    """The policy term, and those to which the recipe gives weight."""
    chosen = objective(config.stage)
    terms = [policy_term(chosen, config.gates, config.correction)]
    if config.kl.coef > 0 and config.kl.where == "loss":
        terms.append(kl_term(config.kl, chosen.aggregation))
    if config.entropy.coef > 0:
        terms.append(entropy_term(config.entropy.coef, chosen.aggregation))
    if config.bootstrap.steps > 0:
        terms.append(supervised_term(config.bootstrap.coef))
    return tuple(terms)


def objective(cfg: PolicyStage) -> Objective:
    """The named objective, with the recipe's bounds where it gives them."""
    given = {"clip_low": cfg.clip_low, "clip_high": cfg.clip_high, "max_ratio": cfg.max_weight}
    return replace(
        OBJECTIVES[cfg.objective], **{name: value for name, value in given.items() if value is not None}
    )


def all_samples(rollouts: Sequence[Rollout], cfg: PolicyStage, mask: MaskPolicy) -> list[Sample]:
    """Every rollout is trained on."""
    return [sample for rollout in rollouts for sample in flatten(rollout, mask)]
