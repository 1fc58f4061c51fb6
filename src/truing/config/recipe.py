"""The whole recipe."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from truing.config.control import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    KlConfig,
    ReferenceConfig,
)
from truing.config.parts import (
    ChatConfig,
    EpisodeConfig,
    EvalConfig,
    LoraConfig,
    ModelConfig,
    OptimizerConfig,
    Part,
    SamplingConfig,
)
from truing.config.stages import GrpoConfig, PpoConfig, ReinforceConfig, RftConfig, RlooConfig, SftConfig

Stage = Literal["sft", "rft", "reinforce", "rloo", "grpo", "ppo"]


class Recipe(Part):
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
        terms = {"kl.coef": self.kl.coef > 0 and self.kl.where == "loss", "entropy": self.entropy.active}
        for name, active in terms.items():
            if active and self.gates.equal_groups == "drop":
                raise ValueError(f'the term of {name} needs groups of equal reward: they cannot be "drop"ped')
        return self

    def stage(self, name: str) -> Any:
        """The table of a stage."""
        return getattr(self, name)
