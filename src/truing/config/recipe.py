"""The whole recipe."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

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
    default_learning_rate,
)
from truing.config.trackers import AlertsConfig, TrackConfig
from truing.config.trainer import TrainerConfig
from truing.utils.file_names import is_file_name

Stage = Literal["sft", "rft", "reinforce", "rloo", "grpo", "ppo"]


class Recipe(FrozenModel):
    """The name, stages and seed of a run, and its other tables."""

    name: str = "run"
    """Name of the run, part of its directory's name; if not given, that of the recipe's file."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = ("grpo",)
    """Training stages, in order; if not given, those that have a table, sft before rft and RL; else grpo."""
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

    @field_validator("stages")
    @classmethod
    def _check_stages(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Refuse a stage twice: it has one table."""
        if len(set(stages)) < len(stages):
            raise ValueError("each stage once")
        return stages

    @model_validator(mode="before")
    @classmethod
    def _follow_from_others(cls, table: Any) -> Any:
        """Add what other keys decide: the stages, their tables, and the learning rates of these."""
        if not isinstance(table, Mapping):
            return table
        with_table = [name for name in get_args(Stage) if table.get(name) is not None]
        filled = {"stages": with_table or ["grpo"]} | dict(table)
        for name in filled["stages"] if isinstance(filled["stages"], list | tuple) else ():
            stage = filled.get(name) or {} if name in get_args(Stage) else None
            if isinstance(stage, Mapping) and stage.get("learning_rate") is None:
                rate = default_learning_rate(name, lora=filled.get("lora") not in (None, False))
                filled[name] = {**stage, "learning_rate": rate}
        return filled

    def contradictions(self) -> Iterator[str]:
        """Yield what tables require of each other."""
        yield from self._equal_groups_problems()
        yield from self._guard_problems()
        yield from self._quantization_problems()
        yield from self._ahead_problems()
        yield from self._ranks_problems()
        yield from self._effect_problems()

    def _equal_groups_problems(self) -> Iterator[str]:
        """Refuse to drop groups of equal reward that still have a gradient."""
        if self.gates.equal_groups == "count":
            return
        for stage in ("reinforce", "ppo"):
            if stage in self.stages:
                yield f"{stage} learns from groups of equal reward too: set gates.equal_groups to count"
        reasons = {
            "kl.coef": self.kl.coef > 0,
            "entropy": self.entropy.active,
            'gates.truncated = "penalize"': self.gates.truncated == "penalize",
            'grpo.advantage_per = "turn"': self.grpo is not None and self.grpo.advantage_per == "turn",
        }
        for name, active in reasons.items():
            if active:
                yield (f"with {name} a group of equal reward has a gradient: set gates.equal_groups to count")

    def _guard_problems(self) -> Iterator[str]:
        """Refuse a rollback without a guard."""
        if self.kl.cap_action == "rollback" and not self.guard:
            yield ('kl.cap_action = "rollback" needs a [guard]')

    def _quantization_problems(self) -> Iterator[str]:
        """Refuse to train quantized weights, and servers that would hold others."""
        if self.model.quantization and not self.lora:
            yield (
                "model.quantization holds a frozen base in 4 bits, and lora = false trains the base: add a"
                " [lora] table, or leave model.quantization out"
            )
        if self.model.quantization and self.engine.kind != "local":
            yield (
                f'model.quantization needs engine.kind = "local": the {self.engine.kind} servers would sample'
                " from weights that are not quantized, which are another policy"
            )

    def _ahead_problems(self) -> Iterator[str]:
        """Refuse older weights without a correction: their ratios would be taken for the policy's own."""
        if self.engine.ahead and self.correction.method == "off":
            yield (
                f"engine.ahead = {self.engine.ahead} trains on rollouts of older weights: set"
                ' correction.method, such as "truncate", or engine.ahead = 0'
            )

    def _ranks_problems(self) -> Iterator[str]:
        """Refuse ranks that would share servers, or would have nothing to compute."""
        ranks = self.trainer.ranks
        for key, servers in {"servers": len(self.engine.servers), "count": self.engine.count}.items():
            if 0 < servers < ranks:
                yield (
                    f"trainer.ranks = {ranks} needs as many engine.{key}, got {servers}: each rank samples"
                    " with its own; without any, each starts one"
                )
        if ranks > 1 and self.engine.tensor_parallel > 1 and not (self.engine.servers or self.engine.count):
            yield (
                f"engine.tensor_parallel = {self.engine.tensor_parallel}: a server that a rank starts has the"
                " rank's GPU alone; set engine.count with --ray, or engine.servers"
            )
        for name in self.stages:
            key, stage = "batch_size" if name == "sft" else "prompts_per_step", getattr(self, name)
            if stage is not None and ranks > (groups := getattr(stage, key)):
                yield (
                    f"trainer.ranks = {ranks} is more than {name}.{key} = {groups}: a rank would compute"
                    " nothing, since the rollouts of a task stay together"
                )

    def _effect_problems(self) -> Iterator[str]:
        """Refuse options that would have no effect."""
        if self.reference.sync_every and not self.kl.needs_reference:
            yield ("reference.sync_every has nothing to sync: set kl.coef or kl.cap")
        if self.reference.keep and not self.reference.sync_every:
            yield ("reference.keep has no effect without a sync: set reference.sync_every")
        if self.kl.cap_action == "rollback" and self.kl.cap is None:
            yield ("kl.cap_action has no effect: kl.cap is not given")
        for name in self.stages:
            stage = getattr(self, name)
            rollouts = stage.prompts_per_step * stage.group_size if isinstance(stage, PolicyStage) else 0
            if isinstance(stage, PolicyStage) and stage.minibatches > rollouts:
                yield (
                    f"{name}.minibatches = {stage.minibatches} is more than the {rollouts} rollouts of a step"
                    f" ({name}.prompts_per_step × {name}.group_size): some would be empty"
                )
            if self.kl.target is not None and self.kl.horizon <= 0.2 * rollouts:
                yield (
                    f"with kl.horizon = {self.kl.horizon} one step of {rollouts} rollouts could bring kl.coef"
                    f" to 0, and 0 stays 0: set it above {0.2 * rollouts:g}"
                )
        if self.gates.overlong_tokens > self.sampling.max_new_tokens:
            yield (
                f"gates.overlong_tokens = {self.gates.overlong_tokens} is more than a turn may have:"
                f" sampling.max_new_tokens = {self.sampling.max_new_tokens}"
            )

    def stage(self, name: str) -> Any:
        """Return the table of a stage."""
        return getattr(self, name)
