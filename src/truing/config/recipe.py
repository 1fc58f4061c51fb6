"""The whole recipe."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from truing.config.doctor import DoctorConfig
from truing.config.engine import EngineConfig
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
    PositiveInt,
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
from truing.config.trainer import TrainerConfig
from truing.utils.file_names import is_file_name

Stage = Literal["sft", "rft", "reinforce", "rloo", "grpo", "ppo"]


class Recipe(FrozenModel):
    """The name, stages and seed of a run, and its other tables."""

    name: str
    """Name of the run; part of its directory's name."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    """Training stages, in order; each has its table below."""
    model: ModelConfig
    seed: int = 0
    """Every random number derives from it."""
    env: dict[str, Any] = Field(default_factory=dict)
    """`name` of the environment, and its own keys; not needed where Python passes an environment object."""
    lora: LoraConfig | Literal[False] = False
    """An adapter, or `false` to train all weights."""
    sampling: SamplingConfig = SamplingConfig()
    chat: ChatConfig = ChatConfig()
    episode: EpisodeConfig = EpisodeConfig()
    engine: EngineConfig = EngineConfig()
    trainer: TrainerConfig = TrainerConfig()
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
    """What to do when a stage becomes unstable; `false` ends the run at a loss that is not finite."""
    track: TrackConfig = TrackConfig()
    alerts: AlertsConfig = AlertsConfig()
    doctor: DoctorConfig = DoctorConfig()
    checkpoint_every: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Steps between checkpoints; `auto`: so often that writing takes 1 % of the time; 0: each stage's end."""
    checkpoint_limit: PositiveInt = 6
    """Most checkpoints that a stage keeps: the newest two, the best by evaluation, others spread over it."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        """Refuse a name that cannot be part of a directory's name."""
        if not is_file_name(name):
            raise ValueError("a name without / or \\ and without control characters, and not `.` or `..`")
        return name

    @model_validator(mode="after")
    def _check_equal_groups(self) -> "Recipe":
        """Refuse to drop groups of equal reward that still have a gradient."""
        if self.gates.equal_groups == "count":
            return self
        for stage in ("reinforce", "ppo"):
            if stage in self.stages:
                raise ValueError(
                    f"{stage} learns from groups of equal reward too: set gates.equal_groups to count"
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
                    f"with {name} a group of equal reward has a gradient: set gates.equal_groups to count"
                )
        return self

    @model_validator(mode="after")
    def _check_guard(self) -> "Recipe":
        """Refuse a rollback without a guard."""
        if self.kl.cap_action == "rollback" and not self.guard:
            raise ValueError('kl.cap_action = "rollback" needs a [guard]')
        return self

    @model_validator(mode="after")
    def _check_quantization(self) -> "Recipe":
        """Refuse to train quantized weights, and servers that would hold others."""
        if self.model.quantization and not self.lora:
            raise ValueError(
                "model.quantization holds a frozen base in 4 bits, and lora = false trains the base: add a"
                " [lora] table, or leave model.quantization out"
            )
        if self.model.quantization and self.engine.kind != "local":
            raise ValueError(
                f'model.quantization needs engine.kind = "local": the {self.engine.kind} servers would sample'
                " from weights that are not quantized, which are another policy"
            )
        return self

    @model_validator(mode="after")
    def _check_ahead(self) -> "Recipe":
        """Refuse older weights without a correction: their ratios would be taken for the policy's own."""
        if self.engine.ahead and self.correction.method == "off":
            raise ValueError(
                f"engine.ahead = {self.engine.ahead} trains on rollouts of older weights: set"
                ' correction.method, such as "truncate", or engine.ahead = 0'
            )
        return self

    @model_validator(mode="after")
    def _check_ranks(self) -> "Recipe":
        """Refuse ranks that would share servers, or would have nothing to compute."""
        ranks = self.trainer.ranks
        for key, servers in {"servers": len(self.engine.servers), "count": self.engine.count}.items():
            if 0 < servers < ranks:
                raise ValueError(
                    f"trainer.ranks = {ranks} needs as many engine.{key}, got {servers}: each rank samples"
                    " with its own; without any, each starts one"
                )
        if ranks > 1 and self.engine.tensor_parallel > 1 and not (self.engine.servers or self.engine.count):
            raise ValueError(
                f"engine.tensor_parallel = {self.engine.tensor_parallel}: a server that a rank starts has the"
                " rank's GPU alone; set engine.count with --ray, or engine.servers"
            )
        for name in self.stages:
            key, stage = "batch_size" if name == "sft" else "prompts_per_step", getattr(self, name)
            if stage is not None and ranks > (groups := getattr(stage, key)):
                raise ValueError(
                    f"trainer.ranks = {ranks} is more than {name}.{key} = {groups}: a rank would compute"
                    " nothing, since the attempts of a task stay together"
                )
        return self

    @model_validator(mode="after")
    def _check_effect(self) -> "Recipe":
        """Refuse options that would have no effect."""
        if self.reference.sync_every and not self.kl.needs_reference:
            raise ValueError("reference.sync_every has nothing to sync: set kl.coef or kl.cap")
        if self.reference.keep and not self.reference.sync_every:
            raise ValueError("reference.keep has no effect without a sync: set reference.sync_every")
        if self.kl.cap_action == "rollback" and self.kl.cap is None:
            raise ValueError("kl.cap_action has no effect: kl.cap is not given")
        for name in self.stages:
            stage = getattr(self, name)
            rollouts = stage.prompts_per_step * stage.group_size if isinstance(stage, PolicyStage) else 0
            if isinstance(stage, PolicyStage) and stage.minibatches > rollouts:
                raise ValueError(
                    f"{name}.minibatches = {stage.minibatches} is more than the {rollouts} rollouts of a step"
                    f" ({name}.prompts_per_step × {name}.group_size): some would be empty"
                )
            if self.kl.target is not None and self.kl.horizon <= 0.2 * rollouts:
                raise ValueError(
                    f"with kl.horizon = {self.kl.horizon} one step of {rollouts} rollouts could bring kl.coef"
                    f" to 0, and 0 stays 0: set it above {0.2 * rollouts:g}"
                )
        if self.gates.overlong_tokens > self.sampling.max_new_tokens:
            raise ValueError(
                f"gates.overlong_tokens = {self.gates.overlong_tokens} is more than a turn may have:"
                f" sampling.max_new_tokens = {self.sampling.max_new_tokens}"
            )
        return self

    def stage(self, name: str) -> Any:
        """Return the table of a stage."""
        return getattr(self, name)
