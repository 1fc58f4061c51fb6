"""rl-doctor: nine detectors over logged curves."""

from typing import Any

from truing.faults.peers.curves import curves, renamed
from truing.faults.peers.peer import Peer
from truing.faults.peers.recorded import RecordedStage

NAMES = {
    "reward": "reward/mean",
    "reward_std": "reward/std",
    "critic/score/min": "reward/min",
    "critic/score/max": "reward/max",
    "frac_reward_zero_std": "group/zero_variance_share",
    "critic/advantages/mean": "advantage/mean",
    "critic/advantages/std": "advantage/std",
    "entropy": "entropy",
    "kl": "kl_trained/k3",
    "clip_ratio/region_mean": "clip/clipped_share",
    "clip_ratio/low_mean": "clip/low_share",
    "clip_ratio/high_mean": "clip/high_share",
    "grad_norm": "grad/norm",
    "learning_rate": "lr",
    "loss": "loss/total",
    "completions/mean_length": "length/mean",
    "completions/max_length": "length/max",
    "completions/clipped_ratio": "truncated/share",
    "critic/vf_explained_var": "value/explained_variance",
    "throughput": "throughput/tokens_per_s",
    "step_time": "seconds",
}
"""TRL's names, and verl's for others."""


def feed(run: RecordedStage) -> dict[str, Any]:
    """Return a log with settings of its recipe, as one JSON file."""
    declared = run.recipe[run.stage]
    config = {
        "algorithm": run.stage,
        "num_generations": declared.get("group_size"),
        "max_completion_length": run.recipe["sampling"]["max_new_tokens"],
        "learning_rate": declared["learning_rate"],
        "max_steps": declared["steps"],
    }
    return {"config": config, "history": renamed(curves(run), NAMES)}


PEER = Peer(
    "rldoctor",
    "a JSON log under the names of TRL and verl that its alias table has, and the recipe's group size, length"
    " limit, rate and steps; `rl_doctor.diagnose`",
    feed,
    cause_findings=("reward_hacking",),
)
