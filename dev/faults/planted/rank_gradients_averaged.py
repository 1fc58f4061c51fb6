"""Gradients are averaged over ranks, as FSDP does by default, although denominators count all tokens."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-gradients-averaged",
    numbers=(92,),
    what="gradients are averaged over ranks, not summed",
    plant=lambda: patched(
        "torch.distributed.fsdp:FSDPModule.set_gradient_divide_factor",
        lambda real: lambda module, factor: real(module, 2 * factor),
    ),
    expected=("OPT014",),
    changes={"trainer.ranks": 2},
    seen=("prime-rl#2358", "verl#5625"),
)
