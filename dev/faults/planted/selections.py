"""Rollouts that are left out after sampling, by what they earned or said."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


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
