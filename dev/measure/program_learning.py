"""Train a recipe's tasks in process and by a program that calls the policy, and compare.

    python -m dev.measure.program_learning [recipes/tiny.toml] [KEY=VALUE …] [--seeds 0 1 2] [--one-sft]

The program has a loop of its own: it calls the policy by the client of ``openai``, runs the tools that an
answer calls, and ends when it calls none. With ``--one-sft`` both ways of GRPO begin with one policy after
SFT in process. Prints the evaluations of both by seed, how many of the rollouts of all steps have the same
tokens, and the seconds of a step.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from openai import OpenAI

from dev.measure.arms import evaluations
from truing.api import train
from truing.config import Recipe, load_recipe
from truing.envs import make_env
from truing.envs.base import Env, MultiTurnEnv
from truing.envs.program import Program
from truing.learner.restore import restore_policy
from truing.models.export import export
from truing.record import RunReader
from truing.rewards import RewardFn, Rewards
from truing.types.message import AssistantMessage, Message, ToolCall
from truing.types.rollout import Rollout, Task

CLIENT = OpenAI(base_url="http://127.0.0.1", api_key="of each rollout", max_retries=0)
"""Shared, since a new client reads the certificates of the machine."""


class Agent:
    """A loop around the policy, in the world of a task if its environment has one."""

    def __init__(self, env: Env, max_turns: int) -> None:
        self._env, self._max_turns = env, max_turns
        self._tasks = {task.task_id: task for split in ("train", "eval") for task in env.tasks(split)}

    def __call__(self, task: Task, base_url: str, key: str) -> Mapping[str, Any]:
        """Work on a task, and return the state that it leaves."""
        client = CLIENT.with_options(base_url=base_url, api_key=key)
        messages: list[Any] = [dict(message) for message in task.messages]
        options: Any = {"tools": [spec.schema() for spec in task.tools]} if task.tools else {}
        world = None
        if isinstance(self._env, MultiTurnEnv):
            world = self._env.open(self._tasks[task.task_id])
        for _ in range(self._max_turns):
            reply = client.chat.completions.create(model="policy", messages=messages, **options)
            said = reply.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            if world is None or not said.tool_calls:
                break
            answers = world.reply(_message_of(said))
            messages += map(_with_id, answers, said.tool_calls)
        return {} if world is None else dict(world.outcome())

    def rewards(self) -> Rewards:
        """Return the environment's rewards of the state that the agent leaves."""
        return {name: (_of_output(reward), weight) for name, (reward, weight) in self._env.rewards.items()}


def _message_of(said: Any) -> AssistantMessage:
    """Return an answer of the client in the form that tools read."""
    calls = [
        ToolCall(call.function.name, json.loads(call.function.arguments), call.id) for call in said.tool_calls
    ]
    return AssistantMessage(said.content or "", tuple(calls))


def _with_id(answer: Message, call: Any) -> Message:
    """Return a tool's answer to a call."""
    return {**answer, "tool_call_id": call.id}


def _of_output(reward: RewardFn) -> RewardFn:
    """Return a reward of what a program returned in place of the world's outcome."""

    def rewarded(rollout: Rollout, task: Task) -> Any:
        return reward(replace(rollout, outcome=rollout.outcome["output"]), task)

    return rewarded


def tokens_of(run_dir: Path) -> dict[tuple[str, int, str], list[int]]:
    """Return the sampled ids of each recorded rollout by stage, step and id."""
    reader, found = RunReader(run_dir), {}
    for line in reader.steps():
        table = reader.table(line)
        for index, sample in enumerate(table.samples):
            ids = table.streams["token_ids"][table.part(index)][sample.prompt_length :].tolist()
            found[line.stage, line.step, sample.sample_id] = ids
    return found


def trained(recipe: Recipe, out: Path, *, as_program: bool) -> Path:
    """Train a recipe in process, or by a program; return the run directory."""
    options: dict[str, Any] = {"out": out, "on_event": lambda kind, facts: None}
    if as_program:
        keys = dict(recipe.env)
        env = make_env(keys.pop("name"), keys)
        agent = Agent(env, recipe.episode.max_turns)
        tasks = {"tasks": env.tasks("train"), "eval_tasks": env.tasks("eval")}
        options["env"] = Program(agent, **tasks, rewards=agent.rewards())
        recipe = recipe.model_copy(update={"env": {}})
    train(recipe, **options)
    return out


def after_sft(recipe: Recipe, folder: Path) -> Recipe:
    """Train the SFT of a recipe in process; return the recipe of what follows it."""
    run = trained(recipe.model_copy(update={"stages": ("sft",)}), folder / "sft", as_program=False)
    restored = restore_policy(run)
    export(restored.policy, restored.loaded, restored.sampling_params, folder / "model")
    model = recipe.model.model_copy(update={"name": str(folder / "model")})
    return recipe.model_copy(update={"stages": recipe.stages[1:], "model": model})


def compare(recipe: Recipe, folder: Path) -> None:
    """Train both ways, and print how they compare."""
    made: dict[str, Path] = {}
    for name, as_program in (("in process", False), ("program", True)):
        out = made[name] = trained(recipe, folder / name.replace(" ", "-"), as_program=as_program)
        rewards = ", ".join(f"{when} {each.estimate()}" for when, each in evaluations(out).items())
        times = [sum(line.seconds.values()) for line in RunReader(out).steps() if line.stage == "grpo"]
        print(f"seed {recipe.seed}, {name}: {rewards}; {median(times):.2f} s a step of GRPO", flush=True)
    one, other = (tokens_of(each) for each in made.values())
    same = {stage: [one[at] == other.get(at) for at in one if at[0] == stage] for stage in recipe.stages}
    shares = (f"{stage} {sum(each)} of {len(each)}" for stage, each in same.items())
    print(f"seed {recipe.seed}: the same tokens in {', '.join(shares)} rollouts", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", default="recipes/tiny.toml")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--one-sft", action="store_true")
    chosen = parser.parse_intermixed_args(arguments)
    for seed in chosen.seeds:
        recipe = load_recipe(chosen.recipe, [*chosen.keys, f"seed={seed}"])
        with TemporaryDirectory() as folder:
            compare(after_sft(recipe, Path(folder)) if chosen.one_sft else recipe, Path(folder))


if __name__ == "__main__":
    main()
