"""The recipe keys of own data."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from truing.config import FrozenModel
from truing.rewards import AnswerFormat
from truing.rewards.judge import JudgeConfig
from truing.utils.format import did_you_mean

GRADERS = ("exact", "number", "regex", "judge")
"""Rewards that a recipe names without a module."""

Data = str | Annotated[tuple[str, ...], Field(min_length=1)]


class RewardConfig(FrozenModel):
    """One reward: a grader of Truing, or a function of yours."""

    kind: str
    """`exact`, `number`, `regex`, `judge`, or `module:function`: `(rollout, task) -> float`."""
    weight: float = 1.0
    """Its weight in the sum; with 0 it is recorded only."""
    answer_format: AnswerFormat | None = None
    """Of `exact`: where the answer is, on the only "line" (default) of the response or in a closing "tag"."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Of `number`: allowed relative error; 0 if not given."""
    pattern: str | None = None
    """Of `regex`: a Python pattern, searched in the response; with a group, the group must be the answer."""

    def contradictions(self) -> Iterator[str]:
        """Refuse an unknown kind, and keys of another one."""
        if self.kind not in GRADERS and ":" not in self.kind:
            hint = did_you_mean(self.kind, GRADERS)
            yield f"kind is one of {', '.join(GRADERS)}, or module:function; {hint}".rstrip("; ")
        owners = {"answer_format": "exact", "tolerance": "number", "pattern": "regex"}
        for key, owner in owners.items():
            if getattr(self, key) is not None and self.kind != owner:
                yield f'{key} is a key of kind = "{owner}", and kind is "{self.kind}"'
        if self.kind == "regex" and self.pattern is None:
            yield 'kind = "regex" needs a pattern'


class DatasetConfig(FrozenModel):
    """The rows, their columns, their split, and the rewards."""

    data: Data
    """One spec or several: a .jsonl, .json, .csv or .parquet file, or "hub/id,config,split"."""
    eval_data: Data | None = None
    """Rows to evaluate on, such as "eval.jsonl" or "hub/id,config,test"; if not set, a share of `data`."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Without `eval_data`, share of prompts for evaluation: those with the smallest hash."""
    split_column: str | None = None
    """Rows with one value in this column, such as a topic, stay in one split; else equal prompts."""
    seed: int = 0
    """Another seed selects other rows for evaluation."""
    train_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of training rows: the first of the data."""
    eval_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of evaluation rows: the first of the data."""
    prompt_column: str | None = None
    """The prompt, text or messages; if not set, `prompt` or `messages`, whichever the row has."""
    answer_column: str | None = None
    """The right answer, for rewards; if not set, `answer`."""
    completion_column: str | None = None
    """The demonstration for SFT, text or an assistant's message; if not set, `completion` or a last reply."""
    tools_column: str | None = None
    """Schemas of the tools that the model sees; if not set, `tools`."""
    id_column: str | None = None
    """A name for the row; if not set, `id`, or a hash of prompt and answer."""
    system: str = ""
    """The system message of prompts that have none; empty for none."""
    rewards: dict[str, RewardConfig] = Field(default_factory=dict)
    """Name → table with `kind`, `weight` and options: docs/tasks.md. Without it, pass rewards= in Python."""
    judge: JudgeConfig | None = None
    """The judge of rewards with `kind = "judge"`. Keys: docs/judges.md."""

    def contradictions(self) -> Iterator[str]:
        """Refuse a judge without a reward, and the reverse."""
        uses_judge = any(reward.kind == "judge" for reward in self.rewards.values())
        if uses_judge and self.judge is None:
            yield 'a reward of kind "judge" needs a table [env.judge] with its model'
        if self.judge is not None and not uses_judge:
            yield '[env.judge] has no effect: no reward has kind = "judge"'
