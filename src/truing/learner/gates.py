"""Gates: reasons to skip a step before its forward, or an optimizer step after it."""

from collections.abc import Sequence

import torch

from truing.algos import StepConfig
from truing.config import PolicyStage
from truing.errors import GateError, Unstable
from truing.learner.optimizer_step import OptimizerStep
from truing.metrics.token_numbers import drop_nan
from truing.ops.kl import kl_k3
from truing.ops.ratios import log_ratio, within_bounds
from truing.types.sample import Sample
from truing.types.step_table import StepTable
from truing.types.token import Origin


def skip_step_reason(samples: Sequence[Sample], setting: StepConfig) -> str:
    """Return why a step has too few trained tokens; "" if it has enough."""
    gates = setting.gates
    if not isinstance(setting.stage, PolicyStage) or not (
        gates.min_trained_tokens or gates.min_trained_share
    ):
        return ""
    trained = sum(int(sample.policy_mask.sum()) for sample in samples)
    if trained < gates.min_trained_tokens:
        minimum = f"gates.min_trained_tokens = {gates.min_trained_tokens}"
        return f"the policy loss covers {trained} tokens, fewer than {minimum}"
    origins = torch.cat([sample.origin for sample in samples])
    generated = int(((origins == Origin.SAMPLED) | (origins == Origin.FORCED)).sum())
    if trained < gates.min_trained_share * generated:
        share = f"the policy loss covers {trained} of {generated} sampled and forced tokens"
        return f"{share}, less than gates.min_trained_share = {gates.min_trained_share:.0%}"
    return ""


def skip_reason(step: OptimizerStep, setting: StepConfig, name: str) -> str:
    """Return why an optimizer step is skipped: the KL to the reference is above ``kl.cap``; "" if it is not.

    Args:
        step: after its backward passes.
        setting: with the cap and the action above it.
        name: of the optimizer step, for the error.

    Raises:
        Unstable: the action is "rollback".
        GateError: the action is "stop".
    """
    cfg = setting.kl
    if cfg.cap is None or not isinstance(setting.stage, PolicyStage):
        return ""
    kl_parts = [
        kl_k3(step.stream("new_logprob", sample), sample.ref_logprob)[sample.kl_mask]
        for sample in step.computed
    ]
    kl_N = torch.cat(kl_parts) if kl_parts else torch.empty(0)
    if not len(kl_N) or (kl := float(kl_N.mean())) <= cfg.cap:  # demonstrations alone have no KL
        return ""
    reason = f"the policy is {kl:.3g} nats per token from its reference, more than kl.cap = {cfg.cap:g}"
    if cfg.cap_action == "rollback":
        raise Unstable(f"{reason} at {name}", remedy="[guard] decides what follows: add it to the recipe")
    if cfg.cap_action == "stop":
        raise GateError(
            f"{reason} at {name}",
            expected="at most kl.cap",
            remedy="lower the learning rate, raise kl.coef, or set kl.cap_action; checkpoints are kept",
        )
    return reason if cfg.cap_action == "skip" or step.index > 0 else ""


def gate_metrics(table: StepTable, setting: StepConfig, skipped: int, equal_groups: int) -> dict[str, float]:
    """Return the metrics ``gate/…`` of a step, for the gates that the recipe has."""
    gates, metrics = setting.gates, {}
    if not isinstance(setting.stage, PolicyStage):
        return metrics
    if gates.equal_groups != "count":
        metrics["gate/equal_groups"] = float(equal_groups)
    if setting.kl.cap is not None or gates.min_trained_tokens or gates.min_trained_share:
        metrics["gate/held_back"] = float(skipped)
    if gates.min_ratio is not None or gates.max_ratio is not None:
        (log_ratio_N,) = drop_nan(
            log_ratio(table.stream("new_logprob"), table.stream("old_logprob"))[table.policy]
        )
        if len(log_ratio_N):
            inside_N = within_bounds(log_ratio_N, gates.min_ratio, gates.max_ratio)
            metrics["gate/ratio_masked_share"] = float((~inside_N).double().mean())
    return metrics
