"""Names of other trainers' numbers that are ours: the same quantity in the same unit.

``unused_columns.py`` has the known columns without a rule, each with the reason; all others are reported as
unknown.
"""

import difflib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from truing.metrics.aliases import ALIASES
from truing.metrics.definitions import METRICS, is_metric


@dataclass(frozen=True)
class Trainer:
    """A trainer, and its names of our metrics."""

    name: str  # of ``Setup.trainer``
    signature: frozenset[str]  # one of these identifies the trainer
    names: Mapping[str, str]  # theirs → ours
    abs_max_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Our metric that is the largest absolute value of several of theirs."""


GENERIC = {
    "reward": "reward/mean",
    "reward_mean": "reward/mean",
    "mean_reward": "reward/mean",
    "rewards/mean": "reward/mean",
    "reward_std": "reward/any_std",  # of all rewards, or the mean of the groups'
    "kl": "kl/any",
    "loss": "loss/total",
    "training loss": "loss/total",  # of the table in a notebook
    "grad_norm": "grad/norm",
    "learning_rate": "lr",
    "entropy": "entropy/mean",
    "completion_length": "length/mean",
    "response_length": "length/mean",
}
"""Common names in tables of reinforcement learning."""

HF = {
    "loss": "loss/total",
    "grad_norm": "grad/norm",  # of the last step since the last log, as is the rate
    "learning_rate": "lr",
}
"""Logged by transformers' Trainer for every loss."""

TRL = Trainer(
    "trl",
    frozenset(
        {"frac_reward_zero_std", "completions/mean_length", "clip_ratio/region_mean", "completion_length"}
    ),
    HF
    | {
        "reward": "reward/mean",
        "reward_std": "reward/any_std",  # before 0.27 the mean of the groups', since then of all rewards
        "frac_reward_zero_std": "group/zero_variance_share",  # see setup.py for `scale_rewards`
        "completions/mean_length": "length/mean",  # without the tokens of tools
        "completion_length": "length/mean",  # before 0.16
        "completions/clipped_ratio": "truncated/share",
        # of logits at the temperature of sampling, before any nucleus
        "entropy": "entropy/mean",
        "kl": "kl/any",  # k3 in GRPO and k1 in RLOO, which log the same names; see setup.py
        "sampling/sampling_logp_difference/mean": "mismatch/mean_abs",
        "sampling/sampling_logp_difference/max": "mismatch/max_abs",
    },
)

VERL = Trainer(
    "verl",
    frozenset({"actor/pg_loss", "actor/grad_norm", "critic/score/mean", "response_length/mean"}),
    {
        "critic/score/mean": "reward/mean",  # of rollouts with a token
        # tokens of a response; includes tool tokens if `num_turns/max` is above 2
        "response_length/mean": "length/mean",
        "response_length/max": "length/max",
        "response_length/clip_ratio": "truncated/share",  # counts answers of exactly the limit too
        "actor/entropy": "entropy/mean",  # per token if `loss_agg_mode` is; see setup.py
        "actor/grad_norm": "grad/norm",  # the mean over minibatches
        "actor/lr": "lr",
        "actor/ppo_kl": "ratio/k1",  # old - new, the mean over optimizer steps
        "critic/advantages/mean": "advantage/mean",
        "critic/returns/mean": "returns/mean",
        "critic/values/mean": "value/mean",
        "critic/vf_explained_var": "value/centred_explained_variance",
        # of the policy before the step; with bypass_mode of the policy in the step
        "rollout_corr/kl": "mismatch/k1",
        "rollout_corr/k3_kl": "mismatch/k3",
        "training/rollout_probs_diff_mean": "mismatch/probability",
    },
    {"advantage/max_abs": ("critic/advantages/max", "critic/advantages/min")},
)

OPENRLHF = Trainer(
    "openrlhf",
    frozenset({"rollout/reward_mean", "actor_lr", "ppo_clip_ratio"}),
    {
        "rollout/reward_mean": "reward/mean",
        "reward": "reward/mean",  # before 0.11: of the trained rollouts
        "rollout/reward_std": "reward/std",
        "rollout/response_length_mean": "length/mean",
        "response_length": "length/mean",
        "rollout/truncated_rate": "truncated/share",
        "truncated": "truncated/share",
        "actor_grad_norm": "grad/norm",  # 0 also if the engine reports none: no rule uses such a 0 alone
        "actor_lr": "lr",
        "ppo_clip_ratio": "clip/clipped_share",
        "vllm_kl": "mismatch/k1",
    },
)

TRANSFORMERS = Trainer("transformers", frozenset({"learning_rate", "grad_norm"}), HF)
"""Any other trainer based on transformers, such as supervised fine-tuning: its entropy is of given tokens."""

PLAIN = Trainer("plain", frozenset(), GENERIC)
"""Numbers with Truing's names, or common ones."""

TRAINERS = (VERL, OPENRLHF, TRL, TRANSFORMERS)

REWARDS = frozenset(name for name, ours in GENERIC.items() if ours == "reward/mean")
"""A table with one of these is not of supervised fine-tuning."""

PREFIX = "train/"
"""A tracker's prefix of training metrics; evaluations have another one."""


def without_prefix(name: str) -> str:
    """Return a trainer's own name from a tracker's."""
    return name.removeprefix(PREFIX)


def trainer_of(names: Set[str]) -> Trainer:
    """Return the trainer with these names."""
    trainer = next((each for each in TRAINERS if each.signature & names), PLAIN)
    return PLAIN if trainer is TRANSFORMERS and names & REWARDS else trainer


def ours_of(trainer: Trainer, name: str) -> str | None:
    """Return our name of their number; None without one."""
    if trainer is PLAIN and name.lower() in GENERIC:
        return GENERIC[name.lower()]
    if trainer is PLAIN and name in ALIASES:
        return ALIASES[name]
    return trainer.names.get(name) or (name if is_metric(name) else None)


MIN_SIMILARITY = 0.85
"""Of two spellings of one name: `rewards/mean` and `reward/mean` have 0.96, `reward/max` and it 0.76."""
COMPARED, LONGEST = 500, 100
"""Names that are compared, and their characters: each takes a millisecond."""


def close_names(unread: Sequence[str], read: Mapping[str, str]) -> dict[str, str]:
    """Return unknown names of a plain table, with our metric of a similar spelling.

    Args:
        unread: unknown names.
        read: theirs → ours; a metric already in use is not a suggestion.
    """
    spelt = {_letters(metric.name): metric.name for metric in METRICS if metric.name not in read.values()}
    close = {
        name: difflib.get_close_matches(_letters(name), spelt, n=1, cutoff=MIN_SIMILARITY)
        for name in unread[:COMPARED]
        if len(name) <= LONGEST
    }
    return {name: spelt[matches[0]] for name, matches in close.items() if matches}


def _letters(name: str) -> str:
    """Return a name without its separators."""
    return "".join(letter for letter in without_prefix(name).lower() if letter.isalnum())
