"""The runs that are killed: algorithms, all weights and adapters, one turn and agents, engines, ranks."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import torch

from dev.faults.fake_vllm.threads import fake_vllm
from truing.learner import step

BASE = {
    "name": "chaos",
    "model": {"name": "tiny", "threads": 1, "device": "cpu"},
    "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 4},
    "eval": {"tasks": 2, "base": False},
    "entropy": {"coef": 0.01},  # moves the policy, whatever it earns
    "doctor": {"stop": False},
    "checkpoint_every": 1,
}
SFT = {"steps": 2, "batch_size": 6, "learning_rate": 3e-3}
RFT = {"steps": 2, "min_reward": 0.0, "prompts_per_step": 2, "group_size": 4, "learning_rate": 1e-3}
GRPO = {"steps": 3, "prompts_per_step": 2, "group_size": 4, "learning_rate": 1e-3, "objective": "dapo"}
PPO = {"steps": 3, "prompts_per_step": 4, "learning_rate": 1e-3}
LORA = {"lora": {"rank": 4, "dropout": 0.1}}
AGENT = {
    "env": {"name": "workspace", "kinds": ["tiny-file"], "system": "", "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 24},
    "chat": {"tool_prompt": "brief"},
    "episode": {"max_turns": 3},
}
VLLM = {"engine": {"kind": "vllm", "timeout": 30.0}}

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "sft rft": {"stages": ["sft", "rft"], "sft": SFT, "rft": RFT},
    "sft rft lora agent": {"stages": ["sft", "rft"], "sft": SFT, "rft": RFT, **LORA, **AGENT},
    "sft grpo": {"stages": ["sft", "grpo"], "sft": SFT, "grpo": GRPO, "checkpoint_every": 2, "eval.every": 2},
    "grpo lora": {
        "stages": ["grpo"],
        "grpo": GRPO | {"inner_epochs": 2, "minibatches": 2},
        "kl": {"coef": 0.1, "target": 0.01, "horizon": 20},
        "entropy": {"target": 2.0},
        "reference": {"sync_every": 2, "keep": 0.9},
        **LORA,
    },
    "grpo agent": {"stages": ["grpo"], "grpo": GRPO, **AGENT},
    "grpo lora agent": {"stages": ["sft", "grpo"], "sft": SFT, "grpo": GRPO, **LORA, **AGENT},
    "ppo": {"stages": ["ppo"], "ppo": PPO},
    "ppo lora": {
        "stages": ["sft", "ppo"],
        "sft": SFT,
        "ppo": PPO | {"critic": "separate", "inner_epochs": 2, "value_clip": 0.2},
        "kl": {"coef": 0.1, "where": "reward", "estimator": "k1"},
        **LORA,
    },
    "ppo agent": {"stages": ["ppo"], "ppo": PPO, **AGENT},
    "rollback": {
        "stages": ["grpo"],
        "grpo": GRPO | {"steps": 4, "inner_epochs": 2},
        "guard": {"rollbacks": 2, "window": 2, "learning_rate": 0.1},
        **LORA,
    },
    "grpo vllm": {"stages": ["grpo"], "grpo": GRPO, **VLLM},
    "grpo lora agent vllm": {"stages": ["grpo"], "grpo": GRPO, **LORA, **AGENT, **VLLM},
    "grpo lora vllm ahead": {
        "stages": ["grpo"],
        "grpo": GRPO,
        "engine": VLLM["engine"] | {"ahead": 1},
        "correction": {"method": "truncate"},
        **LORA,
    },
    "grpo lora 2 ranks": {
        "stages": ["sft", "grpo"],
        "sft": SFT,
        "grpo": GRPO,
        **LORA,
        "trainer": {"ranks": 2, "replicate": 1},
    },
    "ppo 2 ranks": {"stages": ["ppo"], "ppo": PPO, "trainer": {"ranks": 2}},
}
"""By name, what each changes in ``BASE``."""

UNSTABLE = "0/grpo/2, optimizer step 0"
"""The step whose gradient is not finite in the run that is rolled back, at its first learning rate."""


def table_of(name: str) -> dict[str, Any]:
    """Return the recipe of a variant."""
    changes = dict(VARIANTS[name])
    evaluation = BASE["eval"] | {"every": changes.pop("eval.every", 0)}
    return {**BASE, "eval": evaluation, **changes}


def ranks_of(name: str) -> int:
    """Return the number of ranks of a variant."""
    return VARIANTS[name].get("trainer", {}).get("ranks", 1)


def is_exact(name: str) -> bool:
    """Return whether a resumed run of a variant equals one without a kill: not with ``engine.ahead``."""
    return "ahead" not in VARIANTS[name].get("engine", {})


def surroundings(name: str) -> AbstractContextManager[object]:
    """Return the context that a variant is trained in: fake servers, an unstable step."""
    stack = ExitStack()
    if "engine" in VARIANTS[name]:
        stack.enter_context(fake_vllm())
    if "guard" in VARIANTS[name]:
        stack.enter_context(mock.patch.object(step, "clip_and_step", _not_finite(step.clip_and_step)))
    return stack


def _not_finite(real: Callable[..., Any]) -> Callable[..., Any]:
    """Make the gradient of one step NaN as long as its learning rate is high."""

    def clip_and_step(optimizer: torch.optim.Optimizer, max_norm: float, name: str, *parts: Any) -> Any:
        if UNSTABLE in name and optimizer.param_groups[0]["lr"] > GRPO["learning_rate"] / 2:
            next(weight for weight in parts[0].values() if weight.grad is not None).grad.fill_(torch.nan)
        return real(optimizer, max_norm, name, *parts)

    return clip_and_step
