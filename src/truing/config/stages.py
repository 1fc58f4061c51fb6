"""The stages of a recipe: what each trains on, how its samples earn credit, and which policy loss it has."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt

ObjectiveName = Literal["grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo", "ppo", "reinforce"]


class SftConfig(FrozenModel):
    """Supervised fine-tuning on the demonstrations of the environment."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    batch_size: PositiveInt = 16
    """Demonstrations per update."""


class RftConfig(FrozenModel):
    """Rejection-sampling fine-tuning: the policy's own good answers become demonstrations."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    prompts_per_step: PositiveInt = 8
    """Prompts per update."""
    group_size: PositiveInt = 8
    """Answers drawn per prompt."""
    min_reward: float = 1.0
    """Answers with at least this reward are kept."""


class PolicyStage(FrozenModel):
    """What all stages with a policy loss have in common."""

    steps: PositiveInt
    """Updates."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    prompts_per_step: PositiveInt = 8
    """Prompts per update."""
    group_size: PositiveInt = 8
    """Answers drawn per prompt."""
    objective: ObjectiveName = "ppo"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The ratio is clipped below 1 − clip_low; the objective's own value where not given."""
    clip_high: PositiveFloat | None = None
    """The ratio is clipped above 1 + clip_high; the objective's own value where not given."""
    max_weight: Annotated[float, Field(gt=1)] | None = None
    """With `cispo`, the most that a token's ratio may weigh; the objective's own value where not given."""
    inner_epochs: PositiveInt = 1
    """Passes over the rollouts of a step."""
    minibatches: PositiveInt = 1
    """Updates per pass; each takes its share of the rollouts."""

    @model_validator(mode="after")
    def _clips(self) -> "PolicyStage":
        """Refuse a bound that the objective does not have, and a second update where it has no ratio."""
        if self.objective in ("cispo", "reinforce") and (self.clip_low, self.clip_high) != (None, None):
            raise ValueError(f"{self.objective} has no clip range: leave out clip_low and clip_high")
        if self.objective != "cispo" and self.max_weight is not None:
            raise ValueError(f"{self.objective} weighs no ratio: leave out max_weight, or take cispo")
        if self.objective == "reinforce" and self.inner_epochs * self.minibatches > 1:
            raise ValueError(
                "reinforce has no ratio, so it is right for one update per step: set inner_epochs and"
                " minibatches to 1, or take an objective that clips"
            )
        return self


class GrpoConfig(PolicyStage):
    """Group-relative policy optimisation, and its relatives by `objective`."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Answers drawn per prompt; they share a baseline, so there are at least two."""
    objective: ObjectiveName = "grpo"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """Standard deviation that the centred reward is divided by."""
    advantage_per: Literal["episode", "turn"] = "episode"
    """One advantage for all turns, or each turn's own, from what is earned from it on (`truing.PerTurn`)."""


class RlooConfig(PolicyStage):
    """REINFORCE, each answer against the mean of the others to its prompt."""

    group_size: Annotated[int, Field(ge=2)] = 4
    """Answers drawn per prompt; the others are the baseline, so there are at least two."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""


class PpoConfig(PolicyStage):
    """Proximal policy optimisation: a critic predicts what will be earned; the surplus is the advantage."""

    prompts_per_step: PositiveInt = 32
    """Prompts per update."""
    group_size: PositiveInt = 1
    """Answers drawn per prompt; they are not compared with each other."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per token that the policy chose."""
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Trace decay of generalised advantage estimation: 1 trusts what was earned, 0 the critic."""
    whiten: bool = True
    """Whether advantages are brought to mean 0 and deviation 1 over all trained tokens of the step."""
    truncation: Literal["bootstrap", "end"] = "bootstrap"
    """What a cut attempt is worth beyond its reward: what the critic expects from there, or nothing."""
    critic: Literal["head", "separate"] = "head"
    """A linear head on the policy's trunk; or on a trunk of its own (with `lora`, an adapter)."""
    value_coef: PositiveFloat = 0.1
    """Weight of the critic's squared error in the loss."""
    value_clip: PositiveFloat | None = None
    """Values are clipped to within so much (reward units) of those before the step; not where not given."""
    value_learning_rate: PositiveFloat = 3e-4
    """Peak learning rate of the critic's own weights."""


class ReinforceConfig(PolicyStage):
    """REINFORCE: each token is pulled by what was earned from it on."""

    group_size: PositiveInt = 1
    """Answers drawn per prompt; they are not compared with each other."""
    objective: ObjectiveName = "reinforce"
    """Surrogate, ratio level and aggregation, as named in the table of ops/losses.py."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per token that the policy chose."""
    baseline: Literal["step", "none"] = "step"
    """Subtracted from every return: the mean reward of the step's other rollouts, or nothing."""
    whiten: bool = False
    """Whether advantages are brought to mean 0 and deviation 1 over all trained tokens of the step."""

    @model_validator(mode="after")
    def _others(self) -> "ReinforceConfig":
        """Refuse a baseline of others where there are none."""
        if self.baseline == "step" and self.prompts_per_step * self.group_size == 1:
            raise ValueError(
                'baseline = "step" compares with other attempts, and there is one: draw more, or "none"'
            )
        return self
