"""Checks before training that all ranks run one program: code, libraries, recipe, data, initial weights."""

import hashlib
import platform
import tomllib
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from truing.analysis.compare import flatten
from truing.chat.render import render_prompt
from truing.config import Recipe, to_toml
from truing.distributed.ranks import Ranks
from truing.measurements.weight_digests import rotating_slice
from truing.models.digest import quick_sum
from truing.models.lora import trainable_parameters
from truing.trainer.reward_definition import reward_definition
from truing.trainer.session import Session
from truing.trainer.step_record import LIBRARIES

PROMPTS = 16
"""Prompts that are compared as ids: they show another tokenizer or chat template."""


def check_same_program(ranks: Ranks, recipe: Recipe) -> None:
    """Raise on all ranks if one runs other code, other libraries or another recipe, naming the first."""
    if ranks.size == 1:
        return
    ranks.check_same(
        {"the code of truing": code_digest(), "the version of Python": platform.python_version()}
        | {f"the version of {library}": version(library) for library in LIBRARIES},
        remedy="install the same versions for every rank",
    )
    keys = flatten(tomllib.loads(to_toml(recipe)))
    ranks.check_same(
        {f"the recipe: {key}": value for key, value in keys.items()},
        remedy="start every rank with the same recipe file and the same key=value arguments",
    )


def check_same_start(session: Session) -> None:
    """Raise on all ranks if one has another model, other data or other initial weights."""
    policy, sampler = session.policy, session.sampler
    if policy.ranks.size == 1:
        return
    tasks, rewards = sampler.train_tasks, reward_definition(sampler)
    prompts = [render_prompt(sampler.chat, task).token_ids.tolist() for task in tasks[:PROMPTS]]
    trained = rotating_slice(trainable_parameters(policy.whole_module), step_index=0)
    policy.ranks.check_same(
        {
            "the model": policy.loaded.digest,
            "the sampling parameters": asdict(sampler.sampling_params),
            "the training tasks": rewards["tasks_hash"],
            "the evaluation tasks": rewards["eval_tasks"],
            "the rewards": rewards["rewards"],
            "the ids of prompts": prompts,
            "the initial weights": quick_sum(trained),
        },
        remedy="let every rank read the same files, and key random numbers by the recipe alone",
    )


@cache
def code_digest() -> str:
    """Return a digest of the package's modules, by path and content."""
    package, sha = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        sha.update(f"{path.relative_to(package)}\0".encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]
