"""What a recipe may say: one small frozen class per part, a sentence under each field."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from truing.types.sampling_params import SamplingParams

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


class FrozenModel(BaseModel):
    """Frozen, and strict about its keys; the sentence under a field is its description in docs/recipes.md."""

    model_config = ConfigDict(
        extra="forbid", frozen_weights=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelConfig(FrozenModel):
    """Which model, and how it is held."""

    name: str
    """Embedded name (`smollm2-135m`, `tiny`), hub id, folder or GGUF file."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    chat_template: str | None = None
    """A Jinja file to use instead of the model's own template."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes CUDA where there is one."""
    threads: PositiveInt | None = None
    """CPU threads; as many as torch takes where not given. A small model is fastest on one."""
    cuda_graphs: bool = False
    """Record the sampler's steps as CUDA graphs, which spares Python. Not yet run on a GPU by us."""


class LoraConfig(FrozenModel):
    """A low-rank adapter on the linear layers."""

    rank: PositiveInt = 16
    """Rank of the adapter."""
    alpha: PositiveFloat = 32.0
    """The adapter is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on the adapter's input; anything above 0 moves the ratio off 1 on the first inner step."""
    targets: str | list[str] = "all-linear"
    """Layers to adapt, as peft names them."""


class SamplingConfig(FrozenModel):
    """The sampling contract, less the stop ids, which the model's template gives."""

    temperature: PositiveFloat = 1.0
    """Divides the logits, in the sampler and in the trainer alike."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Keep the k most likely tokens; 0 is off."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep the smallest set of tokens with this mass; 1 is off."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Drop tokens below this share of the most likely one; 0 is off."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of each token already generated in this turn."""
    frequency_penalty: float = 0.0
    """Subtracted once per time the token was generated in this turn."""
    repetition_penalty: PositiveFloat = 1.0
    """Divides positive logits, multiplies negative ones, of tokens generated in this turn."""
    min_new_tokens: Annotated[int, Field(ge=0)] = 0
    """Stop ids are banned until this many tokens were generated in this turn."""
    max_new_tokens: PositiveInt = 128
    """A turn that is longer is cut, and counts as truncated."""

    def to_params(self, stop_ids: Sequence[int], **changes: Any) -> SamplingParams:
        """The contract for a model that stops at ``stop_ids``."""
        return SamplingParams(**(self.model_dump() | changes), stop_ids=tuple(stop_ids))


class ChatConfig(FrozenModel):
    """How tools are shown to the model, and how it writes calls; the same in SFT, RL and evaluation."""

    tool_format: str = "auto"
    """How the model writes calls, a name from the table in chat/call_parser.py; `auto` asks its chat template."""
    tool_prompt: Literal["auto", "hermes", "brief"] = "auto"
    """The tool prompt that Truing supplies; `auto` supplies `hermes` where the template shows no tools."""
    template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """What the chat template is told beside messages and tools, as `{enable_thinking = false}`."""


class EpisodeConfig(FrozenModel):
    """Limits of an attempt at a task of several turns, and which of its tokens are trained."""

    max_turns: PositiveInt = 8
    """Turns of the policy; an attempt that needs more is cut, and counts as truncated."""
    max_reply_chars: PositiveInt = 4000
    """Longer answers of the world are cut, the model is told so, and the record counts what was lost."""
    max_prompt_tokens: PositiveInt | None = None
    """Longer prompts are cut, from the front of the longest message but the system's; not given, none is."""
    timeout: PositiveFloat = 30.0
    """Seconds that a tool or an environment may take to answer; then the attempt is an error."""
    time_limit: Annotated[float, Field(ge=0)] = 0.0
    """Seconds for all attempts of a step; 0 is none. Where it strikes, the run cannot be made again."""
    mask: Literal["sampled", "no_structure", "action"] = "sampled"
    """What is trained: every token the policy chose, less scaffolding of calls, or less forced actions."""
    grammar: Literal["off", "calls"] = "off"
    """`calls`: a call of a tool, once begun, is held to the name and schema of one of the task's tools."""
    forced_prefix: str = ""
    """Text that turns are begun with for the policy, as context; none where empty."""
    force_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of turns that begin with `forced_prefix`."""
    force_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of a stage over which `force_rate` falls linearly to 0; 0 keeps it."""


class OptimizerConfig(FrozenModel):
    """AdamW, its schedule, and how an update is cut into micro-batches."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay of the second moment."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients with a larger norm are scaled down to it."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after warm-up, until the stage's last step."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly from 0."""
    micro_batch_tokens: PositiveInt = 4096
    """Distinct tokens of one forward and backward, at most; the gradient does not depend on it."""
    memory: str = "auto"
    """What forward and backward may bring the process to: `8GB`; `auto` is three quarters of what is free."""

    @field_validator("memory")
    @classmethod
    def _amount(cls, memory: str) -> str:
        if not re.fullmatch(r"auto|(?=.*[1-9])\d+(\.\d+)? ?GB", memory):
            raise ValueError("`auto`, or gigabytes of 10⁹ bytes, such as `8GB` or `1.5GB`")
        return memory

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` in bytes; None for ``auto``."""
        return None if self.memory == "auto" else int(float(self.memory.removesuffix("GB")) * 1e9)


class EvalConfig(FrozenModel):
    """The fixed, paired evaluation before and after each stage."""

    tasks: Annotated[int, Field(ge=2)] = 128
    """How many of the environment's evaluation tasks, from the first; an interval needs two."""
    samples: PositiveInt = 1
    """Answers per task; of several, pass@k is told: how often one of k answers passes."""
    passes_at: float | None = None
    """The reward from which on an answer passes; where not given, the most that an answer can earn."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy; else the training contract at this temperature."""
    base: bool = True
    """Whether the model is evaluated before any stage, too."""
    every: Annotated[int, Field(ge=0)] = 0
    """Also every so many steps of a stage; 0 is off."""
