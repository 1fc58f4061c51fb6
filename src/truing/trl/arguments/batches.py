"""How TRL's batch arguments and epochs become steps of a stage."""

import math
from dataclasses import dataclass
from typing import Any

from truing.errors import RecipeError
from truing.trl.arguments.config_base import TrlConfig
from truing.trl.arguments.problems import Problems


@dataclass(frozen=True)
class Batches:
    """The steps of a stage; a step has ``optimizer_steps``, which are what TRL's steps count."""

    rows: int  # answers, or demonstrations, of a step
    minibatches: int
    inner_epochs: int
    steps: int
    steps_per_epoch: int

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps per step."""
        return self.minibatches * self.inner_epochs

    def steps_of(self, count: float) -> int:
        """Return a number of TRL's steps, or a share of all of them, in steps; at least 1."""
        total = count * self.steps * self.optimizer_steps if 0 < count < 1 else count
        return max(1, math.ceil(total / self.optimizer_steps))


def sampled_batches(args: TrlConfig, prompts: int, ranks: int, problems: Problems) -> Batches:
    """Return the batches of GRPO and RLOO for a data set of ``prompts`` rows."""
    _check_counts(args, "num_generations", "num_iterations", "steps_per_generation", "generation_batch_size")
    micro, accumulated = args.per_device_train_batch_size * ranks, args.gradient_accumulation_steps
    per_generation = args.steps_per_generation or accumulated
    if args.generation_batch_size is not None:
        per_generation = max(1, args.generation_batch_size // micro)
        if args.generation_batch_size % micro:
            problems.add(
                "generation_batch_size",
                args.generation_batch_size,
                f"it is not a multiple of the {micro} rollouts of a batch",
                f"set {micro * per_generation}",
            )
    if max(per_generation, accumulated) % min(per_generation, accumulated):
        problems.add(
            "steps_per_generation",
            per_generation,
            f"neither it nor gradient_accumulation_steps={accumulated} divides the other",
            f"set {accumulated}",
        )
    rows = micro * max(per_generation, accumulated)
    if micro * per_generation % args.num_generations:
        problems.add(
            "num_generations",
            args.num_generations,
            f"answers are sampled in whole groups, and it does not divide the {micro * per_generation} of a"
            " generation batch",
            "change per_device_train_batch_size",
        )
    minibatches = max(1, per_generation // accumulated)
    batches_per_epoch = prompts // max(1, micro * per_generation // args.num_generations)
    per_epoch = math.ceil(batches_per_epoch * per_generation * args.num_iterations / accumulated)
    return _batches(args, rows, (minibatches, args.num_iterations), max(1, per_epoch), problems)


def row_batches(args: TrlConfig, rows: int, ranks: int, problems: Problems) -> Batches:
    """Return the batches of SFT for a data set of ``rows`` rows."""
    _check_counts(args)
    micro = args.per_device_train_batch_size * ranks
    per_epoch = math.ceil(math.ceil(rows / micro) / args.gradient_accumulation_steps)
    return _batches(args, micro * args.gradient_accumulation_steps, (1, 1), per_epoch, problems)


def _check_counts(args: TrlConfig, *names: str) -> None:
    """Raise for a count that is not positive: the others are divided by it."""
    epochs = ("num_train_epochs",) if args.max_steps <= 0 else ()
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", *epochs, *names):
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise RecipeError(f"{name} is not positive", got=value, expected="a number above 0")


def _batches(
    args: TrlConfig, rows: int, split: tuple[int, int], per_epoch: int, problems: Problems
) -> Batches:
    """Return the batches of a training of ``max_steps`` optimizer steps, or of ``num_train_epochs``."""
    minibatches, inner_epochs = split
    per_step = minibatches * inner_epochs
    optimizer_steps = args.max_steps
    if optimizer_steps <= 0:
        optimizer_steps = math.ceil(math.ceil(args.num_train_epochs * per_epoch) / per_step) * per_step
    elif optimizer_steps % per_step:
        problems.add(
            "max_steps",
            optimizer_steps,
            f"the rollouts of one generation make {per_step} optimizer steps, and a step has all of them",
            f"set a multiple of {per_step}",
        )
    return Batches(
        rows=rows,
        minibatches=minibatches,
        inner_epochs=inner_epochs,
        steps=max(1, optimizer_steps // per_step),
        steps_per_epoch=max(1, per_epoch // per_step),
    )


def learning_schedule(args: TrlConfig, batches: Batches, problems: Problems) -> dict[str, Any]:
    """Return schedule and warm-up of the learning rate."""
    name = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    schedules = {"constant_with_warmup": "constant"} | {
        each: each for each in ("linear", "cosine", "constant")
    }
    problems.check_choice("lr_scheduler_type", name, schedules, "Truing has no such schedule")
    warmup = 0 if name == "constant" or not args.warmup_steps else batches.steps_of(args.warmup_steps)
    return {"schedule": schedules.get(name, "linear"), "warmup_steps": warmup}
