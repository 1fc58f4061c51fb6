"""Entry point of TRL audits: ``audit(trainer)``, called before ``trainer.train()``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from truing.errors import RecipeError
from truing.integrations.trl.base import Audit
from truing.integrations.trl.grpo import GrpoAudit
from truing.integrations.trl.sft import SftAudit

AUDITS: tuple[type[GrpoAudit] | type[SftAudit], ...] = (GrpoAudit, SftAudit)
"""Kinds of audit; the first whose required attributes the trainer has is used."""


def audit(
    trainer: Any,
    *,
    stop: bool = False,
    out: Path | str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Audit:
    """Diagnose every update of a trainer; call it before ``trainer.train()``.

    Args:
        trainer: a TRL trainer.
        stop: raise at the first update with a proven fault.
        out: a new folder that stores the audited updates for ``truing check``.
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
    for kind in AUDITS:
        if all(hasattr(trainer, name) for name in kind.required_attributes):
            folder = None if out is None else Path(out)
            return kind(trainer, stop=stop, out=folder, select=select, ignore=ignore)
    raise RecipeError(
        "this trainer cannot be audited",
        got=type(trainer).__name__,
        expected="a GRPOTrainer or SFTTrainer of TRL 1.16",
    )
