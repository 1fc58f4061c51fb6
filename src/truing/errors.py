"""All errors that Truing raises.

TruingError                     exit code 2; the message has the parts what, got, expected, remedy
├── RecipeError                 a recipe key or value
├── DataError                   a data set, a prompt, a conversation
├── ModelError                  a model, tokenizer or chat template
├── InvalidValueError           an invalid argument, type or sampling parameter
├── RewardError                 a reward function that raised, or returned something other than a number
│   ├── RewardCrash             a reward function that hung, or crashed its process
│   └── NoReward                a rollout that no reward function applies to
├── JudgeUnavailable            a judge that cannot be reached, or replies without a score
├── SkipGroup                   the same, if the recipe then skips the group
├── ProgramError                a program of an environment that crashed, ran out of time, or did not start
│   └── ProgramCrash            one that ended by itself: it exited with another code, or raised
├── RolloutError                no rollout of a step can be trained on, or evaluated
├── Unstable                    a step that the guard may roll back
│   └── NonFiniteError          a loss or gradient that is NaN or infinite
├── GateError                   a limit of the recipe at which the run ends
├── GuardError                  rollbacks that did not help
├── ProvenError                 a step that a rule proved wrong
│   └── PublicationError        an engine that holds other weights than the trainer published
├── EngineError                 an engine that cannot be reached, or cannot sample as declared
├── OutOfMemoryError            memory that ran out where a smaller micro-batch does not help
├── DistributedError            a rank that differs from the others, or does not start
│   └── LostRankError           an exchange in which another rank did not take part; exit code 3
├── LabError                    a lab's folder, a hypothesis, an experiment that cannot decide it
├── BadRequestError             an invalid request to the board
└── RecordError                 a run directory, a segment, a checkpoint, a full disk
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

USERINFO = re.compile(r"(?<=://)[^\s/?#'\"@]+(?:@[^\s/?#'\"@]*)*@(?=[^\s/?#'\"@])")
"""User and password in a URL, with the @ behind them."""

WEBHOOK = re.compile(r"(https?://)(?=[^\s'\"<>\\]*hook)([^\s/?#'\"<>\\]*)[/?#][^\s'\"<>\\]*", re.IGNORECASE)
"""The URL of a webhook, whose path is a secret."""


def redact(text: str) -> str:
    """Return the text without the secrets of its URLs: user and password, and the path of a webhook."""
    return WEBHOOK.sub(r"\1\2/…", USERINFO.sub("…@", text))


class TruingError(Exception):
    """Base of the tree: one message with what went wrong, the value, the expected value, and the remedy.

    The secrets of URLs are left out, since messages are printed, recorded and shared.
    """

    exit_code = 2

    def __init__(self, what: str, *, got: object = None, expected: object = None, remedy: str = "") -> None:
        self.what, self.remedy = redact(what), redact(remedy)
        self.got, self.expected = (redact(x) if isinstance(x, str) else x for x in (got, expected))
        parts = [what]
        if got is not None:
            parts.append(f"got: {got}")
        if expected is not None:
            parts.append(f"expected: {expected}")
        if remedy:
            parts.append(f"remedy: {remedy}")
        super().__init__(redact("\n  ".join(parts)))

    def of(self, where: str) -> Self:
        """Return the error for a place, such as a row; the same error if the place is not known."""
        if not where:
            return self
        what = f"{where}: {self.what}"
        return type(self)(what, got=self.got, expected=self.expected, remedy=self.remedy)


class RecipeError(TruingError):
    """Raised while a recipe is read, merged with overrides, or resolved."""

    problems: tuple["RecipeError", ...] = ()
    """The problems of a recipe that has several; empty for an error of one."""

    @classmethod
    def joined(cls, problems: Sequence["RecipeError"]) -> "RecipeError":
        """Return several problems as one error, in their order."""
        if len(problems) == 1:
            return problems[0]
        listed = (f"{number}. {problem}" for number, problem in enumerate(problems, 1))
        indented = (each.replace("\n", "\n   ") for each in listed)
        error = cls("\n  ".join([f"the recipe has {len(problems)} problems", *indented]))
        error.problems = tuple(problems)
        return error


class DataError(TruingError):
    """Raised where a data set, a task or a prompt is unusable."""


class ModelError(TruingError):
    """Raised where a model, its tokenizer or its chat template is unusable."""


class InvalidValueError(TruingError):
    """Raised by constructors and formulas that get an invalid value."""


class RewardError(TruingError):
    """Raised where a reward function fails; carries the sample that caused it."""


class Unstable(TruingError):
    """Raised where a step exceeds a limit of its recipe; a guard rolls the run back, else it ends."""


class NonFiniteError(Unstable):
    """Raised before a step would spread NaN or infinity; names step, parameter and cause."""


class GateError(TruingError):
    """Raised where a run exceeds a limit at which its recipe ends it."""


class GuardError(TruingError):
    """Raised where a stage is unstable after all its rollbacks; names the report."""


class ProvenError(TruingError):
    """Raised after a step that a rule proved wrong; no checkpoint contains it."""


class PublicationError(ProvenError):
    """Raised where an engine provably samples with other weights or sampling parameters."""


class EngineError(TruingError):
    """Raised where an engine cannot be reached, or cannot keep the declared sampling parameters."""


class OutOfMemoryError(TruingError):
    """Raised where memory runs out, and the step cannot be repeated with smaller micro-batches."""


class DistributedError(TruingError):
    """Raised where a rank does not take part in an exchange, or holds other values than the others."""


class LostRankError(DistributedError):
    """Raised by the ranks that are left if another one is lost; the launcher looks for the cause."""

    exit_code = 3


class LabError(TruingError):
    """Raised where a lab cannot continue: an incomplete header, missing arms or seeds."""


class BadRequestError(TruingError):
    """Raised on an invalid request to the board, such as a missing argument."""


class RecordError(TruingError):
    """Raised where a run directory cannot be written or read."""


class RewardCrash(RewardError):
    """Raised where a reward function hangs, or ends its process: its rollout is an error."""


class NoReward(RewardError):
    """Raised where no reward function applies to a rollout: the rollout is an error, never a reward of 0."""


class JudgeUnavailable(TruingError):
    """Raised where a judge cannot be reached, or replies without a score."""


class SkipGroup(TruingError):
    """Raised by a reward function without a result: the rollout's group is recorded as failed, never as 0."""


class ProgramError(TruingError):
    """A program of an environment that crashed, ran out of time, or did not start: no reward."""


class ProgramCrash(ProgramError):
    """A program that exited with a code that the recipe does not allow, or a function that raised."""

    outcome: Mapping[str, Any] = MappingProxyType({})
    """What it left, with ``crash``: how it ended, in words."""


class RolloutError(TruingError):
    """Raised where every rollout failed, so that there is nothing to train on."""
