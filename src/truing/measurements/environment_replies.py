"""What rollouts have read: replies of their own environment, and ids that the engine was given."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from truing.algos.flatten import turns_by_sample
from truing.measurements.measurement import Measurement
from truing.types.batch_facts import Replies
from truing.types.facts import Facts
from truing.types.message import hash_of_message, hash_of_outcome
from truing.types.rollout import Rollout, hash_of_ids
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.types.token_facts import EnginePrompts
from truing.utils.format import shorten


class EnvironmentReplies(Measurement):
    """The environment's messages and final state in each rollout, beside those that its own episode gave."""

    facts = ("replies",)
    cost = "a hash of each reply and final state"

    def after_step(self) -> Facts:
        """Return how many differ, and the first difference; nothing without an episode."""
        chars = self.step.recipe.episode.max_reply_chars
        fact = reply_fact(self.step.samples.rollouts, chars)
        return {"replies": fact} if fact["checked"] or "outcomes" in fact else {}


def reply_fact(rollouts: Mapping[str, Rollout], chars: int) -> Replies:
    """Return how many replies and final states of finished rollouts are not those of their own episodes.

    ``chars``: the most characters of a reply that a rollout reads.
    """
    fact: Replies = {"checked": 0, "other": 0}
    given_to = {each: name for name, rollout in rollouts.items() for each in rollout.reply_hashes}
    other_outcomes: list[str] = []
    for name, rollout in rollouts.items():
        if rollout.status is Status.ERROR or not rollout.reply_hashes:  # without an episode there is none
            continue
        *given, own_outcome = rollout.reply_hashes
        fact["outcomes"] = fact.get("outcomes", 0) + 1
        if hash_of_outcome(rollout.outcome) != own_outcome:
            other_outcomes.append(name)
        read = rollout.received
        hashes = [hash_of_message(message, chars) for message in read]
        pairs = list(zip_longest(hashes, given, fillvalue=""))
        wrong = [n for n, (got, own) in enumerate(pairs) if got != own]
        fact["checked"] += len(pairs)
        fact["other"] += len(wrong)
        if wrong and "rollout" not in fact:
            text = shorten(read[wrong[0]]["content"]) if wrong[0] < len(read) else ""
            fact["rollout"], fact["reply"], fact["got"] = name, wrong[0], text
            fact["given_to"] = given_to.get(pairs[wrong[0]][0], "")
    if unended := [name for name, each in rollouts.items() if _goes_on(each)]:
        fact["unended"], fact["unended_of"] = len(unended), unended[0]
    if unlike := _unlike(rollouts):
        fact["unlike"], fact["unlike_of"] = len(unlike), unlike[0]
    if other_outcomes:
        fact["other_outcomes"], fact["outcome_of"] = len(other_outcomes), other_outcomes[0]
    return fact


def _goes_on(rollout: Rollout) -> bool:
    """Return whether a rollout counts as ended by its environment, which has replied to the last turn."""
    ended = rollout.status is Status.DONE and rollout.ended_by is EndedBy.ENVIRONMENT
    return ended and bool(rollout.received) and rollout.messages[-1]["role"] != "assistant"


def _unlike(rollouts: Mapping[str, Rollout]) -> list[tuple[str, str]]:
    """Return pairs of finished rollouts of one task with the same turns, whose episodes went otherwise."""
    first: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}
    unlike: list[tuple[str, str]] = []
    for name, rollout in rollouts.items():
        # the outcome of a program, whose messages are by sample, names its own workspace
        if rollout.status is Status.DONE and rollout.reply_hashes and not rollout.sample_messages:
            key = (rollout.task.task_id, *(hash_of_ids(turn.token_ids) for turn in rollout.turns))
            other, hashes = first.setdefault(key, (name, rollout.reply_hashes))
            if hashes != rollout.reply_hashes:
                unlike.append((other, name))
    return unlike


class PromptsOfTurns(Measurement):
    """The ids that the engine read before each turn, beside those before it in the trained sample."""

    facts = ("engine_prompts",)
    cost = "a hash of the ids before each turn"

    def after_step(self) -> Facts:
        """Return how many turns had other ids before them; nothing where no engine sampled."""
        samples = {sample.sample_id: sample for sample in self.step.all_samples}
        fact = engine_prompt_fact(self.step.samples.rollouts, samples)
        return {"engine_prompts": fact} if fact["turns"] else {}


def engine_prompt_fact(rollouts: Mapping[str, Rollout], samples: Mapping[str, Sample]) -> EnginePrompts:
    """Return how many turns were sampled after other ids than their sample has before them."""
    fact: EnginePrompts = {"turns": 0, "other": 0}
    for sample, start, given in _sampled_turns(rollouts, samples):
        fact["turns"] += 1
        if hash_of_ids(sample.token_ids[:start]) != given:
            fact["other"] += 1
            if fact["other"] == 1:
                fact["sample_id"], fact["position"] = sample.sample_id, start
    return fact


def _sampled_turns(
    rollouts: Mapping[str, Rollout], samples: Mapping[str, Sample]
) -> Iterator[tuple[Sample, int, str]]:
    """Yield each turn that an engine sampled: its sample, its start, and the hash of what was read."""
    for rollout in rollouts.values():
        for sample_id, turns in turns_by_sample(rollout).items():
            if sample_id in samples:
                sample = samples[sample_id]
                for turn, span in zip(turns, sample.turns, strict=True):
                    if turn.prompt_hash:
                        yield sample, span.start, turn.prompt_hash
