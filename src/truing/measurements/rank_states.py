"""Facts on a step by several ranks: the state that they share, which rows each computed, their norms."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.draw_replay import draw_fact
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.moment_digests import MAX_ENTRIES
from truing.measurements.weight_digests import rotating_slice
from truing.models.digest import joint_sum, quick_sum, quick_sums
from truing.rollouts.sampler import Sampler
from truing.types.batch_facts import RowsOfRanks
from truing.types.facts import Facts
from truing.utils.rng import uniforms

State = dict[str, str | list[float]]
"""Values by name: digests, which must be equal, and numbers, which must be equal up to rounding."""


class RankStates(Measurement):
    """The state that all ranks share, the rows that each computed, and their gradient norms."""

    facts = ("ranks",)
    cost = "sums over at most 8 million weights, and an exchange; nothing with one rank"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        has_critic = step.policy.ranks.size > 1 and step.learner.critic is not None
        self._critic_before = _critic_weights(step) if has_critic else ""

    def after_step(self) -> Facts:
        """Return the states; nothing with one rank."""
        step, ranks = self.step, self.step.policy.ranks
        if ranks.size == 1:
            return {}
        before = {"critic weights before the step": self._critic_before} if self._critic_before else {}
        states = ranks.gather("the comparison of ranks", before | _state(step))
        names = dict.fromkeys(name for one in states for name in one)
        by_name = {name: [one.get(name, "") for one in states] for name in names}
        steps = step.optimizer_steps
        return {
            "ranks": {
                "state": cast("Mapping[str, Sequence[str]]", by_name),  # all digests, or all numbers
                "norms": ranks.gather("the comparison of norms", [each.grad_norms for each in steps]),
                "rows": [row_fact(each) for each in steps],
                "draws": _draws_of_ranks(step.sampler, step.learner, steps[0], step.facts),
            }
        }


def _draws_of_ranks(
    sampler: Sampler, learner: Learner, first: OptimizerStep, facts: Facts
) -> list[tuple[int, int]]:
    """Return, by the rank that sampled, the number of replayed tokens, and of those that do not follow.

    In another precision than float32 only an audit replays draws.
    """
    if learner.algorithm.source != "rollouts" or sampler.engine.draws != "inversion":
        return []
    audited = facts.get("audit", {}).get("replay", {}).get("rows", {})
    own: list[tuple[int, int]] = []
    of_audit: list[tuple[int, int]] = []
    for rank in range(sampler.ranks.size):
        rows = [row for row in first.samples if sampler.sampled_by(row.group_id) == rank]
        draws = draw_fact(first, rows, first.samples)
        own.append((draws["tokens"], draws["missed"]) if draws else (0, 0))
        counts = [audited.get(row.sample_id, (0, 0)) for row in rows]
        of_audit.append((sum(tokens for tokens, _ in counts), sum(missed for _, missed in counts)))
    return own if any(tokens for tokens, _ in own) else of_audit


def _state(step: MeasuredStep) -> State:
    """Return what all ranks must have in common."""
    learner, sampler, facts = step.learner, step.sampler, step.facts
    state: State = {
        "random numbers": uniforms(2, sampler.seed, step.stage, step.step, "ranks").tolist(),
        "learning rates": [group["lr"] for group in learner.optimizer.param_groups],
        "weights of loss terms": [term.weight for term in learner.algorithm.terms(learner.setting)],
        "advantages": _summary([row.advantage for row in step.optimizer_steps[0].samples]),
        "policy weights before the step": facts["weights"]["before"],
        "policy weights": facts["weights"]["after"],
        "optimizer moments before the step": facts.get("moments", {}).get("before", ""),
        "optimizer moments": facts.get("moments", {}).get("next", ""),
    }
    if learner.critic is not None:
        state["critic weights"] = _critic_weights(step)
    if learner.reference is not None:
        # measured in an audit, else the one recorded when it was made or synced
        state["reference weights"] = facts.get("reference", {}).get("digest", learner.reference.digest)
    if learner.algorithm.source == "rollouts":
        policy = step.policy
        own = {name: policy.whole_module.get_parameter(name) for name in policy.parameters}
        state["sampler weights"] = joint_sum(quick_sums(rotating_slice(own, step.step_index)))
    return state


def _critic_weights(step: MeasuredStep) -> str:
    """Return a digest of this step's slice of the critic's weights."""
    assert step.learner.critic is not None
    return quick_sum(rotating_slice(step.learner.critic.trainable(), step.step_index, MAX_ENTRIES))


def _summary(streams: Sequence[Tensor]) -> list[float]:
    """Return two sums over values in their order, so that two lists of values can be compared."""
    value_N = torch.cat([torch.zeros(0), *streams]).double().nan_to_num()
    place_N = torch.linspace(0, 1, len(value_N), dtype=torch.float64)
    return [float(value_N.abs().sum()), float((value_N.abs() * place_N).sum())]


def row_fact(step: OptimizerStep) -> RowsOfRanks:
    """Return the rows that no rank or several computed in an optimizer step, and those of each rank.

    ``due`` counts rows with a gradient in some term of the loss; ``idle`` are the ranks that were to compute
    a row and did not.
    """
    by_rank = [step.backward_counts(rank) for rank in range(len(step.counts))]
    total = step.backward_counts()
    missing = [name for name in step.due if not total[name]]
    twice = [name for name, times in total.items() if times > 1]
    assigned: dict[str, int] = {}
    for of_ranks in step.micro_batches:
        for rank, micro in enumerate(of_ranks):
            assigned |= {} if micro.is_padding else {sample.sample_id: rank for sample in micro.samples}
    return {
        "due": len(step.due),
        "missing": missing[:3],
        "missing_count": len(missing),
        "idle": sorted({assigned[name] for name in missing if name in assigned}),
        "twice": [
            (name, [rank for rank, counts in enumerate(by_rank) if counts[name]]) for name in twice[:3]
        ],
        "twice_count": len(twice),
        "of_rank": [sorted(counts) for counts in by_rank],
    }
