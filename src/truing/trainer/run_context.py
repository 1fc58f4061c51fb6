"""What all stages of a run share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from truing.config import Recipe
from truing.distributed.ranks import Ranks
from truing.distributed.sharding import computing_device
from truing.learner.memory_budget import MemoryBudget
from truing.record import RunWriter
from truing.trainer.checkpoint_manager import CheckpointManager
from truing.trainer.events import EventLog
from truing.trainer.interrupts import DeferredInterrupt
from truing.trainer.session import Session
from truing.trainer.step_doctor import StepDoctor
from truing.utils.phase_clock import PhaseClock


@dataclass(frozen=True)
class RunContext:
    """What all stages of a run share; ``open`` makes it."""

    session: Session  # with the declared recipe; a guard may change that of a stage
    writer: RunWriter
    out: Path  # the run directory
    memory_budget: MemoryBudget
    event_log: EventLog
    checkpoints: CheckpointManager
    doctor: StepDoctor
    clock: PhaseClock
    interrupt: DeferredInterrupt

    @classmethod
    def open(
        cls, session: Session, writer: RunWriter, out: Path, memory_budget: MemoryBudget, event_log: EventLog
    ) -> "RunContext":
        """Return the context of a run that begins or resumes."""
        return cls(
            session,
            writer,
            out,
            memory_budget,
            event_log,
            CheckpointManager(out / "checkpoints", session.recipe),
            StepDoctor(session, event_log),
            clock_of(computing_device(session.policy.module)),
            DeferredInterrupt(interruptible=session.policy.ranks.size == 1),
        )

    @property
    def recipe(self) -> Recipe:
        """Return the declared recipe."""
        return self.session.recipe

    @property
    def ranks(self) -> Ranks:
        """Return the ranks of the run."""
        return self.session.policy.ranks

    @property
    def stages(self) -> Sequence[str]:
        """Return the stages in their order."""
        return self.recipe.stages

    def weights_version(self, stage: str, step: int) -> int:
        """Return the steps done so far, over all stages, after ``step`` steps of a stage."""
        before = self.stages[: self.stages.index(stage)]
        return sum(self.recipe.stage(name).steps for name in before) + step


def clock_of(device: torch.device) -> PhaseClock:
    """Return a clock that waits for the device at the end of each phase."""
    return PhaseClock(torch.cuda.synchronize) if device.type == "cuda" else PhaseClock()
