"""The stages of a recipe: the data, advantages and policy loss of each algorithm."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt, Size

ObjectiveName = Literal["grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo", "ppo", "reinforce"]


class SftConfig(FrozenModel):
    """Supervised fine-tuning on the demonstrations of the environment."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    batch_size: Size = 16
    """Demonstrations per update."""
    eval_tasks: Annotated[int, Field(ge=0)] = 0
    """Evaluation tasks, from the first, whose demonstrations the loss is also measured on; 0 for none."""
    eval_every: Annotated[int, Field(ge=0)] = 0
    """Updates between these measurements; 0 for those before (`eval.base`) and after the stage."""


class RftConfig(FrozenModel):
    """Rejection-sampling fine-tuning: the policy's own good answers become demonstrations."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    prompts_per_step: Size = 8
    """Prompts per update."""
    group_size: Size = 8
    """Answers sampled per prompt."""
    min_reward: float = 1.0
    """Answers with at least this reward are kept."""


class PolicyStage(FrozenModel):
    """Keys of all stages with a policy loss."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    prompts_per_step: Size = 8
    """Prompts per update."""
    group_size: Size = 8
    """Answers sampled per prompt."""
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
    """Updates per pass; each takes its share of the rollouts."""

    @model_validator(mode="after")
    def _check_clip(self) -> "PolicyStage":
        """Refuse a bound that the objective does not have, and a second update where it has no ratio."""
        if self.objective in ("cispo", "reinforce") and (self.clip_low, self.clip_high) != (None, None):
            raise ValueError(
                f'objective = "{self.objective}" has no clip range: leave out clip_low and clip_high'
            )
        if self.objective != "cispo" and self.max_weight is not None:
            raise ValueError(
                f'objective = "{self.objective}" weighs no ratio: leave out max_weight, or set objective to'
                " cispo"
            )
        if self.objective == "reinforce" and self.inner_epochs * self.minibatches > 1:
            raise ValueError(
                'objective = "reinforce" has no ratio, so it allows one update per step: set inner_epochs ='
                f" {self.inner_epochs} and minibatches = {self.minibatches} to 1, or objective to one with a"
                ' ratio, such as "grpo"'
            )
        return self


class GrpoConfig(PolicyStage):
    """Group-relative policy optimization, and its variants by `objective`."""

    group_size: Annotated[Size, Field(ge=2)] = 8
    """Answers sampled per prompt; they share a baseline, so there are at least two."""
    objective: ObjectiveName = "grpo"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """Standard deviation that the centered reward is divided by."""
    advantage_per: Literal["episode", "turn"] = "episode"
    """One advantage for all turns, or one per turn, of its and later rewards (`truing.PerTurn`)."""


class RlooConfig(PolicyStage):
    """REINFORCE leave-one-out: the baseline is the mean reward of the prompt's other answers."""

    group_size: Annotated[Size, Field(ge=2)] = 4
    """Answers sampled per prompt; the others are the baseline, so there are at least two."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""


class PpoConfig(PolicyStage):
    """Proximal policy optimization: advantages by generalized advantage estimation, with a critic."""

    prompts_per_step: Size = 32
    """Prompts per update."""
    group_size: Size = 1
    """Answers sampled per prompt; they are not compared with each other."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per SAMPLED token."""
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Trace decay of generalized advantage estimation: 1 relies on rewards alone, 0 on the critic."""
    whiten: bool = True
    """Whether advantages are scaled to mean 0 and deviation 1 over the step's trained tokens."""
    truncation: Literal["bootstrap", "end"] = "bootstrap"
    """Value after a truncated attempt: the critic's prediction, or 0."""
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
    """Answers sampled per prompt; they are not compared with each other."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per SAMPLED token."""
    baseline: Literal["step", "none"] = "step"
    """Subtracted from every return: the mean reward of the step's other rollouts, or nothing."""
    whiten: bool = False
    """Whether advantages are scaled to mean 0 and deviation 1 over the step's trained tokens."""

    @model_validator(mode="after")
    def _check_baseline(self) -> "ReinforceConfig":
        """Refuse a baseline of other attempts where there is only one."""
        if self.baseline == "step" and self.prompts_per_step * self.group_size == 1:
            raise ValueError(
                'baseline = "step" needs other attempts, and there is one: sample more, or set "none"'
            )
        return self
