"""Healthy runs that resemble faults: no rule may claim PROVEN or EVIDENCE in any.

As recipes: ``python -m dev.faults.healthy_runs recipes/healthy``.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tomli_w

from dev.faults.fault import Fault
from dev.faults.run_fault import table_of
from truing.trainer.preflight import random_reward

PPO = {
    "stages": ["sft", "ppo"],
    "ppo": {"steps": 4, "prompts_per_step": 16, "learning_rate": 1e-3, "inner_epochs": 2, "minibatches": 2},
}
LORA = {"lora": {"rank": 4}}
RANKS: Mapping[str, Any] = {"trainer.ranks": 2}
TOOLS: Mapping[str, Any] = {
    "env": {"name": "workspace", "kinds": ["tiny-file"], "system": "", "train": 24, "eval": 8},
    "chat.tool_prompt": "brief",
    "episode.max_turns": 3,
    "sampling.max_new_tokens": 64,
    "sft.steps": 8,
    "grpo.steps": 2,
    "grpo.prompts_per_step": 2,
    "grpo.group_size": 4,
}
PROGRAM: Mapping[str, Any] = {
    "env": {
        "name": "program",
        "function": "dev/faults/agent_program.py:run",
        "data": "dev/faults/program_tasks.jsonl",
        "rewards": {"exact": {"kind": "exact"}},
    },
    "stages": ["grpo"],
    "chat.tool_prompt": "brief",
    "sampling.max_new_tokens": 12,
    "grpo.steps": 3,
    "grpo.prompts_per_step": 3,
    "grpo.group_size": 4,
}
CALLS: Mapping[str, Any] = {
    **TOOLS,
    "sampling.max_new_tokens": 110,
    "episode.grammar": "calls",
    "episode.forced_prefix": "<tool_call>",
    "episode.force_rate": 1.0,
}
VLLM: Mapping[str, Any] = {"engine.kind": "vllm"}
MIXTURE: Mapping[str, Any] = {**VLLM, "model.name": "tiny-moe", "sampling.max_new_tokens": 12}
VLLM_LORA: Mapping[str, Any] = {**VLLM, **LORA}
VLLM_AHEAD: Mapping[str, Any] = {**VLLM_LORA, "engine.ahead": 1, "correction.method": "truncate"}
CORPUS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "on-policy": ("ratios are 1, the loss is 0, no KL: all as expected", {}),
    "low-entropy": ("a policy that is nearly certain", {"sft.steps": 120, "sft.learning_rate": 1e-2}),
    "untrained": ("answers that never stop: every rollout is cut", {"stages": ["grpo"]}),
    "fast-learner": (
        "a rate at which the policy changes from step to step",
        {"sft.steps": 40, "grpo.steps": 8, "grpo.learning_rate": 1e-2},
    ),
    "adapter": ("the first step of an adapter moves B alone", {**LORA, "kl.coef": 0.05}),
    "adapter-after-sft": (
        "the reference is an adapter of its own",
        {**LORA, "sft.steps": 20, "sft.learning_rate": 1e-2, "kl.coef": 0.05},
    ),
    "reference-synced": (
        "the reference is a declared copy of the policy",
        {"kl.coef": 0.05, "reference.sync_every": 2, "grpo.steps": 6, "grpo.inner_epochs": 2},
    ),
    "reference-averaged": (
        "the reference is a moving average",
        {"kl.coef": 0.05, "reference.sync_every": 1, "reference.keep": 0.9, "grpo.steps": 4, **LORA},
    ),
    "inner-epochs": (
        "ratios move within a step, and the clip acts",
        {"grpo.inner_epochs": 4, "grpo.minibatches": 2, "grpo.learning_rate": 1e-2, "sft.steps": 20},
    ),
    "nucleus": (
        "top-p leaves one token at many places: log-probability 0, gradient 0",
        {"sampling.top_p": 0.9, "sft.steps": 60, "sft.learning_rate": 1e-2},
    ),
    "penalties": (
        "every penalty, a temperature and a ban of early stops, replayed by the trainer",
        {
            "sampling.temperature": 0.8,
            "sampling.presence_penalty": 0.5,
            "sampling.frequency_penalty": 0.2,
            "sampling.repetition_penalty": 1.2,
            "sampling.min_new_tokens": 2,
            "sft.steps": 20,
        },
    ),
    "programs": (
        "a program's conversations: a loop, a title that is not trained, an edited history",
        PROGRAM,
    ),
    "programs-demonstrated": (
        "demonstrations answer the calls of a program; its titles are not trained",
        {
            **PROGRAM,
            "env": {
                **PROGRAM["env"],
                "function": "dev/faults/agent_program.py:ask_thrice",
                "data": "dev/faults/program_demonstrations.jsonl",
            },
            "stages": ["sft", "grpo"],
        },
    ),
    "equal-rewards": ("groups without signal: no weight moves", {"reward": "own"}),
    "one-batch-of-tasks": (
        "every step has the same tasks, since there are no others",
        {"env.train": 6, "grpo.prompts_per_step": 6, "grpo.steps": 5},
    ),
    "warm-up": ("learning rates that rise from almost 0", {"optimizer.warmup_steps": 50}),
    "decay": (
        "weight decay and a falling rate",
        {"optimizer.weight_decay": 0.1, "optimizer.schedule": "linear"},
    ),
    "entropy-and-kl": (
        "an entropy bonus, a KL weight with a target, and demonstrations in the batch",
        {
            "entropy.coef": 0.02,
            "kl.coef": 0.1,
            "kl.target": 0.01,
            "bootstrap.steps": 3,
            "bootstrap.batch_size": 4,
            "grpo.inner_epochs": 2,
        },
    ),
    "forced-prefix": (
        "turns begin with forced tokens",
        {"episode.forced_prefix": "1", "episode.force_rate": 0.5},
    ),
    "dropped-groups": (
        "groups of equal reward are left out",
        {"gates.equal_groups": "drop", "reward": "own", "sft.steps": 40},
    ),
    "masked-cuts": ("the recipe masks cut rollouts", {"gates.truncated": "mask", "sft.steps": 15}),
    "penalised": (
        "the recipe penalizes cut and long rollouts",
        {"gates.truncated": "penalize", "gates.overlong_tokens": 2, "sft.steps": 15},
    ),
    "penalised-equal-rewards": (
        "penalties alone tell rollouts of equal reward apart",
        {"gates.truncated": "penalize", "gates.overlong_tokens": 2, "sft.steps": 15, "reward": "own"},
    ),
    "ratio-gated": (
        "a gate leaves out tokens that moved far",
        {"gates.min_ratio": 0.9, "gates.max_ratio": 1.1, "grpo.inner_epochs": 3, "grpo.learning_rate": 1e-2},
    ),
    "corrected": ("old log-probabilities are the trainer's own", {"correction.method": "mask", **LORA}),
    "kl-in-reward": (
        "each answer's KL is subtracted from its reward before the group baseline",
        {"kl.coef": 0.1, "kl.where": "reward", "kl.estimator": "k3", "sft.steps": 15},
    ),
    "reinforce-whitened": (
        "discounted returns, whitened, and a KL in the reward",
        {
            "stages": ["sft", "reinforce"],
            "reinforce": {
                "steps": 3,
                "prompts_per_step": 16,
                "learning_rate": 1e-3,
                "gamma": 0.9,
                "whiten": True,
            },
            "kl.coef": 0.05,
            "kl.where": "reward",
            "kl.estimator": "k1",
        },
    ),
    "ppo": ("a critic, several optimizer steps a step, minibatches", {**PPO, "sft.steps": 20}),
    "ppo-kl-in-reward": (
        "the KL is in the reward",
        {**PPO, "sft.steps": 20, "kl.coef": 0.02, "kl.where": "reward", "kl.estimator": "k1"},
    ),
    "ppo-dropout": (
        "dropout moves the values of the critic, and some are clipped",
        {**PPO, **LORA, "lora.dropout": 0.1, "ppo.value_clip": 0.02, "sft.steps": 20},
    ),
    "rloo": (
        "each answer against the others",
        {"stages": ["sft", "rloo"], "rloo": {"steps": 3, "prompts_per_step": 4, "learning_rate": 1e-3}},
    ),
    "reinforce": (
        "returns minus a baseline",
        {
            "stages": ["sft", "reinforce"],
            "reinforce": {"steps": 3, "prompts_per_step": 16, "learning_rate": 1e-3},
        },
    ),
    "rejected-turns-forced": (
        "rejected answers began with forced tokens, which the mask leaves out",
        {
            "stages": ["sft", "rft"],
            "rft": {"steps": 3, "learning_rate": 1e-3},
            "episode.mask": "action",
            "episode.forced_prefix": "1",
            "episode.force_rate": 0.5,
        },
    ),
    "rejection-sampling": (
        "good answers become demonstrations",
        {"stages": ["sft", "rft"], "rft": {"steps": 3, "learning_rate": 1e-3}},
    ),
    **{
        name: (f"the objective {name}", {"grpo.objective": name, "grpo.inner_epochs": 2, "sft.steps": 15})
        for name in ("dapo", "dr_grpo", "gspo", "cispo", "bnpo")
    },
    "some-turns-forced": (
        "half of the turns begin with forced tokens, and the mask leaves them out",
        {"episode.mask": "action", "episode.forced_prefix": "1", "episode.force_rate": 0.5},
    ),
    "weighted-parts": (
        "a reward of two parts, one of which counts half",
        {"env.partial_weight": 0.5, "reward": "own", "sft.steps": 20},
    ),
    "capped": (
        "a cap on the KL skips an optimizer step now and then",
        {"kl.cap": 0.02, "kl.cap_action": "skip", "grpo.inner_epochs": 3, "grpo.learning_rate": 1e-3},
    ),
    "tools": (
        "several turns with tools: a stop ends each turn",
        TOOLS,
    ),
    "calls-by-grammar": ("calls constrained by a grammar, with forced first tokens", CALLS),
    "calls-truncated": (
        "top-k and top-p truncate what the grammar allows",
        {**CALLS, "sampling.top_k": 8, "sampling.top_p": 0.95},
    ),
    "calls-in-minibatches": (
        "minibatches compute the rows of a rollout in another order",
        {**CALLS, "grpo.minibatches": 2, "grpo.prompts_per_step": 4},
    ),
    "vllm-lora": ("each step's adapter is sent to a vLLM server", {**VLLM_LORA, "grpo.steps": 6}),
    "vllm-full": ("all weights are sent, and the output head is tied", {**VLLM, "grpo.steps": 6}),
    "vllm-sampling-parameters": (
        "every parameter that vLLM has in common, replayed by the trainer",
        {
            **VLLM_LORA,
            "sampling.temperature": 0.8,
            "sampling.presence_penalty": 0.5,
            "sampling.frequency_penalty": 0.2,
            "sampling.min_new_tokens": 2,
            "sampling.top_k": 12,
            "sampling.top_p": 0.95,
            "sft.steps": 20,
        },
    ),
    "vllm-ahead": (
        "rollouts of the next step are sampled while a step trains",
        {**VLLM_AHEAD, "grpo.steps": 6},
    ),
    "vllm-sleep": ("the server sleeps while the trainer works", {**VLLM_LORA, "engine.sleep": True}),
    "mixture": ("a mixture of experts, along the routes that a vLLM server returns", MIXTURE),
    "mixture-local": ("a mixture of experts whose sampler returns no routes", {"model.name": "tiny-moe"}),
    "vllm-tools": ("several turns with tools, whose prefix the server caches", {**TOOLS, **VLLM_LORA}),
    "ranks": (
        "two processes, with a KL, and several optimizer steps a step",
        {**RANKS, "kl.coef": 0.05, "grpo.inner_epochs": 2, "grpo.minibatches": 2},
    ),
    "ranks-ppo": ("two processes, with a critic", {**RANKS, **PPO, "sft.steps": 20}),
    "ranks-adapter": (
        "two processes, with an adapter and a reference that is synced",
        {**RANKS, **LORA, "kl.coef": 0.05, "reference.sync_every": 2},
    ),
    "ranks-replicated": (
        "two processes with all weights each, and a gradient that is clipped",
        {**RANKS, "trainer.replicate": 2, "kl.coef": 0.05, "optimizer.max_grad_norm": 0.02},
    ),
    "ranks-offload": (
        "two processes that keep weights, gradients and moments in main memory, with a KL and minibatches",
        {**RANKS, "trainer.offload": True, "kl.coef": 0.05, "grpo.inner_epochs": 2, "grpo.minibatches": 2},
    ),
    "scaffolding-left-out": (
        "the scaffolding of calls is not trained",
        {**CALLS, "episode.mask": "no_structure"},
    ),
}
"""The resemblance of each, and its changes to the recipe; ``reward = "own"`` is the environment's reward."""

SEEDS = (0, 1)


def healthy_runs() -> dict[str, Fault]:
    """Return every run of the corpus, by name and seed."""
    runs = {}
    for name, (what, changes) in CORPUS.items():
        own = changes.get("reward") == "own"
        overrides = {key: value for key, value in changes.items() if key != "reward"}
        for seed in SEEDS:
            run = f"{name}-{seed}"
            runs[run] = Fault(
                name=run,
                numbers=(),
                what=what,
                plant=nullcontext,
                expected=(),
                changes={**overrides, "seed": seed},
                healthy=True,
                reward=None if own else random_reward,
            )
    return runs


def recipes() -> dict[str, str]:
    """Return the corpus as TOML by file name; another seed is ``seed=1`` on the command line."""
    runs = healthy_runs()
    return {
        f"{name}.toml": f"#:schema ../recipe.schema.json\n# {what}\n"
        + tomli_w.dumps(table_of(runs[f"{name}-0"]) | {"name": name})
        for name, (what, _) in CORPUS.items()
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in recipes().items():
        (folder / file).write_text(text, encoding="utf-8")
