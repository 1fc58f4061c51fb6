"""The whole recipe."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from truing.config.doctor import DoctorConfig
from truing.config.policy_options import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    GuardConfig,
    KlConfig,
    ReferenceConfig,
)
from truing.config.sections import (
    ChatConfig,
    EpisodeConfig,
    EvalConfig,
    FrozenModel,
    LoraConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
)
from truing.config.stages import (
    GrpoConfig,
    PolicyStage,
    PpoConfig,
    ReinforceConfig,
    RftConfig,
    RlooConfig,
    SftConfig,
)
from truing.config.trackers import AlertsConfig, TrackConfig

Stage = Literal["sft", "rft", "reinforce", "rloo", "grpo", "ppo"]


class Recipe(FrozenModel):
    """Everything that decides a run."""

    name: str
    """What the run is called; part of its directory's name."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    """What is trained, in order; each stage has its table below."""
    model: ModelConfig
    seed: int = 0
    """Every random number derives from it."""
    env: dict[str, Any] = Field(default_factory=dict)
    """`name` of the environment, and its own keys; not needed where Python gives an environment object."""
    lora: LoraConfig | Literal[False] = False
    """An adapter, or `false` to train every weight."""
    sampling: SamplingConfig = SamplingConfig()
    chat: ChatConfig = ChatConfig()
    episode: EpisodeConfig = EpisodeConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    eval: EvalConfig = EvalConfig()
    sft: SftConfig | None = None
    rft: RftConfig | None = None
    reinforce: ReinforceConfig | None = None
    rloo: RlooConfig | None = None
    grpo: GrpoConfig | None = None
    ppo: PpoConfig | None = None
    kl: KlConfig = KlConfig()
    reference: ReferenceConfig = ReferenceConfig()
    entropy: EntropyConfig = EntropyConfig()
    bootstrap: BootstrapConfig = BootstrapConfig()
    gates: GatesConfig = GatesConfig()
    correction: CorrectionConfig = CorrectionConfig()
    guard: GuardConfig | Literal[False] = False
    """What to do where a stage becomes unstable; `false` ends the run at a loss that is not finite."""
    track: TrackConfig = TrackConfig()
    alerts: AlertsConfig = AlertsConfig()
    doctor: DoctorConfig = DoctorConfig()
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints, of which a stage keeps the newest; 0 writes one at the end of each stage."""

    @model_validator(mode="after")
    def _groups(self) -> "Recipe":
        """Refuse to leave out groups that something has use for."""
        if self.gates.equal_groups == "count":
            return self
        for stage in ("reinforce", "ppo"):
            if stage in self.stages:
                raise ValueError(
                    f"{stage} learns from groups of equal reward too: gates.equal_groups must be count"
                )
        reasons = {
            "kl.coef": self.kl.coef > 0,
            "entropy": self.entropy.active,
            'gates.truncated = "penalize"': self.gates.truncated == "penalize",
            'grpo.advantage_per = "turn"': self.grpo is not None and self.grpo.advantage_per == "turn",
        }
        for name, active in reasons.items():
            if active:
                raise ValueError(
                    f"with {name} a group whose attempts earned the same still teaches: gates.equal_groups"
                    " must be count"
                )
        return self

    @model_validator(mode="after")
    def _guarded(self) -> "Recipe":
        """Refuse to roll back without saying how."""
        if self.kl.cap_action == "rollback" and not self.guard:
            raise ValueError('kl.cap_action = "rollback" needs a [guard] that says how')
        return self

    @model_validator(mode="after")
    def _used(self) -> "Recipe":
        """Refuse what would have no effect, or not the one it says."""
        if self.reference.sync_every and not self.kl.needs_reference:
            raise ValueError("reference.sync_every has nothing to sync: set kl.coef or kl.cap")
        if self.reference.keep and not self.reference.sync_every:
            raise ValueError("reference.keep is of a sync, and there is none: set reference.sync_every")
        if self.kl.cap_action == "rollback" and self.kl.cap is None:
            raise ValueError("kl.cap_action is of kl.cap, which is not given")
        for name in self.stages:
            stage = getattr(self, name)
            drawn = stage.prompts_per_step * stage.group_size if isinstance(stage, PolicyStage) else 0
            if self.kl.target is not None and self.kl.horizon <= 0.2 * drawn:
                raise ValueError(
                    f"with kl.horizon = {self.kl.horizon} one step of {drawn} rollouts could bring kl.coef"
                    f" to 0, and 0 stays 0: take more than {0.2 * drawn:g}"
                )
        if self.gates.overlong_tokens > self.sampling.max_new_tokens:
            raise ValueError(
                f"gates.overlong_tokens = {self.gates.overlong_tokens} is more than a turn may have:"
                f" sampling.max_new_tokens = {self.sampling.max_new_tokens}"
            )
        return self

    def stage(self, name: str) -> Any:
        """The table of a stage."""
        return getattr(self, name)
