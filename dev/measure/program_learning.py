"""Train the tasks of ``recipes/tiny.toml`` in process and as a program of its own, and compare.

    python -m dev.measure.program_learning [--seeds 0 1 2] [--steps 80]

The program calls the policy by the client of ``openai``, once for each rollout. Prints the evaluations of
both by seed, how many of the rollouts of all steps have the same tokens, and the seconds of a step.
"""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from openai import OpenAI

from dev.measure.arms import evaluations
from truing.api import train
from truing.envs import make_env
from truing.envs.program import Program
from truing.record import RunReader
from truing.types.rollout import Task

RECIPE = Path("recipes/tiny.toml")

CLIENT = OpenAI(base_url="http://127.0.0.1", api_key="of each rollout", max_retries=0)
"""Shared, since a new client reads the certificates of the machine."""


def run(task: Task, base_url: str, key: str) -> str:
    """Ask the policy, and return what it says."""
    client = CLIENT.with_options(base_url=base_url, api_key=key)
    messages: Any = [dict(message) for message in task.messages]
    answer = client.chat.completions.create(model="policy", messages=messages)
    return answer.choices[0].message.content or ""


def tiny(seed: int, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe without its environment, and the keys of the environment."""
    table = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    env = table.pop("env")
    table["seed"] = seed
    table["grpo"]["steps"] = steps
    return table, env


def as_program(keys: dict[str, Any]) -> Program:
    """Return the environment's tasks and rewards, with a program that works on them."""
    env = make_env(keys["name"], {key: value for key, value in keys.items() if key != "name"})
    return Program(run, tasks=env.tasks("train"), eval_tasks=env.tasks("eval"), rewards=env.rewards)


def tokens_of(run_dir: Path) -> dict[tuple[str, int, str], list[int]]:
    """Return the sampled ids of each recorded rollout by stage, step and id."""
    reader, found = RunReader(run_dir), {}
    for line in reader.steps():
        table = reader.table(line)
        for index, sample in enumerate(table.samples):
            ids = table.streams["token_ids"][table.part(index)][sample.prompt_length :].tolist()
            found[line.stage, line.step, sample.sample_id] = ids
    return found


def compare(seed: int, steps: int, folder: Path) -> None:
    """Train both ways, and print how they compare."""
    made: dict[str, Path] = {}
    table, keys = tiny(seed, steps)
    for name in ("in process", "program"):
        out = made[name] = folder / name.replace(" ", "-")
        if name == "program":
            train(table, env=as_program(keys), out=out, on_event=lambda kind, facts: None)
        else:
            train({**table, "env": keys}, out=out, on_event=lambda kind, facts: None)
        rewards = ", ".join(f"{when} {each.estimate()}" for when, each in evaluations(out).items())
        times = [sum(line.seconds.values()) for line in RunReader(out).steps() if line.stage == "grpo"]
        print(f"seed {seed}, {name}: {rewards}; {median(times):.2f} s a step of GRPO", flush=True)
    one, other = (tokens_of(each) for each in made.values())
    same = {stage: [one[at] == other.get(at) for at in one if at[0] == stage] for stage in ("sft", "grpo")}
    shares = (f"{stage} {sum(each)} of {len(each)}" for stage, each in same.items())
    print(f"seed {seed}: the same tokens in {', '.join(shares)} rollouts", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=80)
    chosen = parser.parse_args(arguments)
    for seed in chosen.seeds:
        with TemporaryDirectory() as folder:
            compare(seed, chosen.steps, Path(folder))


if __name__ == "__main__":
    main()
