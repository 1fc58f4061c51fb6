"""Tables of a recipe that all stages share: one frozen class each, a sentence under each field."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from truing.config.problems import Contradictions
from truing.types.sampling_params import SamplingParams

PositiveInt = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=100_000)]
"""Members of a batch or a group, which are in memory at once."""

PositiveFloat = Annotated[float, Field(gt=0)]


def bytes_of(gigabytes: str) -> int:
    """Return gigabytes of 10⁹ bytes, such as 8GB or 1.5GB, in bytes.

    Raises:
        ValueError: It is another text, or 0.
    """
    if not re.fullmatch(r"(?=.*[1-9])\d+(\.\d+)? ?GB", gigabytes):
        raise ValueError("gigabytes of 10⁹ bytes, such as `8GB` or `1.5GB`")
    return int(float(gigabytes.removesuffix("GB")) * 1e9)


MOST = 2**31 - 1
"""The largest whole number of a recipe: more steps, tokens or tasks than any run has."""

DEFAULT_EVAL_TASKS = 128
"""Tasks of an evaluation whose recipe gives no number, if the environment has as many."""


def _leaves(annotation: Any) -> set[Any]:
    """Return the plain types of a type: of ``int | None`` int and None; of a list, none of its items."""
    if get_origin(annotation) is Annotated:
        return _leaves(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return {leaf for part in get_args(annotation) for leaf in _leaves(part)}
    values = get_args(annotation) if get_origin(annotation) is Literal else ()
    return {type(value) for value in values} or ({annotation} if isinstance(annotation, type) else {Any})


class FrozenModel(BaseModel):
    """A frozen table without unknown keys; docs/recipes.md shows the sentence under each field."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_plausible(cls, value: Any, info: ValidationInfo) -> Any:
        """Raise for a truth value in place of a number, and for a count beyond any run's; not for a seed."""
        kinds = _leaves(cls.model_fields[info.field_name or ""].annotation)
        if isinstance(value, bool) and not kinds & {bool, Any} and kinds & {int, float}:
            raise ValueError("a number, not true or false")
        if type(value) is int and int in kinds and abs(value) > MOST and info.field_name != "seed":
            raise ValueError(f"a whole number of at most {MOST}")
        return value

    def contradictions(self) -> Iterator[str]:
        """Yield what the keys require of each other and do not have, a sentence each."""
        yield from ()

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        if texts := list(self.contradictions()):
            raise Contradictions(texts)
        return self


class ModelConfig(FrozenModel):
    """The model, and how it is loaded."""

    name: str
    """Name of a built-in model (`smollm2-135m`, `tiny`, `tiny-moe`), hub id, folder or GGUF file."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    chat_template: str | None = None
    """A Jinja file to use instead of the model's own template."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` uses CUDA if there is a GPU."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the model computes in, and a frozen base is held in; weights that are trained stay float32."""
    quantization: Literal["nf4"] | None = None
    """Hold the linear layers of a frozen base in 4 bits, as QLoRA does; they compute in `dtype`."""
    threads: PositiveInt | None = None
    """CPU threads; if not given, 1 below 20 million parameters, else torch's default on the usable cores."""
    cuda_graphs: bool = False
    """Record the sampler's steps as CUDA graphs: less Python time; rollouts share their prompt's cache."""


class LoraConfig(FrozenModel):
    """A low-rank adapter on the linear layers: a new one, or a saved one to start from."""

    adapter: str | None = None
    """Folder of a saved adapter (peft, `truing export --adapter`) to start from; a new one without it."""
    rank: PositiveInt | None = 16
    """Rank of the adapter; that of `adapter` if there is one."""
    alpha: PositiveFloat | None = 32.0
    """The adapter is scaled by alpha / rank; that of `adapter` if there is one."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on the adapter's input; above 0 it moves first ratios off 1, and masks follow micro-batches."""
    targets: str | list[str] | None = "all-linear"
    """Layers to adapt, as peft names them; those of `adapter` if there is one."""

    @model_validator(mode="before")
    @classmethod
    def _leave_to_adapter(cls, table: Any) -> Any:
        """Declare nothing of a saved adapter that the recipe does not declare."""
        if isinstance(table, Mapping) and table.get("adapter") is not None:
            return {"rank": None, "alpha": None, "targets": None} | dict(table)
        return table

    def contradictions(self) -> Iterator[str]:
        """Refuse a new adapter without a rank, a scale or layers."""
        if self.adapter is None and None in (self.rank, self.alpha, self.targets):
            yield "a new adapter needs lora.rank, lora.alpha and lora.targets"


class SamplingConfig(FrozenModel):
    """The sampling parameters, except the stop ids, which come from the model's chat template."""

    temperature: PositiveFloat = 1.0
    """Divides the logits, in the sampler and in the trainer."""
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
    max_new_tokens: PositiveInt = 512
    """A longer turn is cut, and counts as truncated; 512 is the default of TRL and verl."""

    def contradictions(self) -> Iterator[str]:
        """Refuse more tokens at least than at most."""
        if self.min_new_tokens > self.max_new_tokens:
            yield (
                f"min_new_tokens = {self.min_new_tokens} is more than max_new_tokens = {self.max_new_tokens}:"
                " lower the one, or raise the other"
            )

    def to_params(self, stop_ids: Sequence[int], **changes: Any) -> SamplingParams:
        """Return the sampling parameters for a model that stops at ``stop_ids``."""
        return SamplingParams(**(self.model_dump() | changes), stop_ids=tuple(stop_ids))


class ChatConfig(FrozenModel):
    """How the prompt lists tools, and how the model writes calls; the same in SFT, RL and evaluation."""

    tool_format: str = "auto"
    """How the model writes calls, a name from chat/call_parser.py; `auto` follows the chat template."""
    tool_prompt: Literal["auto", "hermes", "brief"] = "auto"
    """The tool prompt that Truing adds; `auto` adds `hermes` if the template does not list tools."""
    template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Other variables of the chat template, such as `{enable_thinking = false}`."""
    date: datetime.date | None = None
    """Today's date for a chat template that writes it; if not given, the day on which the run starts."""
    content_tokens: Literal["free"] | tuple[str, ...] = ()
    """Special tokens that data may contain as tokens; `free`: all that the template does not write."""


class EpisodeConfig(FrozenModel):
    """Limits of a rollout of a multi-turn task, and which of its tokens are trained."""

    max_turns: PositiveInt = 8
    """Turns of the policy; a longer rollout is cut, and counts as truncated."""
    max_reply_chars: PositiveInt = 4000
    """Longer replies of the environment are cut, with a note to the model; a metric counts what was lost."""
    max_prompt_tokens: PositiveInt | None = None
    """Longer prompts are cut at the front of the longest message other than the system message."""
    timeout: PositiveFloat = 30.0
    """Seconds for a reply, else its rollout is an error. A reward in a thread ends the run after 10 ×."""
    workers: PositiveInt = 16
    """Calls of tools and environments that run at the same time: threads, or with `processes` processes."""
    processes: bool = False
    """Run environments, tools and rewards in processes: one that hangs or crashes costs its rollout only."""
    process_memory: str | None = None
    """Memory of each process, such as `2GB`: a rollout that needs more is an error. Linux only."""
    lock_step: bool = True
    """Whether rollouts sample each turn together; with `false` none waits, and bits may differ by run."""
    time_limit: Annotated[float, Field(ge=0)] = 0.0
    """Seconds for all rollouts of a step; 0 means no limit. A run that hits the limit is not reproducible."""
    mask: Literal["sampled", "no_structure", "action"] = "sampled"
    """Trained tokens: all that were sampled, or without call syntax, or without turns with prefilled text."""
    grammar: Literal["off", "calls"] = "off"
    """`calls`: from its opening tag on, a tool call must match the schema of one of the task's tools."""
    forced_prefix: str = ""
    """Prefilled text at the start of turns, as context; empty is none."""
    force_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of turns that begin with `forced_prefix`."""
    force_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of a stage over which `force_rate` falls linearly to 0; 0 keeps it constant."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a limit on the memory of processes that there are not."""
        if self.process_memory is not None and not self.processes:
            yield "process_memory limits processes: add processes = true"

    @field_validator("process_memory")
    @classmethod
    def _check_process_memory(cls, memory: str | None) -> str | None:
        if memory is not None:
            bytes_of(memory)
        return memory

    @property
    def process_memory_bytes(self) -> int | None:
        """``process_memory`` in bytes; None if there is no limit."""
        return None if self.process_memory is None else bytes_of(self.process_memory)


class OptimizerConfig(FrozenModel):
    """AdamW, its schedule, and how an optimizer step is split into micro-batches."""

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
    """Learning rate schedule after warm-up, until the stage's last step."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly from 0."""
    micro_batch_tokens: PositiveInt = 4096
    """Most distinct tokens of a forward and backward pass; without dropout no gradient depends on it."""
    memory: str = "auto"
    """Memory budget of forward and backward passes: `8GB`; `auto` is three quarters of the free memory."""

    @field_validator("memory")
    @classmethod
    def _check_amount(cls, memory: str) -> str:
        if memory != "auto":
            try:
                bytes_of(memory)
            except ValueError as error:
                raise ValueError(f"`auto`, or {error}") from error
        return memory

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` in bytes; None for ``auto``."""
        return None if self.memory == "auto" else bytes_of(self.memory)


class EvalConfig(FrozenModel):
    """The fixed, paired evaluation before and after each stage."""

    tasks: Annotated[int, Field(ge=0)] | None = None
    """Number of evaluation tasks, from the first; 0 evaluates nothing; if not given, 128, or all if fewer."""
    samples: PositiveInt = 1
    """Rollouts per task; with several, pass@k is reported: how often one of k rollouts passes."""
    passes_at: float | None = None
    """The smallest reward of a passing rollout; if not given, the largest possible reward."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy; else the training's sampling parameters at this temperature."""
    base: bool = True
    """Whether the model is also evaluated before the first stage."""
    every: Annotated[int, Field(ge=0)] = 0
    """Steps of a stage between evaluations; 0 is off."""
    grader: str | None = None
    """A second reward function, `path.py:name` or `module:name`, that grades evaluations and never pays."""

    @field_validator("tasks")
    @classmethod
    def _check_tasks(cls, tasks: int | None) -> int | None:
        """Refuse one task: an interval needs two."""
        if tasks == 1:
            raise ValueError("at least 2, since an interval needs two; or 0, which evaluates nothing")
        return tasks
