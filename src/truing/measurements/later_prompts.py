"""What stands before the later turns of a rollout, beside the template's own text."""

from collections.abc import Iterable, Iterator

import torch

from truing.chat import Chat
from truing.chat.render import text_of
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.rollout import Rollout
from truing.types.token import Origin
from truing.types.token_facts import LaterPrompts
from truing.utils.rng import permutation

ROLLOUTS, SHOWN = 2, 40
"""Rollouts of a step whose later turns are rendered again; and characters shown of a difference."""


class LaterTurns(Measurement):
    """The ids between the turns of up to 2 rollouts, beside the end of the conversation as rendered again."""

    facts = ("later_prompts",)
    cost = "the template of each turn after the first, in up to 2 rollouts"

    def after_step(self) -> Facts:
        """Return how many differ, and the first; nothing where each rollout has one turn."""
        step, rollouts = self.step, [*self.step.samples.rollouts.values()]
        order = permutation(len(rollouts), step.recipe.seed, step.stage, step.step, "later turns")
        fact = later_prompt_fact(step.sampler.chat, [rollouts[i] for i in order])
        return {"later_prompts": fact} if fact["asked"] else {}


def later_prompt_fact(chat: Chat, rollouts: Iterable[Rollout]) -> LaterPrompts:
    """Compare what stands before each later turn with the end of the template's text, in the first rollouts.

    Programs write their own conversations. A tokenizer that does not give back the text of a prompt is left
    out: nothing follows from its ids.
    """
    fact: LaterPrompts = {"asked": 0, "other": 0}
    several = [each for each in rollouts if len(each.turns) > 1 and not each.sample_messages]
    for rollout in several[:ROLLOUTS]:
        rendered = _rendered(chat, rollout)
        if _text(chat, rollout, 0) != next(rendered):
            continue
        for turn, text in enumerate(rendered, 1):
            got = _text(chat, rollout, turn)
            fact["asked"] += 1
            if not text.endswith(got) and not _as_encoded(chat, text).endswith(got):
                fact["other"] += 1
                if fact["other"] == 1:
                    fact["rollout"], fact["turn"] = rollout.rollout_id, turn
                    fact["got"], fact["expected"] = got[-SHOWN:], text[-SHOWN:]
    return fact


def _text(chat: Chat, rollout: Rollout, turn: int) -> str:
    """Return the text of the ids that a turn adds before its first sampled one."""
    context = rollout.turns[turn]
    return text_of(chat, context.context_ids[context.context_origin != Origin.FORCED])


def _as_encoded(chat: Chat, text: str) -> str:
    """Return a text as its ids give it back: a tokenizer may normalize it."""
    return text_of(chat, torch.tensor(chat.tokenizer(text, add_special_tokens=False)["input_ids"]))


def _rendered(chat: Chat, rollout: Rollout) -> Iterator[str]:
    """Yield the template's text before each turn."""
    chat, task = chat.with_variables(rollout.task.template_kwargs), rollout.task
    yield chat.render_text(task.messages, task.tools)
    answers = [i for i, message in enumerate(rollout.messages) if message["role"] == "assistant"]
    for i in answers[1 : len(rollout.turns)]:
        yield chat.render_text((*task.messages, *rollout.messages[:i]), task.tools)
