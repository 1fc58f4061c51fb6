"""Trains healthy recipes with options at random: no rule may claim PROVEN or EVIDENCE, and none may crash.

    python -m dev.measure.random_recipes --minutes 10 --dtype bfloat16

The written healthy runs (``recipes/healthy``) have one option each; here several meet. A recipe that is
refused as a recipe is drawn again.
"""

import argparse
import itertools
import json
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import nullcontext
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from transformers import Gemma3TextConfig, Qwen2Config, Qwen3Config

from dev.faults.fault import Fault
from dev.faults.run_fault import RUN_DIR, run_fault
from dev.measure.random_models import save_random_model
from truing.config import Recipe
from truing.doctor.verdict import Verdict
from truing.errors import RecipeError
from truing.record.store import STEPS
from truing.rewards import PerTurn
from truing.trainer.preflight import random_reward
from truing.types.rollout import Rollout, Task
from truing.utils.rng import seed_of

WRONG = (Verdict.PROVEN, Verdict.EVIDENCE)

NOTHING_TRAINED = ("MSK009", "OPT013")
"""Rules whose claims are true of some recipes: gates may leave out every token of every step."""

ALGORITHMS = ("sft", "rft", "reinforce", "rloo", "grpo", "grpo", "grpo", "grpo", "ppo", "ppo")
"""Of the last stage; those that users train with most come up most."""

OBJECTIVES = ("grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo", "ppo", "reinforce")
TOOLS: Mapping[str, Any] = {
    "env": {"name": "workspace", "kinds": ["tiny-file"], "system": "", "train": 24, "eval": 8},
    "chat.tool_prompt": "brief",
    "episode.max_turns": 3,
    "sampling.max_new_tokens": 48,
}
GRAMMAR: Mapping[str, Any] = {
    **TOOLS,
    "sampling.max_new_tokens": 110,
    "episode.grammar": "calls",
    "episode.forced_prefix": "<tool_call>",
    "episode.force_rate": 1.0,
}
PREFIX: Mapping[str, Any] = {"episode.forced_prefix": "1", "episode.force_rate": 0.5}

OPTIONS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    (
        {"lora.rank": 4},
        {"lora.rank": 4, "lora.targets": ["q_proj", "down_proj"]},
        {"lora.rank": 2, "lora.alpha": 1.0},
        {"lora.rank": 4, "lora.dropout": 0.1},
    ),
    ({"sft.steps": 20}, {"sft.steps": 60, "sft.learning_rate": 1e-2}),
    (
        TOOLS,
        {**TOOLS, "episode.mask": "action"},
        GRAMMAR,
        {**GRAMMAR, "episode.mask": "no_structure"},
        {"env.kinds": ["first-3"], "sampling.max_new_tokens": 6},
    ),
    (PREFIX, {**PREFIX, "episode.mask": "action"}, {**PREFIX, "episode.force_steps": 2}),
    ({"sampling.temperature": 0.7}, {"sampling.temperature": 1.5}),
    ({"sampling.top_p": 0.9}, {"sampling.top_k": 5}, {"sampling.top_k": 1}, {"sampling.min_p": 0.05}),
    (
        {"sampling.presence_penalty": 0.5},
        {"sampling.frequency_penalty": 0.3},
        {"sampling.repetition_penalty": 1.2},
    ),
    ({"sampling.min_new_tokens": 2}, {"sampling.max_new_tokens": 1}, {"sampling.max_new_tokens": 12}),
    ({"kl.coef": 0.05}, {"kl.coef": 0.05, "kl.estimator": "k2"}, {"kl.coef": 0.1, "kl.target": 0.01}),
    (
        {"kl.coef": 0.05, "kl.where": "reward", "kl.estimator": "k1"},
        {"kl.cap": 0.02, "kl.cap_action": "skip"},
    ),
    (
        {"reference.sync_every": 2, "kl.coef": 0.05},
        {"reference.sync_every": 1, "reference.keep": 0.9, "kl.coef": 0.1},
    ),
    ({"entropy.coef": 0.01}, {"entropy.coef": 0.01, "entropy.target": 1.0}),
    ({"bootstrap.steps": 3, "bootstrap.batch_size": 4},),
    ({"gates.equal_groups": "drop"}, {"gates.equal_groups": "resample"}, {"gates.min_trained_tokens": 20}),
    ({"gates.truncated": "mask"}, {"gates.truncated": "penalize", "gates.overlong_tokens": 2}),
    ({"gates.min_ratio": 0.9, "gates.max_ratio": 1.1},),
    tuple(
        {"correction.method": name}
        for name in ("truncate", "mask", "sequence", "sequence_truncate", "sequence_mask")
    ),
    ({"optimizer.warmup_steps": 3}, {"optimizer.schedule": "cosine"}, {"optimizer.weight_decay": 0.1}),
    ({"optimizer.max_grad_norm": 0.01}, {"optimizer.beta1": 0.0}, {"optimizer.eps": 1e-3}),
    ({"optimizer.micro_batch_tokens": 64}, {"optimizer.micro_batch_tokens": 256}),
    ({"episode.max_prompt_tokens": 60}, {"rft.min_reward": 0.5}),
    (
        {"engine.kind": "vllm"},
        {"engine.kind": "vllm", "engine.sleep": True},
        {"engine.kind": "vllm", "engine.ahead": 1, "correction.method": "truncate"},
    ),
    ({"episode.lock_step": False}, {"episode.processes": True, "episode.workers": 2}),
    ({"env.partial_weight": 0.5},),
    ({"doctor.budget": 0.02},),
    ({"guard.reward_drop": 0.5, "guard.rollbacks": 3, "checkpoint_every": 1},),
    ({"eval.every": 1, "eval.samples": 2, "eval.temperature": 1.0}, {"eval.tasks": 0}),
    ({"model.name": "tiny-moe"}, {"model.name": "qwen3"}, {"model.name": "gemma3"}, {"model.name": "qwen2"}),
)
"""Groups of options: a recipe has at most one of each."""

STAGE_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "inner_epochs": (2, 3),
    "minibatches": (2,),
    "objective": OBJECTIVES,
    "learning_rate": (1e-4, 1e-2, 3e-2),
    "advantage_scale": ("batch", "none"),
    "advantage_per": ("turn",),
    "group_size": (2, 16),
    "prompts_per_step": (2, 12),
    "gamma": (0.9,),
    "lam": (1.0, 0.5),
    "whiten": (True, False),
    "critic": ("separate",),
    "value_clip": (0.2,),
    "truncation": ("end",),
    "baseline": ("none",),
    "clip_high": (0.3,),
}
"""Keys of the last stage; one that the stage has not is not set."""

SHARE, STAGE_SHARE = 0.2, 0.15
"""How often a recipe has an option of a group, and a key of its stage."""


@cache
def model_folders() -> Mapping[str, Path]:
    """Write models of other families with random weights; return their folders by name."""
    size: Mapping[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "max_position_embeddings": 4096,
    }
    configs = {
        "qwen3": Qwen3Config(**size, head_dim=16, tie_word_embeddings=True),
        "qwen2": Qwen2Config(**size, tie_word_embeddings=False),
        "gemma3": Gemma3TextConfig(
            **size, head_dim=16, sliding_window=32, layer_types=["sliding_attention", "full_attention"]
        ),
    }
    folders = {name: Path(os.environ["RANDOM_MODELS"]) / name for name in configs}
    for name, folder in folders.items():
        if not folder.is_dir():
            save_random_model(configs[name], folder, tokenizer="tiny")
    return folders


def reward_of_turns(rollout: Rollout, task: Task) -> PerTurn:
    """Return a pseudorandom reward for each turn."""
    return PerTurn([(0.0, 0.25, 1.0)[seed_of(rollout.rollout_id, k) % 3] for k in range(len(rollout.turns))])


def draw(seed: int, dtype: str) -> Fault:
    """Return a recipe at random, as a run without a fault."""
    rng = random.Random(seed)
    last = rng.choice(ALGORITHMS)
    stages = [last] if last == "sft" or rng.random() < SHARE else ["sft", last]
    changes: dict[str, Any] = {"stages": stages, "seed": seed, "model.dtype": dtype, "model.name": "tiny"}
    if last != "sft":
        changes |= {f"{last}.steps": rng.choice((3, 4, 6)), f"{last}.learning_rate": 1e-3}
        keys = get_args(Recipe.model_fields[last].annotation)[0].model_fields
        for key, values in STAGE_OPTIONS.items():
            if key in keys and rng.random() < STAGE_SHARE:
                changes[f"{last}.{key}"] = rng.choice(values)
    for group in OPTIONS:
        if rng.random() < SHARE:
            changes |= rng.choice(group)
    changes["model.name"] = str(model_folders().get(changes["model.name"], changes["model.name"]))
    reward = rng.choice((None, random_reward, random_reward, reward_of_turns))
    if changes.get("grpo.advantage_per") == "turn":
        reward = reward_of_turns
    resumed_after = rng.choice((0, 0, 0, 1, 2))
    return Fault(
        f"random-{seed}", (), "", nullcontext, (), changes, reward, healthy=True, resumed_after=resumed_after
    )


def train(seed: int, dtype: str) -> dict[str, Any] | None:
    """Train the recipe of a seed; return what is wrong with the run, None if it is refused at its start."""
    torch.set_num_threads(1)
    run, begun = draw(seed, dtype), time.monotonic()
    with TemporaryDirectory() as keep:
        try:
            outcome = run_fault(run, Path(keep))
        except RecipeError:
            return None
        except Exception:  # noqa: BLE001  what a user would see as a traceback
            wrong: dict[str, Any] = {"crash": traceback.format_exc()}
        else:
            has_begun = (Path(keep) / run.name / RUN_DIR / STEPS).exists()
            if outcome.error and not has_begun:
                return None
            claims = [
                f"{each.code} {each.claim.verdict} in {each.stage} {each.step}: {each.claim.what}"
                for each in outcome.fired
                if each.claim.verdict in WRONG and each.code not in NOTHING_TRAINED
            ]
            wrong = {"findings": claims, "broken": outcome.broken, "stopped": outcome.error}
    facts = {key: value for key, value in wrong.items() if value}
    about = {"resumed_after": run.resumed_after, "reward": run.reward and run.reward.__name__}
    seconds = round(time.monotonic() - begun, 1)
    return {"seed": seed, "seconds": seconds, "wrong": facts, "changes": {**run.changes, **about}}


def main() -> int:
    """Train until the time is over; print each run that is wrong, and return 1 if there is one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--seed", type=int, default=0, help="of the first recipe; the others follow")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    counts, seeds, end = Counter[str](), itertools.count(args.seed), time.monotonic() + 60 * args.minutes
    with TemporaryDirectory() as folder:
        os.environ["RANDOM_MODELS"] = folder
        model_folders()
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            pending = {pool.submit(train, next(seeds), args.dtype) for _ in range(args.workers)}
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    if time.monotonic() < end:
                        pending.add(pool.submit(train, next(seeds), args.dtype))
                    result = future.result()
                    counts["refused" if result is None else "wrong" if result["wrong"] else "healthy"] += 1
                    if result is not None and result["wrong"]:
                        print(json.dumps(result, indent=1), flush=True)
    print(f"{args.dtype}, seeds {args.seed} to {next(seeds) - 1}: {dict(counts)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
