"""Rollouts that are left out after sampling, by what they earned or said."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.rewards import NotApplicable
from truing.types.rollout import Rollout
from truing.utils.rng import seed_of


def _selected(size_of, keep):
    """Sample groups of another size, and keep some of the rollouts of each."""

    def make(real):
        def collect_rollouts(sampler, tasks, group_size, *args, **kwargs):
            groups = real(sampler, tasks, size_of(group_size), *args, **kwargs)
            return [replace(group, rollouts=keep(group.rollouts, group_size)) for group in groups]

        return collect_rollouts

    return patched("truing.rollouts.sampler:Sampler.collect_rollouts", make)


def _best(rollouts, size):
    return sorted(rollouts, key=lambda rollout: -rollout.reward)[:size]


BEST_KEPT = Fault(
    name="best-kept",
    numbers=(),
    what="twice as many rollouts are sampled, and the better half of each group is kept",
    plant=lambda: _selected(lambda size: 2 * size, _best),
    expected=("SMP013",),
)


WORST_DROPPED = Fault(
    name="worst-dropped",
    numbers=(),
    what="the worst rollout of each group is dropped",
    plant=lambda: _selected(lambda size: size, lambda rollouts, size: _best(rollouts, max(1, size - 1))),
    expected=("SMP013",),
)


def _shortest(rollouts, size):
    return sorted(rollouts, key=lambda rollout: len(rollout.text))[:size]


LONG_ONES_DROPPED = Fault(
    name="long-ones-dropped",
    numbers=(),
    what="twice as many rollouts are sampled, and the shorter half of each group is kept",
    plant=lambda: _selected(lambda size: 2 * size, _shortest),
    expected=("SMP013",),
)


PREFIX_ALWAYS_FORCED = Fault(
    name="prefix-always-forced",
    numbers=(122,),
    what="the share of turns with a forced prefix does not fall",
    plant=lambda: patched(
        "truing.rollouts.group_selection:force_rate",
        lambda real: lambda limits, step: limits.force_rate,
    ),
    expected=("SMP013",),
    changes={"episode.forced_prefix": "1", "episode.force_rate": 0.5, "episode.force_steps": 3},
)


def _usable(keep):
    """Let other rollouts train: ``keep`` gets those of a group with a reward, and their number in all."""

    def make(real):
        def with_reward(groups, minimum):
            usable = real(groups, minimum)
            kept = list[Rollout]()
            for group in groups:
                own = [each for each in usable if each.group_id == group.group_id]
                chosen = keep(own, len(group.rollouts))
                kept += chosen if len(chosen) != 1 else own  # a group of one has no baseline
            return kept or usable

        return with_reward

    return patched("truing.rollouts.step_samples:_with_reward", make)


def in_thirds(rollout, task):
    """Return 0, 1/3 or 2/3, by the rollout."""
    return seed_of(rollout.rollout_id, "thirds") % 3 / 3


ZERO_COUNTS_AS_MISSING = Fault(
    name="zero-counts-as-missing",
    numbers=(),
    what="a rollout with a reward of 0 is left out, as if it had none",
    plant=lambda: _usable(lambda rollouts, size: [each for each in rollouts if each.reward]),
    expected=("OPT020",),
    reward=in_thirds,
)


def some_fail(rollout, task):
    """Judge seven rollouts of eight."""
    kind = seed_of(rollout.rollout_id, "fails") % 8
    return NotApplicable() if kind == 0 else kind / 7


GROUP_OF_FAILURE_DROPPED = Fault(
    name="group-of-failure-dropped",
    numbers=(),
    what="a group with one rollout that has no reward is not trained",
    plant=lambda: _usable(lambda rollouts, size: rollouts if len(rollouts) == size else []),
    expected=("OPT020",),
    reward=some_fail,
)


TOKEN_GATE_OPEN = Fault(
    name="token-gate-open",
    numbers=(),
    what="a step with fewer tokens than gates.min_trained_tokens is trained",
    plant=lambda: patched("truing.learner.step:skip_step_reason", lambda real: lambda *args: ""),
    expected=("OPT020",),
    changes={"gates.min_trained_tokens": 100_000},
)
