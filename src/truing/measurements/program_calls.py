"""Programs: the answers that they got, beside the samples that train on them, and their crashes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.model_call import ModelCall, WrittenAnswer
from truing.types.rollout import Rollout
from truing.types.sample import Sample
from truing.types.status import Status
from truing.types.token_facts import ProgramCalls, ProgramEnds

Kind = Literal["foreign", "missing", "repeated", "again", "outside", "unread", "untrained"]
"""What is wrong with an answer or a token: the keys of the fact."""


class AnswersOfPrograms(Measurement):
    """The answers that programs got, beside the turns of the samples, and the tokens that are trained."""

    facts = ("program_calls",)
    cost = "a look at the masks"

    def after_step(self) -> Facts:
        """Return what differs; nothing without a program."""
        fact = program_call_fact(self.step.samples.rollouts, self.step.all_samples)
        return {"program_calls": fact} if fact["answers"] else {}


class EndsOfPrograms(Measurement):
    """Programs that crashed, beside the rewards of their rollouts."""

    facts = ("program_ends",)
    cost = "none"

    def after_step(self) -> Facts:
        """Return how many crashed, and how many of these have a reward; nothing without a program."""
        rollouts = self.step.samples.rollouts
        if not any(rollout.crashed or rollout.answers for rollout in rollouts.values()):
            return {}
        crashed = {name: rollout for name, rollout in rollouts.items() if rollout.crashed}
        paid = {name: rollout.reward for name, rollout in crashed.items() if math.isfinite(rollout.reward)}
        fact: ProgramEnds = {"programs": len(rollouts), "crashed": len(crashed), "paid": len(paid)}
        for name, reward in [*paid.items()][:1]:
            fact["rollout"], fact["reward"] = name, reward
        return {"program_ends": fact}


def program_call_fact(rollouts: Mapping[str, Rollout], samples: Iterable[Sample]) -> ProgramCalls:
    """Return how answers and trained tokens differ from one turn, in one sample, for each answer."""
    fact: ProgramCalls = {
        "answers": 0,
        "foreign": 0,
        "missing": 0,
        "repeated": 0,
        "again": 0,
        "outside": 0,
        "unread": 0,
        "untrained": 0,
    }
    by_rollout: dict[str, list[Sample]] = {}
    for sample in samples:
        by_rollout.setdefault(sample.rollout_id, []).append(sample)
    for name, rollout in rollouts.items():
        if rollout.status is Status.ERROR or not rollout.answers:
            continue
        made = by_rollout.get(name, [])
        fact["answers"] += len(rollout.answers)
        _count_answers(fact, rollout, made)
        _count_tokens(fact, rollout, made)
    return fact


def _count_answers(fact: ProgramCalls, rollout: Rollout, samples: Sequence[Sample]) -> None:
    """Count the answers of a rollout that are not one turn of it, and turns whose answer nobody read."""
    turns = Counter(turn.call for sample in samples for turn in sample.turns)
    own, wrong = set[int](), list[tuple[Kind, int]]()
    for answer in rollout.answers:
        owner, _, number = answer.reply_id.rpartition("-")
        call = int(number)
        if owner != rollout.rollout_id.replace("/", "-"):
            wrong.append(("foreign", call))
            continue
        own.add(call)
        if turns[call] != 1:
            wrong.append(("repeated" if turns[call] else "missing", call))
    wrong += [("again", call) for call in _again(rollout.answers)]
    continued = {note.get("continues") for note in rollout.outcome["calls"]}
    wrong += [("unread", call) for call in turns if call and call not in own | continued]
    for kind, call in wrong:
        fact[kind] += 1
        fact.setdefault("rollout", rollout.rollout_id)
        fact.setdefault("call", call)


def _again(answers: Sequence[WrittenAnswer]) -> Iterator[int]:
    """Yield the calls that a client said to send again, and that got an answer of their own."""
    seen = list[ModelCall]()
    for answer in answers:
        call = answer.call
        if call.retry and any(call.messages == one.messages and call.tools == one.tools for one in seen):
            yield int(answer.reply_id.rpartition("-")[2])
        seen.append(call)


def _count_tokens(fact: ProgramCalls, rollout: Rollout, samples: Sequence[Sample]) -> None:
    """Count the trained tokens of a rollout that are in no answer, or in one that is not to be trained."""
    untrained = {note["call"] for note in rollout.outcome["calls"] if "untrained" in note}
    for sample in samples:
        for kind, position in _wrong_tokens(sample, untrained):
            fact[kind] += 1
            fact.setdefault("sample_id", sample.sample_id)
            fact.setdefault("position", position)


def _wrong_tokens(sample: Sample, untrained: set[int]) -> Iterator[tuple[Kind, int]]:
    """Yield the positions of a sample that are trained and should not be, with what is wrong there."""
    call_of = {t: turn.call for turn in sample.turns for t in range(turn.start, turn.end)}
    trained = sample.policy_mask | sample.supervised_mask
    for position in trained.nonzero()[:, 0].tolist():
        call = call_of.get(position)
        if call is None or call in untrained:
            yield ("outside" if call is None else "untrained"), position
