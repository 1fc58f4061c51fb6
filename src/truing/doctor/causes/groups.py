"""The last groups of rollouts: their rewards and their answers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from truing.analysis.intervals import REWARD_TOLERANCE
from truing.doctor.causes.history import History
from truing.types.sample import SampleFacts


class Group(NamedTuple):
    """The graded rollouts of one task in one step."""

    family: str
    rewards: Sequence[float]
    texts: Sequence[str]

    @property
    def tied(self) -> bool:
        """Whether all rewards are equal."""
        return max(self.rewards) - min(self.rewards) <= REWARD_TOLERANCE

    @property
    def alike(self) -> bool:
        """Whether all answers are the same text."""
        return len(set(self.texts)) == 1


def rollouts_of(history: History) -> list[SampleFacts]:
    """Return the last sample of each graded rollout."""
    graded = {each.rollout_id: each for each in history.samples if each.reward == each.reward}
    return list(graded.values())


def groups_of(history: History) -> list[Group]:
    """Return the groups of at least two graded rollouts."""
    by_group = defaultdict[str, list[SampleFacts]](list)
    for each in rollouts_of(history):
        by_group[each.group_id].append(each)
    return [
        Group(members[0].family, [each.reward for each in members], [each.text for each in members])
        for members in by_group.values()
        if len(members) > 1
    ]


def family_rewards(history: History) -> dict[str, list[float]]:
    """Return the rewards of the last rollouts by family of tasks."""
    rewards = defaultdict[str, list[float]](list)
    for each in rollouts_of(history):
        rewards[each.family].append(each.reward)
    return dict(sorted(rewards.items()))
