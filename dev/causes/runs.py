"""Runs with a known cause, all from one policy that was trained on demonstrations before."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dev.causes import rewards
from truing.doctor.causes.cause import State
from truing.rewards import RewardFn

BASE: Mapping[str, Any] = {
    "name": "cause",
    "stages": ["grpo"],
    "model": {"device": "cpu", "threads": 1},
    "env": {"name": "arithmetic", "kinds": ["first-3", "count-5"], "system": "", "train": 400, "eval": 100},
    "sampling": {"max_new_tokens": 4},
    "grpo": {"steps": 24, "prompts_per_step": 8, "group_size": 8, "learning_rate": 1e-3},
    "eval": {"tasks": 100, "temperature": 1.0},
}

WARM_START: Mapping[str, Any] = {
    **BASE,
    "name": "warm-start",
    "stages": ["sft"],
    "model": {"name": "tiny", "device": "cpu", "threads": 1},
    "sft": {"steps": 125, "batch_size": 32, "learning_rate": 3e-3},
}
"""Trains the policy that each run starts from."""


@dataclass(frozen=True)
class KnownCause:
    """A run, and its cause."""

    name: str
    what: str
    causes: tuple[str, ...]  # the first answer is one of them: a cause, or a rule; empty if the run learns
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the recipe, by dotted key
    paid_by: tuple[RewardFn, ...] = ()  # without one the environment's own rewards
    fault: str = ""  # of dev/faults/planted
    state: State = "found"  # of the first answer


LONG = {"env.kinds": ["first-3"], "grpo.steps": 80, "grpo.prompts_per_step": 16}
"""Enough steps to learn the easier kind of tasks."""


def _ppo(**keys: Any) -> dict[str, Any]:
    table = {"steps": 20, "prompts_per_step": 32, "learning_rate": 1e-3} | keys
    return {"stages": ["ppo"]} | {f"ppo.{name}": value for name, value in table.items()}


RUNS: tuple[KnownCause, ...] = (
    KnownCause("learns", "healthy", (), LONG),
    KnownCause(
        "ratios-one",
        "healthy: with one optimizer step per step each ratio is 1",
        (),
        LONG | {"grpo.objective": "dapo"},
    ),
    KnownCause(
        "ppo-learns", "healthy, by PPO", (), _ppo(steps=80, prompts_per_step=128) | {"env.kinds": ["first-3"]}
    ),
    KnownCause(
        "old-recomputed",
        "old log-probabilities are computed anew before each optimizer step",
        ("RAT003", "RAT007"),
        {"grpo.inner_epochs": 4},
        fault="old-recomputed",
    ),
    KnownCause(
        "adapter-not-synced",
        "half of the adapter never reaches the sampler",
        ("SMP003", "SMP004"),
        {"lora.rank": 8, "grpo.learning_rate": 1e-2},
        fault="half-synced",
    ),
    KnownCause(
        "penalty-on-prompt",
        "penalties count the prompt",
        ("SMP005", "RAT002"),
        {"sampling.presence_penalty": 0.3},
        fault="penalty-on-prompt",
    ),
    KnownCause(
        "entropy-sign",
        "the entropy bonus has the wrong sign",
        ("MSK003", "OPT006"),
        {"entropy.coef": 0.01},
        fault="entropy-sign",
    ),
    KnownCause(
        "rate-too-high", "thirty times a useful rate", ("steps_too_large",), {"grpo.learning_rate": 3e-2}
    ),
    KnownCause(
        "ppo-worse", "PPO loses what the policy could", ("steps_too_large",), _ppo(learning_rate=2e-2)
    ),
    KnownCause(
        "rate-too-low",
        "a ten-thousandth of a useful rate",
        ("steps_too_small",),
        {"grpo.learning_rate": 1e-7},
    ),
    KnownCause(
        "empty-pays",
        "an empty answer is paid more than most",
        ("short_answers",),
        LONG,
        (rewards.empty_pays,),
    ),
    KnownCause("all-zero", "each reward is 0", ("answers_unpaid",), paid_by=(rewards.nothing,)),
    KnownCause(
        "judge-dead", "the judge of one family returns 0", ("family_unpaid",), paid_by=(rewards.one_family,)
    ),
    KnownCause(
        "by-task", "the reward does not read the answer", ("answer_unread",), paid_by=(rewards.by_task,)
    ),
    KnownCause(
        "tiny-differences",
        "rewards of a group differ by 3e-4",
        ("rewards_nearly_equal",),
        paid_by=(rewards.tiny_differences,),
    ),
    KnownCause(
        "stop-banned",
        "the stop is banned for longer than answers are",
        ("stop_banned",),
        {"sampling.min_new_tokens": 3},
    ),
    KnownCause(
        "nothing-kept",
        "rejection sampling asks for more than any answer earns",
        ("rollouts_kept",),
        {"stages": ["rft"], "rft.steps": 12, "rft.min_reward": 1.5},
    ),
    KnownCause(
        "all-kept",
        "rejection sampling keeps every answer",
        ("rollouts_kept",),
        {"stages": ["rft"], "rft.steps": 12, "rft.min_reward": 0.0, "rft.learning_rate": 1e-3},
        state="open",
    ),
    KnownCause(
        "cut",
        "right answers have eight tokens, and are cut after four",
        ("answers_cut",),
        {
            "stages": ["sft", "grpo"],
            "env.kinds": ["reverse-4"],
            "sft.steps": 60,
            "sft.learning_rate": 3e-3,
        },
    ),
    KnownCause(
        "cap",
        "a cap on the KL skips most optimizer steps",
        ("steps_skipped",),
        {
            "kl.coef": 0.001,
            "kl.cap": 1e-3,
            "kl.cap_action": "skip",
            "grpo.learning_rate": 3e-3,
            "doctor.stop": False,
        },
    ),
    KnownCause(
        "gate",
        "a gate asks for more tokens than there are",
        ("steps_skipped",),
        {"gates.min_trained_tokens": 100_000, "doctor.stop": False},
    ),
    KnownCause("warm-up", "the run ends in its warm-up", ("warm_up",), {"optimizer.warmup_steps": 2000}),
    KnownCause(
        "too-hard", "tasks that the policy never solves", ("tasks_too_hard",), {"env.kinds": ["missing-2"]}
    ),
    KnownCause(
        "certain",
        "at a low temperature each task has one answer",
        ("rollouts_alike",),
        {"sampling.temperature": 0.05},
    ),
    KnownCause("kl-holds", "the KL term holds the policy at its reference", ("kl_holds",), {"kl.coef": 50.0}),
    KnownCause(
        "gamed",
        "the reward pays for a nine, right or wrong, and a second grader does not",
        ("reward_hacked",),
        LONG | {"eval.grader": "dev.causes.rewards:exact"},
        (rewards.paid_for_nine,),
    ),
    KnownCause(
        "part-falls",
        "a nine is paid as much as the right answer",
        ("part_falls",),
        LONG,
        (rewards.exact, rewards.has_nine),
    ),
    KnownCause(
        "entropy-bonus",
        "an entropy bonus that outweighs the reward",
        ("entropy_bonus",),
        {"entropy.coef": 1.0},
    ),
    KnownCause(
        "weight-decay", "a decay of 5 % in a step", ("weight_decay",), {"optimizer.weight_decay": 50.0}
    ),
    KnownCause("hot", "rollouts at temperature 3", ("temperature_high",), {"sampling.temperature": 3.0}),
    KnownCause(
        "few-tasks",
        "the same four tasks in each step",
        ("tasks_memorised",),
        {"env.train": 4, "grpo.steps": 60, "grpo.prompts_per_step": 16},
    ),
    KnownCause("top-1", "each draw is the likeliest token", ("rollouts_alike",), {"sampling.top_k": 1}),
    KnownCause(
        "judge-random", "a judge that decides by chance", ("reward_inexact",), paid_by=(rewards.by_chance,)
    ),
    KnownCause(
        "critic-still",
        "a critic that does not train",
        ("critic_useless",),
        _ppo(value_learning_rate=1e-12, steps=40),
    ),
    KnownCause("discount", "a discount of 0.05 per token", ("discount",), _ppo(gamma=0.05)),
    KnownCause(
        "overlong",
        "a penalty on length that is eight times the reward",
        ("penalty_outweighs",),
        {"gates.overlong_tokens": 4, "gates.overlong_penalty": 8.0},
    ),
    KnownCause(
        "tight-clip",
        "a clip range of 1e-4",
        ("clip_narrow",),
        {"grpo.clip_low": 1e-4, "grpo.clip_high": 1e-4, "grpo.minibatches": 8, "grpo.learning_rate": 3e-5},
        state="open",
    ),
    KnownCause(
        "no-baseline",
        "rewards of 5 and 6 without a baseline",
        ("no_baseline",),
        {"stages": ["reinforce"]}
        | {"reinforce.baseline": "none", "reinforce.steps": 24, "reinforce.prompts_per_step": 64}
        | {"reinforce.learning_rate": 1e-3},
        (rewards.five_more,),
    ),
    KnownCause(
        "mislabelled",
        "the answers of six tasks in ten are wrong",
        ("demonstrations_unpaid",),
        paid_by=(rewards.mostly_mislabelled,),
    ),
    KnownCause("few-steps", "four steps", ("too_few_rollouts",), {"grpo.steps": 4}),
    KnownCause(
        "noisy",
        "a step has two rollouts",
        ("too_few_rollouts",),
        {"grpo.prompts_per_step": 1, "grpo.group_size": 2},
    ),
    KnownCause("eps", "an eps of 1 in AdamW", ("eps_large",), {"optimizer.eps": 1.0}),
    KnownCause(
        "one-layer",
        "an adapter of rank 1 on one kind of layers",
        ("adapter_small",),
        {"lora.targets": ["k_proj"], "lora.rank": 1},
        state="open",
    ),
    KnownCause(
        "ratio-gate",
        "a gate on ratios leaves out most tokens",
        ("gate_leaves_out",),
        {"gates.min_ratio": 0.999, "gates.max_ratio": 1.001, "grpo.minibatches": 8},
    ),
    KnownCause(
        "epochs",
        "sixteen optimizer steps on the same rollouts, and no clip",
        ("too_many_epochs",),
        {"grpo.inner_epochs": 16, "grpo.clip_low": 0.99, "grpo.clip_high": 10.0},
    ),
    KnownCause(
        "forced",
        "each answer begins with a forced digit",
        ("rollouts_forced",),
        {"env.kinds": ["first-3"], "episode.forced_prefix": "0", "episode.force_rate": 1.0},
    ),
    KnownCause(
        "lam-0",
        "λ is 0, and the critic does not train",
        ("critic_useless",),
        _ppo(lam=0.0, value_learning_rate=1e-9, steps=40),
    ),
    KnownCause(
        "one-answer",
        "most tasks have one answer, and the policy gives it to all",
        ("one_answer",),
        {"env.kinds": ["count-5"], "grpo.steps": 40, "grpo.prompts_per_step": 16},
    ),
    KnownCause(
        "guard",
        "a guard that takes chance for a fall",
        ("rolled_back",),
        {"guard.reward_drop": 0.02, "guard.window": 1, "guard.rollbacks": 8},
    ),
)
