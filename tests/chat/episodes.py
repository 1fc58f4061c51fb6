"""Episodes in which a test says what the policy draws, and what holds of each of them."""

import torch

from truing.algos.flatten import flatten
from truing.chat import encode_reply, start_dialogue
from truing.chat.render import text_of
from truing.chat.tool_prompt import HERMES as hermes
from truing.config import EpisodeConfig
from truing.engines.base import Completion
from truing.envs.tools import tool
from truing.measurements.later_prompts import later_prompt_fact
from truing.rollouts.running_rollout import RunningRollout
from truing.types.message import tool_message
from truing.types.rollout import Task
from truing.types.sampling_params import RAW
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Origin

STOPS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<|END_OF_TURN_TOKEN|>",
    "<turn|>",
    "<|tool_response>",
    "<|observation|>",
    "<|user|>",
)
CONTROL = (
    *STOPS,
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|start_header_id|>",
    "<start_of_turn>",
    "<｜User｜>",
    "<|start|>",
)


@tool
def look(word: str, n: int) -> str:
    """Look a word up."""
    raise NotImplementedError


USER = {"role": "user", "content": "Which word? 🙂"}
TASK = Task("t", "f", (USER,), tools=(look.spec,))


def stop_ids(tokenizer):
    """What ends a turn: the stop tokens that a template writes, or the tokenizer's own."""
    stops = [stop for stop in STOPS if stop in tokenizer.chat_template] or [tokenizer.eos_token]
    return tokenizer.convert_tokens_to_ids(stops)


def run_episode(chat, *draws, task=TASK, reply="moon"):
    """An episode: ``draws`` make the ids of a turn from the rollout, and ``reply`` answers each call."""
    rollout = RunningRollout(task, ("key",), *start_dialogue(chat, task), group_id="g", episode=None)
    for i, draw in enumerate(draws):
        if i:
            calls = enumerate(rollout.last_message.calls)
            replies = [tool_message(call, k, reply) for k, call in calls] or [
                {"role": "user", "content": reply}
            ]
            rollout.observe(chat, replies, EpisodeConfig(max_turns=9), max_prompt_length=10**6)
        rollout.add_turn(chat, completion(draw(rollout)))
    rollout.end(Status.DONE, EndedBy.ENVIRONMENT)
    return rollout.to_rollout(RAW, 0)


def completion(ids):
    """What a sampler gives that drew these ids."""
    ids = torch.as_tensor(ids, dtype=torch.long)
    origin = torch.full((len(ids),), Origin.SAMPLED, dtype=torch.uint8)
    return Completion(ids, origin, torch.zeros(len(ids)), None, FinishReason.STOP)


def as_written(chat, said, change=lambda ids: ids):
    """A turn as the template writes it, with its ids changed."""

    def draw(rollout):
        dialogue = rollout.dialogue
        return change(encode_reply(chat, dialogue.messages, said, dialogue.tools).tolist())

    return draw


def in_words(chat, text):
    """A turn of that text, stop token and all."""
    return lambda rollout: chat.tokenizer(text, add_special_tokens=False)["input_ids"]


def samples(chat, rollout):
    """The samples of an episode, once what holds of all episodes was seen to hold of it."""
    made = flatten(rollout)
    assert later_prompt_fact(chat, [rollout])["other"] == 0, "the template's text stands before each turn"
    drawn = torch.cat([turn.token_ids for turn in rollout.turns])
    sampled = torch.cat([sample.token_ids[sample.origin == Origin.SAMPLED] for sample in made])
    assert torch.equal(sampled, drawn), "each drawn id is sampled exactly once"
    assert len(made) == 1 + sum(bool(turn.restart_reason) for turn in rollout.turns)
    for sample in made:
        answered = sample.token_ids[sample.origin == Origin.TOOL]
        assert not torch.isin(answered, control_ids(chat)).any(), "no control token comes from an answer"
    for i, turn in enumerate(rollout.turns):
        if turn.restart_reason:
            shown = chat.render_text(past(rollout, i), rollout.task.tools)
            assert text_of(chat, turn.context_ids) == shown, "a new sample begins with the template's words"
            assert (turn.context_origin != Origin.SAMPLED).all()
    return made


def control_ids(chat):
    """What data must not become: all special tokens, and all added ones that the template writes."""
    added = chat.tokenizer.added_tokens_decoder.items()
    written = chat.render_text([USER], TASK.tools)
    written += chat.tokenizer.chat_template + (hermes if chat.tool_prompt else "")
    return torch.tensor([id for id, token in added if token.special or token.content in written])


def past(rollout, turn):
    """What was said before a turn."""
    spoken = [i for i, message in enumerate(rollout.messages) if message["role"] == "assistant"]
    return [*rollout.task.messages, *rollout.messages[: spoken[turn]]]


def answers(chat, rollout):
    """The text of each stretch of TOOL tokens, joined, of the last sample."""
    sample = flatten(rollout)[-1]
    return text_of(chat, sample.token_ids[sample.origin == Origin.TOOL])
