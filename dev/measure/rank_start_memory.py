"""Memory of a rank's start: a random model in a folder, until the session and the learner are open.

    torchrun --nproc-per-node 2 -m dev.measure.rank_start_memory [--full] [--dtype bfloat16] [--replicate 2]

Prints for each rank the bytes of its process beyond those before, at most and at the end, in units of the
bytes of the model in float32. Files hold another dtype than is loaded, so no weight is a page of a file, and
freed memory returns to the system.
"""

import argparse
import re
import tempfile
import threading
from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from truing.config import Recipe, resolve
from truing.distributed.ranks import Ranks, join
from truing.envs import env_from_recipe
from truing.learner.learner import open_learner
from truing.learner.memory_budget import MemoryBudget, MemoryNeed
from truing.models.builtin import ensure_built
from truing.models.load_policy import needs_fsdp
from truing.trainer import session as session_module
from truing.utils.memory import release_freed_memory

WIDTH, LAYERS = 1024, 12


def main() -> None:
    """Start a small model, which brings what any run needs, then the large one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train all weights")
    parser.add_argument("--dtype", default="float32", help="model.dtype")
    parser.add_argument("--replicate", type=int, default=1, help="trainer.replicate")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = recipe_of("tiny", args)
        ranks = join("cpu", 300, group_of_one=needs_fsdp(small)).with_mesh("cpu", args.replicate)
        measured(small, ranks)
        ranks.on_first(
            "the model", lambda: write(Path(folder), torch.bfloat16 if args.full else torch.float32)
        )
        path = ranks.gather("the folder", folder)[0]
        most, held, count = measured(recipe_of(path, args), ranks)
        ratios = f"at most {most / 4 / count:.2f}, then {held / 4 / count:.2f}"
        print(f"rank {ranks.rank}: {ratios}; {count:,} weights")
        ranks.gather("the end", None)


def recipe_of(model: str, args: argparse.Namespace) -> Recipe:
    """Return a recipe that trains a model."""
    return resolve(
        {
            "name": "start",
            "stages": ["grpo"],
            "grpo": {"steps": 1, "learning_rate": 1e-5},
            "model": {"name": model, "threads": 1, "dtype": args.dtype},
            "lora": False if args.full else {"rank": 8},
            "env": {"name": "arithmetic", "kinds": ["first-3"], "train": 16, "eval": 4},
            "eval": {"tasks": 4},
            "trainer": {"ranks": join("cpu", 300).size, "replicate": args.replicate},
        }
    )


def write(folder: Path, dtype: torch.dtype) -> None:
    """Write a random model of 151 million weights, with the tokenizer of the small one."""
    small = ensure_built("tiny")
    for file in small.iterdir():
        if "safetensors" not in file.name and file.name != "config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    config = LlamaConfig.from_pretrained(small)
    config.update(
        {
            "hidden_size": WIDTH,
            "intermediate_size": 3 * WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 64,
        }
    )
    model = LlamaForCausalLM(config)
    cast(nn.Module, model).to(dtype)  # transformers' decorator hides that it is a method
    model.save_pretrained(folder)


def measured(recipe: Recipe, ranks: Ranks) -> tuple[int, int, int]:
    """Open the session and the learner; return the bytes added at most and at the end, and the weights."""
    release_freed_memory()
    before, seen, over = anonymous_bytes(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            seen.append(anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    session = session_module.open_session(recipe, env_from_recipe(recipe), ranks)
    budget = MemoryBudget(MemoryNeed(0, 1), 1, 1)
    learner = open_learner(session.policy, session.recipe, "grpo", budget, checkpoint=None)
    over.set()
    thread.join()
    release_freed_memory()
    held, count = anonymous_bytes(), sum(weight.numel() for weight in learner.model.parameters())
    session.close()
    return max(seen) - before, held - before, count


def anonymous_bytes() -> int:
    """Return the resident bytes of this process that are not pages of files."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    session_module.keep_freed_memory = lambda: None
    torch.manual_seed(0)
    main()
