"""Whether the turns that begin with the forced prefix are those that their random numbers choose."""

from collections.abc import Iterator, Mapping

from truing.config import EpisodeConfig
from truing.doctor.oracle.force_rate import declared_force_rate
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.rollout import Rollout, Turn
from truing.types.token import Origin
from truing.types.token_facts import ForcedPrefixes
from truing.utils.rng import uniforms


class PrefixesOfTurns(Measurement):
    """Turns that begin with the forced prefix, beside those that the declared rate and their keys give."""

    facts = ("forced_prefixes",)
    cost = "a random number for each turn; nothing without a forced prefix"

    def after_step(self) -> Facts:
        """Return how many differ; nothing where no prefix is declared or the policy samples no turn."""
        step, episode = self.step, self.step.recipe.episode
        if not episode.force_rate or step.learner.algorithm.source != "rollouts":
            return {}
        params = step.sampler.sampling_params
        longest = params.max_prompt_length(step.sampler.engine.context_length)
        return {"forced_prefixes": prefix_fact(step.samples.rollouts, episode, step.step, longest)}


def prefix_fact(
    rollouts: Mapping[str, Rollout], episode: EpisodeConfig, step: int, longest: int
) -> ForcedPrefixes:
    """Return how many turns begin otherwise than their random numbers say.

    Args:
        rollouts: of a step, by id: it ends in what the keys of random numbers have.
        episode: with the declared rate.
        step: of the stage.
        longest: ids that a prompt may have; a prefix that does not fit is left out.
    """
    rate = declared_force_rate(step, episode.force_rate, episode.force_steps)
    fact: ForcedPrefixes = {"turns": 0, "forced": 0, "other": 0, "rate": rate}
    for rollout in rollouts.values():
        for count, (turn, length) in enumerate(_with_prompt_lengths(rollout)):
            number = turn.call - 1 if turn.call else count
            if (turn.origin == Origin.DEMO).any():
                continue
            key = (*rollout.rollout_id.split("/"), *([number] if number else []))
            forced = bool((turn.context_origin == Origin.FORCED).any())
            due = float(uniforms(1, *key, "force")) < rate
            fact["turns"] += 1
            fact["forced"] += forced
            if forced != due and (forced or length < longest - len(turn.context_ids)):
                fact["other"] += 1
                fact.setdefault("rollout", rollout.rollout_id)
    return fact


def _with_prompt_lengths(rollout: Rollout) -> Iterator[tuple[Turn, int]]:
    """Yield each turn with the number of ids before it."""
    length = 0
    for turn in rollout.turns:
        length = len(turn.context_ids) + (0 if turn.restart_reason else length)
        yield turn, length
        length += len(turn.token_ids)
