"""The stages of a recipe: the data, advantages and policy loss of each algorithm."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt, Size

ObjectiveName = Literal["grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo", "ppo", "reinforce"]

LEARNING_RATES = {"supervised": (2e-5, 2e-4), "policy": (1e-6, 4e-5)}
"""Default learning rates, of all weights and of an adapter.

All weights: 2e-5 is TRL's SFTConfig; 1e-6 is DeepSeekMath's (2402.03300, section 4.2), TRL's GRPOConfig and
verl's actor. An adapter takes about ten times the rate of all weights, at any rank (Schulman et al., "LoRA
Without Regret", 2025): 2e-4 is also QLoRA's (2305.14314, table 9); 4e-5 is Tinker Cookbook's GRPO on GSM8K.
"""


def default_learning_rate(stage: str, lora: bool) -> float:
    """Return the learning rate of a stage whose recipe gives none."""
    return LEARNING_RATES["supervised" if stage in ("sft", "rft") else "policy"][lora]


class SftConfig(FrozenModel):
    """Supervised fine-tuning on the demonstrations of the environment."""

    steps: PositiveInt = 100
    """Steps; 100 is ours, for a first look."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate; if not given, 2e-4 with LoRA (QLoRA), 2e-5 without (TRL)."""
    batch_size: Size = 16
    """Demonstrations per step; 16 is QLoRA's (2305.14314, table 9)."""
    eval_tasks: Annotated[int, Field(ge=0)] = 0
    """Evaluation tasks, from the first, whose demonstrations the loss is also measured on; 0 for none."""
    eval_every: Annotated[int, Field(ge=0)] = 0
    """Steps between these measurements; 0 for those before (`eval.base`) and after the stage."""


class RftConfig(FrozenModel):
    """Rejection-sampling fine-tuning: the policy's own good rollouts become demonstrations."""

    steps: PositiveInt = 100
    """Steps; 100 is ours, for a first look."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate; if not given, 2e-4 with LoRA (QLoRA), 2e-5 without (TRL)."""
    prompts_per_step: Size = 8
    """Prompts per step; 8 is ours."""
    group_size: Size = 8
    """Rollouts sampled per prompt; 8 is ours."""
    min_reward: float = 1.0
    """Rollouts with at least this reward are kept."""


class PolicyStage(FrozenModel):
    """Keys of all stages with a policy loss."""

    steps: PositiveInt = 100
    """Steps; 100 is about verl's example on GSM8K: 15 epochs of 7 steps."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate; if not given, 4e-5 with LoRA (Tinker), 1e-6 without (DeepSeekMath, TRL, verl)."""
    prompts_per_step: Size = 8
    """Prompts per step; 8 is ours, for one small machine: papers use 16 (DeepSeekMath) to 512 (DAPO)."""
    group_size: Size = 8
    """Rollouts sampled per prompt."""
    objective: ObjectiveName = "ppo"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The ratio is clipped below 1 − clip_low; the objective's default if not given."""
    clip_high: PositiveFloat | None = None
    """The ratio is clipped above 1 + clip_high; the objective's default if not given."""
    max_weight: Annotated[float, Field(gt=1)] | None = None
    """With `cispo`, the largest weight of a token's ratio; the objective's default if not given."""
    inner_epochs: Size = 1
    """Passes over the rollouts of a step."""
    minibatches: Size = 1
    """Optimizer steps per pass; each takes its share of the rollouts."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a bound that the objective does not have, and a second optimizer step without a ratio."""
        if self.objective in ("cispo", "reinforce") and (self.clip_low, self.clip_high) != (None, None):
            yield f'objective = "{self.objective}" has no clip range: leave out clip_low and clip_high'
        if self.objective != "cispo" and self.max_weight is not None:
            yield (
                f'objective = "{self.objective}" weighs no ratio: leave out max_weight, or set objective to'
                " cispo"
            )
        if self.objective == "reinforce" and self.inner_epochs * self.minibatches > 1:
            yield (
                'objective = "reinforce" has no ratio, so it allows one optimizer step per step: set'
                " inner_epochs ="
                f" {self.inner_epochs} and minibatches = {self.minibatches} to 1, or objective to one with a"
                ' ratio, such as "grpo"'
            )


class GrpoConfig(PolicyStage):
    """Group-relative policy optimization, and its variants by `objective`."""

    group_size: Annotated[Size, Field(ge=2)] = 8
    """Rollouts sampled per prompt, at least two: they share a baseline. 8 is TRL's; DeepSeekMath has 64."""
    objective: ObjectiveName = "grpo"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """Standard deviation that the centered reward is divided by."""
    advantage_per: Literal["episode", "turn"] = "episode"
    """One advantage for all turns, or one per turn, of its and later rewards (`truing.PerTurn`)."""


class RlooConfig(PolicyStage):
    """REINFORCE leave-one-out: the baseline is the mean reward of the prompt's other rollouts."""

    group_size: Annotated[Size, Field(ge=2)] = 4
    """Rollouts sampled per prompt, at least two: the others are the baseline. 4 as in 2402.14740."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""


class PpoConfig(PolicyStage):
    """Proximal policy optimization: advantages by generalized advantage estimation, with a critic."""

    prompts_per_step: Size = 32
    """Prompts per step."""
    group_size: Size = 1
    """Rollouts sampled per prompt; they are not compared with each other."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per SAMPLED token."""
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Trace decay of generalized advantage estimation: 1 relies on rewards alone, 0 on the critic."""
    whiten: bool = True
    """Whether advantages are scaled to mean 0 and deviation 1 over the step's trained tokens."""
    truncation: Literal["bootstrap", "end"] = "bootstrap"
    """Value after a truncated rollout: the critic's prediction, or 0."""
    critic: Literal["head", "separate"] = "head"
    """A linear head on the policy's trunk; or on a separate trunk (with `lora`, an adapter)."""
    value_coef: PositiveFloat = 0.1
    """Weight of the critic's squared error in the loss."""
    value_clip: PositiveFloat | None = None
    """Values are clipped to this distance (reward units) from those before the step; without it, no clip."""
    value_learning_rate: PositiveFloat = 3e-4
    """Peak learning rate of the critic's own weights."""


class ReinforceConfig(PolicyStage):
    """REINFORCE: the advantage of a token is the return that follows it, less a baseline."""

    group_size: Size = 1
    """Rollouts sampled per prompt; they are not compared with each other."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per SAMPLED token."""
    baseline: Literal["step", "none"] = "step"
    """Subtracted from every return: the mean reward of the step's other rollouts, or nothing."""
    whiten: bool = False
    """Whether advantages are scaled to mean 0 and deviation 1 over the step's trained tokens."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a baseline of other rollouts where there is only one."""
        yield from super().contradictions()
        if self.baseline == "step" and self.prompts_per_step * self.group_size == 1:
            yield 'baseline = "step" needs other rollouts, and there is one: sample more, or set "none"'
