"""How many optimizer steps an audit saw: one whose loss passes by its hooks is told, and never clean."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from truing.utils.format import with_count


@dataclass
class StepCounts:
    """Optimizer steps of a trainer, and which of the hooked methods it calls."""

    hooked: Sequence[str]  # methods of the trainer
    called: set[str] = field(default_factory=set[str])
    steps: int = 0
    unseen: int = 0  # without a micro-batch on record

    def add(self, seen: bool) -> bool:
        """Count a step; return whether it is the first that was not seen."""
        self.steps += 1
        self.unseen += not seen
        return not seen and self.unseen == 1

    @property
    def sees_nothing(self) -> bool:
        """Whether no step was seen, of at least one."""
        return self.steps > 0 and self.unseen == self.steps

    def __str__(self) -> str:
        left = [name for name in self.hooked if name not in self.called]
        why = f": the trainer does not call {', '.join(left)}" if left else ""
        return (
            f"NOT CHECKED: {self.unseen} of {with_count(self.steps, 'optimizer step')}. The audit did not see"
            f" their loss{why}. Any trainer can write a trace instead: truing explain trace"
        )
