"""Demonstrated ids that are trained, beside the demonstrations of their tasks."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from truing.algos.flatten import is_other_conversation
from truing.chat import Chat
from truing.measurements.graded_text import letters, text_of_ids
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.message import AssistantMessage
from truing.types.rollout import DemonstratedText, Task
from truing.types.sample import Sample, TurnSpan
from truing.types.status import FinishReason
from truing.types.token_facts import Demonstrations
from truing.utils.format import shorten
from truing.utils.rng import permutation

MAX_ROLLOUTS = 16
"""Demonstrations of a step that are decoded."""

PLAIN = re.compile(r"[ -!#-\[\]-~]*")
"""A text that JSON writes as it is."""


class DecodedDemonstrations(Measurement):
    """The tokenizer's decode of up to 16 demonstrations, beside the turns that their tasks demonstrate."""

    facts = ("demonstrations",)
    cost = "a decode of 16 demonstrations"

    def after_step(self) -> Facts:
        """Return how many differ, and the first difference; nothing without a demonstration."""
        step = self.step
        by_rollout: dict[str, list[Sample]] = {}
        for sample in step.recorded_samples:
            demonstrated = any(turn.finish_reason is FinishReason.DEMO for turn in sample.turns)
            if demonstrated and not is_other_conversation(sample):
                by_rollout.setdefault(sample.rollout_id, []).append(sample)
        rollouts = list(by_rollout.values())
        order = permutation(len(rollouts), step.recipe.seed, step.stage, step.step, "demonstrations")
        tasks = {task.task_id: task for task in step.sampler.train_tasks}
        chosen = [rollouts[index] for index in order[:MAX_ROLLOUTS]]
        fact = demonstration_fact(step.sampler.chat, tasks, chosen)
        return {"demonstrations": fact} if fact["checked"] else {}


class DemonstratedTurn(NamedTuple):
    """A turn beside the one that its task demonstrates."""

    sample_id: str
    got: str
    expected: str
    same: bool
    around: str | None = None  # letters that the template wrote around a content without calls; None: unknown


def demonstration_fact(
    chat: Chat, tasks: Mapping[str, Task], rollouts: Sequence[Sequence[Sample]]
) -> Demonstrations:
    """Return how many demonstrated turns are not those of their tasks; a rollout's samples are in order."""
    known = [samples for samples in rollouts if samples[0].task_id in tasks]
    turns = [turn for samples in known for turn in _turns(chat, tasks[samples[0].task_id], samples)]
    around = Counter(turn.around for turn in turns if turn.around is not None)
    usual, count = around.most_common(1)[0] if around else ("", 0)
    if 2 * count <= around.total():
        usual = None  # no template writes the same around all
    other = [
        turn for turn in turns if not turn.same or (usual is not None and turn.around not in (None, usual))
    ]
    fact: Demonstrations = {"checked": len(turns), "other": len(other)}
    if other:
        fact["sample_id"] = other[0].sample_id
        fact["got"], fact["expected"] = shorten(other[0].got), shorten(other[0].expected)
    return fact


def _turns(chat: Chat, task: Task, samples: Sequence[Sample]) -> Iterator[DemonstratedTurn]:
    """Yield each demonstrated turn of a rollout, and those that are missing."""
    spans = [(sample, span) for sample in samples for span in sample.turns]
    spans.sort(key=lambda place: place[1].call)  # of a program, whose samples are in another order
    if isinstance(task.demonstration, DemonstratedText):
        ids, expected = samples[0].token_ids.tolist(), list(task.demonstration.token_ids)
        yield DemonstratedTurn(
            samples[0].sample_id, text_of_ids(chat, ids), text_of_ids(chat, expected), same=ids == expected
        )
        return
    turns = task.demonstration
    messages = (AssistantMessage(turns),) if isinstance(turns, str) else turns or ()
    for place, message in zip_longest(spans, messages):
        if place is None or message is None:
            sample = samples[-1] if place is None else place[0]
            yield DemonstratedTurn(sample.sample_id, "", message.content if message else "", same=False)
        else:
            sample, span = place
            yield _compared(chat, sample, span, message)


def _compared(chat: Chat, sample: Sample, span: TurnSpan, message: AssistantMessage) -> DemonstratedTurn:
    """Compare a turn's text with its content, which must be there once, and its calls; a stop ends it."""
    ids = sample.token_ids[span.start : span.end].tolist()
    special = {*chat.tokenizer.all_special_ids, *chat.stop_ids}
    text, content = (
        letters(text_of_ids(chat, [each for each in ids if each not in special])),
        letters(message.content),
    )
    twice = 2 * content in text if len(content) > 1 else text == 2 * content  # of one letter, by chance
    there = content in text and (not content or not twice)
    same = there and bool(ids) and ids[-1] in chat.stop_ids and all(part in text for part in _parts(message))
    # as a multiset: the content may be part of what the template writes
    around = "".join(sorted((Counter(text) - Counter(content)).elements()))
    plain = not (message.calls or message.reasoning)
    return DemonstratedTurn(
        sample.sample_id, text_of_ids(chat, ids), message.content, same, around if plain else None
    )


def _parts(message: AssistantMessage) -> list[str]:
    """Return the name of each call, and its arguments that every format writes as they are."""
    values = [value for call in message.calls for value in (call.name, *call.arguments.values())]
    return [letters(each) for each in values if isinstance(each, str) and PLAIN.fullmatch(each)]
