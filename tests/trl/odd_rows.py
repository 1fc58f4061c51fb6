"""Rows through every path that trains or prompts: what is shown, what is trained, what is noted."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import trl

from truing.chat import make_chat, render_prompt
from truing.chat.render import text_of
from truing.config import EpisodeConfig
from truing.envs import make_env
from truing.models.load import load_tokenizer
from truing.models.resolve import resolve_model
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import DemonstrationTurns
from truing.trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer
from truing.types.sampling_params import RAW

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TOKENIZER = load_tokenizer(resolve_model("tiny"))
LIMITS = EpisodeConfig(max_turns=9, max_reply_chars=10**6)


@dataclass(frozen=True)
class Read:
    """The first row of a path: all of its text, what of it is trained, and the notes."""

    text: str
    trained: str
    notes: str


def user(content, **keys):
    return {"role": "user", "content": content, **keys}


def said(content, **keys):
    return {"role": "assistant", "content": content, **keys}


def call(name, arguments):
    return {"id": "call00000", "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(content, name="f"):
    return {"role": "tool", "name": name, "content": content}


def spec(name, **properties):
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "Acts.", "parameters": parameters}}


def chat_with(template):
    """The chat of the tiny model with the source of a template."""
    tokenizer = copy.copy(TOKENIZER)
    tokenizer.chat_template = template
    return make_chat(tokenizer, [tokenizer.eos_token_id])


def chat_of(name):
    return chat_with((TEMPLATES / f"{name}.jinja").read_text())


def played(env, chat):
    """What the demonstration of the first task trains."""
    context = EpisodeContext(chat, env, RAW, LIMITS, 10**6)
    source = DemonstrationTurns(chat)
    first = env.tasks("train")[:1]
    (group,) = collect(first, group_size=1, context=context, turn_source=source, grade=None, key=("k",))
    (rollout,) = group.rollouts
    turns = [[text_of(chat, ids) for ids in (turn.context_ids, turn.token_ids)] for turn in rollout.turns]
    assert not rollout.error, rollout.error
    return Read(
        "".join(map("".join, turns)),
        "|".join(trained for _, trained in turns),
        "\n".join(map(str, env.notes)),
    )


def prompted(env, chat):
    """The prompt of the first task."""
    (task, *_) = env.tasks("train")
    return Read(text_of(chat, render_prompt(chat, task).token_ids), "", "\n".join(map(str, env.notes)))


def sft(row, folder, template, **arguments):
    path = str(TEMPLATES / f"{template}.jinja")
    args = SFTConfig(
        str(folder), use_cpu=True, max_steps=1, max_length=None, chat_template_path=path, **arguments
    )
    return played(SFTTrainer("tiny", args, train_dataset=[row]).env, chat_of(template))


def split(messages):
    """A prompt, and its completion: the last message."""
    return {"prompt": messages[:-1], "completion": messages[-1:]}


def sampled(trainer, config):
    def path(messages, columns, folder, template):
        row = {"prompt": [*messages, user("And then?")], **columns}
        args = config(str(folder), use_cpu=True, max_steps=1)
        rows = [row] * args.per_device_train_batch_size
        return prompted(trainer("tiny", lambda completions, **_: [0.0], args, rows).env, chat_of(template))

    return path


def dataset(messages, columns, folder, template):
    rows = [{"messages": messages, **columns}, {"messages": [user("Other?"), said("x")]}]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    held_out = folder / "eval.jsonl"
    held_out.write_text(json.dumps({"messages": [user("Apart?"), said("x")]}), encoding="utf-8")
    env = make_env("dataset", {"data": f"{path}[:1]", "eval_data": str(held_out)})
    return played(env, chat_of(template))


PATHS = {
    "whole": lambda messages, columns, *rest: sft({"messages": messages, **columns}, *rest),
    "turns": lambda messages, columns, *rest: sft(
        {"messages": messages, **columns}, *rest, assistant_only_loss=True
    ),
    "completion": lambda messages, columns, *rest: sft({**split(messages), **columns}, *rest),
    "grpo": sampled(GRPOTrainer, GRPOConfig),
    "rloo": sampled(RLOOTrainer, RLOOConfig),
    "dataset": dataset,
}
"""Each takes messages, other columns, a folder and a template."""
