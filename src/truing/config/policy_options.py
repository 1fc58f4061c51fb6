"""Tables that all stages with a policy loss share: KL, gates, correction, reference, entropy, guard."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt, Size


class KlConfig(FrozenModel):
    """Distance from the reference, as a term of the loss or a part of the reward."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL to the reference; 0 needs no reference."""
    where: Literal["loss", "reward"] = "loss"
    """A term of the loss; or subtracted from each token's reward, detached, before any normalization."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """The gradient of KL(policy ‖ reference): k2 has it in the loss (k1 has none), k1 in the reward."""
    target: PositiveFloat | None = None
    """Nats per token (`kl_all/k3`) to which `coef` adapts by step; without it `coef` is constant."""
    horizon: PositiveInt = 10_000
    """Rollouts over which `coef` changes by at most a fifth toward the target."""

    cap: PositiveFloat | None = None
    """Nats per token (k3, computed samples) above which optimizer steps are skipped; without it, no cap."""
    cap_action: Literal["stop_epochs", "skip", "rollback", "stop"] = "stop_epochs"
    """Above `cap`: skip later optimizer steps, or this one too; roll back (`[guard]`); end the run."""

    @property
    def needs_reference(self) -> bool:
        """Whether any option needs the reference model."""
        return self.coef > 0 or self.cap is not None

    def contradictions(self) -> Iterator[str]:
        """Refuse an estimator without a gradient, and a weight that cannot grow."""
        if self.where == "loss" and self.estimator == "k1":
            yield 'k1 in the loss has mean gradient 0: set kl.estimator to k2, or kl.where to "reward"'
        if self.target is not None and self.coef == 0:
            yield "kl.target multiplies kl.coef, and 0 stays 0: set kl.coef above 0"


class GatesConfig(FrozenModel):
    """Conditions that a token, a rollout, a group or a step must meet to be trained on."""

    min_ratio: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Tokens with a smaller ratio to the policy that sampled them are left out of the policy term."""
    max_ratio: Annotated[float, Field(gt=1)] | None = None
    """Tokens with a larger ratio are left out of the policy term."""
    min_trained_tokens: Annotated[int, Field(ge=0)] = 0
    """A step with fewer tokens under the policy term trains nothing."""
    min_trained_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A step with a smaller share of SAMPLED and FORCED tokens under the policy term trains nothing."""
    equal_groups: Literal["count", "drop", "resample"] = "count"
    """Groups of equal task reward: counted in denominators, dropped, or replaced by other prompts'."""
    max_resample: PositiveInt = 3
    """How often a step samples other prompts to replace groups of equal reward."""
    truncated: Literal["keep", "mask", "penalize"] = "keep"
    """Truncated rollouts: trained on as graded, left out of the policy term, or with a lower reward."""
    truncated_penalty: PositiveFloat = 1.0
    """What `penalize` subtracts from the reward of a truncated rollout."""
    overlong_tokens: Annotated[int, Field(ge=0)] = 0
    """Last tokens before `sampling.max_new_tokens` over which the penalty of a long turn rises; 0 is off."""
    overlong_penalty: PositiveFloat = 1.0
    """The penalty of the longest possible turn, reward units."""


class CorrectionConfig(FrozenModel):
    """Off-policy correction: constant weights by old / sampler probability."""

    method: Literal["off", "truncate", "mask", "sequence", "sequence_truncate", "sequence_mask"] = "off"
    """Cap a token's weight, drop tokens, drop answers by their mean, cap or drop by an answer's product."""
    low: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """The smallest ratio kept."""
    high: Annotated[float, Field(gt=1)] = 2.0
    """The largest ratio."""


class ReferenceConfig(FrozenModel):
    """The reference model of the KL: the policy at the start of the stage, synced if `sync_every` is set."""

    sync_every: Annotated[int, Field(ge=0)] = 0
    """Steps between syncs with the policy; 0 keeps the reference frozen."""
    keep: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the old reference that a sync keeps: 0 copies the policy, 0.99 moves 1 % of the way."""


class EntropyConfig(FrozenModel):
    """A bonus for the entropy of the sampling distribution."""

    coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the bonus: the loss is reduced by weight times entropy."""
    target: PositiveFloat | None = None
    """Nats per token (`entropy/mean`) to which `coef` adapts by step; without it `coef` is constant."""
    step: PositiveFloat = 0.005
    """Change of `coef` per step: up below the target, down above it."""

    @property
    def active(self) -> bool:
        """Whether some step may have a bonus."""
        return self.coef > 0 or self.target is not None


class BootstrapConfig(FrozenModel):
    """Also trains on demonstrations in the first steps, for a policy that gets little reward yet."""

    steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the weight falls linearly to 0; 0 is off."""
    coef: PositiveFloat = 1.0
    """Weight of the demonstrations' cross-entropy in the first step."""
    batch_size: Size = 8
    """Demonstrations per step."""


class GuardConfig(FrozenModel):
    """Rolls an unstable stage back to its last good checkpoint and changes options; `false` is off."""

    rollbacks: PositiveInt = 3
    """Rollbacks per stage; after them the run ends with a report (`guard.md`)."""
    window: PositiveInt = 3
    """Steps to average over; a checkpoint is good once as many steps have followed it."""
    reward_drop: PositiveFloat | None = None
    """Rolls back if the mean reward is this far below the stage's first step, or its best window."""
    entropy_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Rolls back below this multiple of the entropy (`entropy/sampled`) of the stage's first step."""
    entropy_high: Annotated[float, Field(gt=1)] | None = None
    """Rolls back above this multiple of it."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Factor on the learning rates at each rollback."""
    change: tuple[str, ...] = ()
    """Overrides after a rollback, as on the command line: `kl.cap=10`, `gates.max_ratio=` for none."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a rollback that changes nothing."""
        if self.learning_rate == 1 and not self.change:
            yield "a rollback would repeat the same steps: set guard.learning_rate below 1, or guard.change"
