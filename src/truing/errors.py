"""Every error that Truing raises on purpose.

TruingError                     exit code 2; the message says what, got, expected, remedy
├── RecipeError                 a recipe key or value
├── DataError                   a data set, a prompt, a conversation
├── ModelError                  a model, tokenizer or chat template
├── ContractError               a type or sampling contract that cannot be
├── RewardError                 a reward function that raised, or returned what is not a number
├── JudgeUnavailable            a judge that cannot be reached, or says no score
├── SkipGroup                   the same, where the recipe declares that the group is then left out
├── RolloutError                attempts of which none can be trained on, or evaluated
├── Unstable                    a step that a guard may undo
│   └── NonFiniteError          a loss or gradient that is NaN or infinite
├── GateError                   a bound of the recipe at which the run is to end
├── GuardError                  rollbacks that did not help
├── ProvenError                 an update of which a rule proved that it is wrong
├── LabError                    a lab's folder, a hypothesis, an experiment that cannot decide
├── QuestionError               what the board is asked, and cannot be meant
└── RecordError                 a run directory, a segment, a checkpoint, a full disk
"""


class TruingError(Exception):
    """Base of the tree: one message with what went wrong, what was there, and what to do."""

    def __init__(self, what: str, *, got: object = None, expected: object = None, remedy: str = "") -> None:
        self.what, self.got, self.expected, self.remedy = what, got, expected, remedy
        parts = [what]
        if got is not None:
            parts.append(f"got: {got}")
        if expected is not None:
            parts.append(f"expected: {expected}")
        if remedy:
            parts.append(f"remedy: {remedy}")
        super().__init__("\n  ".join(parts))


class RecipeError(TruingError):
    """Raised while a recipe is read, merged with overrides, or resolved."""


class DataError(TruingError):
    """Raised where a data set, a task or a prompt cannot be used as it is."""


class ModelError(TruingError):
    """Raised where a model, its tokenizer or its chat template cannot be used as it is."""


class InvalidValueError(TruingError):
    """Raised by constructors: a sample, group or sampling contract that cannot be."""


class RewardError(TruingError):
    """Raised where a reward function fails; carries the sample that caused it."""


class Unstable(TruingError):
    """Raised where a step went beyond what its recipe allows; a guard sets the run back, else it ends."""


class NonFiniteError(Unstable):
    """Raised before an update would spread NaN or infinity; names step, parameter and cause."""


class GateError(TruingError):
    """Raised where a run went beyond a bound at which its recipe says that it ends."""


class GuardError(TruingError):
    """Raised where a stage stayed unstable through all its rollbacks; names the report."""


class ProvenError(TruingError):
    """Raised after an update of which a rule proved that it is wrong; no checkpoint has it."""


class LabError(TruingError):
    """Raised where a lab cannot go on: a header that says too little, arms or seeds that lack."""


class BadRequestError(TruingError):
    """Raised where the board is asked something that has no answer in any run: a missing argument, say."""


class RecordError(TruingError):
    """Raised where a run directory cannot be written or read."""


class JudgeUnavailable(TruingError):
    """Raised where a judge cannot be reached, or says what holds no score."""


class SkipGroup(TruingError):
    """Raised by a reward that cannot judge: the rollout's group is recorded as failed, never as 0."""


class RolloutError(TruingError):
    """Raised where nothing is left to train on, because every attempt failed."""


TEMPLATE_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a chat template ends in that computes with what is not there, beside Jinja's own errors."""
