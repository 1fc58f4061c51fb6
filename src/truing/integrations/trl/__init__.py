"""Entry point of TRL audits: ``audit(trainer)``, called before ``trainer.train()``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.errors import RecipeError
from truing.integrations.trl.base import Audit
from truing.integrations.trl.grpo import GrpoAudit
from truing.integrations.trl.rloo import RlooAudit
from truing.integrations.trl.sft import SftAudit

AUDITS: Mapping[str, type[GrpoAudit] | type[SftAudit]] = {
    "GRPOTrainer": GrpoAudit,
    "RLOOTrainer": RlooAudit,
    "SFTTrainer": SftAudit,
}
"""The audit of each of TRL's trainers, by the name of its class."""


def audit(
    trainer: Any,
    *,
    stop: bool = False,
    out: Path | str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Audit:
    """Diagnose every step of a trainer; call it before ``trainer.train()``.

    Args:
        trainer: a TRL trainer.
        stop: raise at the first step with a proven fault.
        out: a new folder that stores the audited steps for ``truing check``.
        select: codes or families of rules; by default all.
        ignore: codes or families to leave out.
    """
    peft = getattr(getattr(trainer, "model", None), "active_peft_config", None)
    if peft is not None and peft.is_prompt_learning:
        raise RecipeError(
            "a policy with learned prompt tokens cannot be audited",
            got=type(peft).__name__,
            expected="a model without prompt tuning, with or without an adapter",
        )
    # a subclass in TRL itself, such as GKDTrainer, has a loss of its own; one of a script is audited
    names = [each.__name__ for each in type(trainer).__mro__ if each.__module__.split(".")[0] == "trl"]
    kind = AUDITS.get(names[0]) if names else None
    if kind is None or not all(hasattr(trainer, name) for name in kind.required_attributes):
        raise RecipeError(
            "this trainer cannot be audited",
            got=type(trainer).__name__,
            expected=f"{', '.join(AUDITS)} of TRL 1.13 to 1.16, or a subclass of one",
            remedy="its samples, loss, gradient and weights are not checked; any trainer can write a trace,"
            " which truing check judges: truing explain trace",
        )
    return kind(trainer, stop=stop, out=None if out is None else Path(out), select=select, ignore=ignore)
