"""Bounds on the size of a pair's difference: with them, bets on the mean are valid."""

from collections.abc import Iterable, Mapping

from truing.lab.run.design import Arm
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header
from truing.lab.store.ledger import Declaration
from truing.lab.verdicts.criteria import Within
from truing.rewards import reward_range

REWARD_METRICS = ("eval/reward", "reward/mean")
FAMILY_PREFIX = "family_reward/"


def within_of(header: Header, declaration: Declaration | None) -> Within:
    """Return the declared bounds by metric; before a declaration, those of rewards in [0, 1]."""
    return _by_metric(header, 1.0) if declaration is None else declaration.within


def declared_within(header: Header, arms: Iterable[Arm]) -> Within:
    """Return the header's bounds, and for rewards the range that all arms' weights allow."""
    if not any(_is_reward(metric) and metric not in header.within for metric in _requested_metrics(header)):
        return _by_metric(header, 1.0)
    from truing.envs import env_from_recipe  # imports the environments, which the board does not need

    tables = {arm.recipe.model_dump_json(include={"env"}): arm.recipe for arm in arms}
    ranges = [reward_range(env_from_recipe(recipe).rewards) for recipe in tables.values()]
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    return _by_metric(header, max(highs) - min(lows))


def _by_metric(header: Header, reward_bound: float) -> Mapping[str, float]:
    """Return a bound for each requested metric; it is 1 for parts of a reward, which lie in [0, 1]."""
    found: dict[str, float] = {}
    for metric in _requested_metrics(header):
        if _is_reward(metric):
            found[metric] = reward_bound
        elif EVALUATION_METRIC.fullmatch(metric):
            found[metric] = 1.0
    return found | dict(header.within)


def _requested_metrics(header: Header) -> list[str]:
    return [header.metric, *(each.metric for each in (*header.confirm, *header.refute))]


def _is_reward(metric: str) -> bool:
    return metric in REWARD_METRICS or metric.startswith(FAMILY_PREFIX)
