"""The processes of a trainer, as accelerate starts them."""

from typing import Any

from accelerate import DistributedType
from accelerate.utils import DDPCommunicationHookType
from torch.utils.data import RandomSampler, SequentialSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from truing.distributed.ranks import Ranks
from truing.errors import RecipeError

NOT_CHECKED = (
    "not checked: the optimizer's gradient, the weights, the optimizer's moments and a plain forward, as"
    " {kind} shards weights over {size} processes"
)
"""What an audit leaves out if no process holds whole weights."""


EXAMPLES_NOT_CHECKED = (
    "not checked: whether two ranks have the same examples, as the dataset cannot be counted or its sampler"
    " may draw one twice"
)


def ranks_of(trainer: Any) -> Ranks:
    """Return the processes of a trainer; all of them call this together."""
    split = {kind: getattr(trainer, f"get_{kind}_size")() for kind in ("tp", "cp", "sp")}
    if any(size > 1 for size in split.values()):
        raise RecipeError(
            "processes that share rows cannot be audited",
            got=", ".join(f"{kind}_size = {size}" for kind, size in split.items() if size > 1),
            expected="processes with rows of their own: DDP, FSDP or DeepSpeed",
        )
    accelerator = trainer.accelerator
    # a group of its own: exchanges of an audit never meet those of DDP or TRL
    return Ranks(accelerator.process_index, accelerator.num_processes).with_own_group()


def holds_whole_weights(accelerator: Any) -> bool:
    """Return whether each process holds all weights: one process, or replicas with DDP."""
    kind = accelerator.distributed_type
    return kind == DistributedType.NO or kind.value.startswith("MULTI_")


def draws_examples_once(loader: Any) -> bool:
    """Return whether the sampler of a data loader is known to draw each example once in an epoch."""
    batches: Any = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # of accelerate: the share of a process, or all but the first
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", None)
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement
    return isinstance(sampler, (SequentialSampler, LengthGroupedSampler)) or (
        type(sampler).__name__ == "RepeatSampler"  # TRL's, which draws a group's prompt once for the group
    )


def averages_exactly(accelerator: Any) -> bool:
    """Return whether DDP averages gradients in their own precision: no hook compresses them."""
    handler = accelerator.ddp_handler
    return handler is None or handler.comm_hook == DDPCommunicationHookType.NO
