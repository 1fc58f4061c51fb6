"""Prints the bytes by which weights and optimizer of a recipe grow its process: ``python … RECIPE.json``."""

import json
import sys
from pathlib import Path

import torch

from truing.config import resolve
from truing.distributed.ranks import join
from truing.envs import env_from_recipe
from truing.learner.learner import open_learner
from truing.learner.memory_budget import MemoryBudget, MemoryNeed
from truing.models.load_policy import needs_fsdp
from truing.trainer.session import open_session
from truing.utils.memory import bytes_in_use


def main(table: dict) -> int:
    """Open the session and the learner of a recipe, and make one optimizer step of gradients of 0."""
    recipe, cpu = resolve(table), torch.device("cpu")
    small = resolve({**table, "model": {**table["model"], "name": "tiny"}})
    for each in (small, recipe):  # the first brings what any run needs: libraries, threads, FSDP2
        ranks = join("cpu", timeout=60, group_of_one=needs_fsdp(each))
        if needs_fsdp(each):
            ranks = ranks.with_mesh("cpu", replicate=1)
        before = bytes_in_use(cpu)
        session = open_session(each, env_from_recipe(each), ranks)
        budget = MemoryBudget(MemoryNeed(0, 1), 1, 1)
        learner = open_learner(session.policy, each, each.stages[0], budget, checkpoint=None)
        for weight in (weight for group in learner.parameter_groups() for weight in group.values()):
            weight.grad = torch.zeros_like(weight)
        learner.optimizer.step()
        grown = bytes_in_use(cpu) - before
    return grown


if __name__ == "__main__":
    print(main(json.loads(Path(sys.argv[1]).read_text())))
