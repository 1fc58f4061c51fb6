"""Whether an update is made: what must hold of a step before it is computed, or its gradient used."""

from collections.abc import Sequence

import torch

from truing.algos import UpdateConfig
from truing.config import PolicyStage
from truing.errors import GateError, Unstable
from truing.metrics.token_streams import TokenStreams, drop_nan
from truing.ops.kl import kl_k3
from truing.ops.ratios import log_ratio, within_bounds
from truing.types.sample import Sample
from truing.types.token import Origin


def skip_step_reason(samples: Sequence[Sample], setting: UpdateConfig) -> str:
    """Why a step has too little to learn from; "" where it has enough."""
    gates = setting.gates
    if not isinstance(setting.stage, PolicyStage) or not (
        gates.min_trained_tokens or gates.min_trained_share
    ):
        return ""
    trained = sum(int(sample.policy_mask.sum()) for sample in samples)
    if trained < gates.min_trained_tokens:
        return f"{trained} tokens are under the policy term, fewer than {gates.min_trained_tokens}"
    origins = torch.cat([sample.origin for sample in samples])
    written = int(((origins == Origin.SAMPLED) | (origins == Origin.FORCED)).sum())
    if trained < gates.min_trained_share * written:
        share = f"{trained} of {written} tokens that were sampled or forced"
        return f"{share} are under the policy term, less than {gates.min_trained_share:.0%}"
    return ""


def skip_update_reason(
    samples: Sequence[Sample],
    logprob: dict[str, torch.Tensor],
    setting: UpdateConfig,
    inner_step: int,
    where: str,
) -> str:
    """Why an update is not made: the policy is too far from its reference; "" where it is not.

    Args:
        samples: of the minibatch.
        logprob: by sample id, [T] nats, as this inner step's forward found it.
        setting: with the cap, and what is to be done beyond it.
        inner_step: which update of the step, from 0.
        where: for the error.
    """
    cfg = setting.kl
    if cfg.cap is None or not isinstance(setting.stage, PolicyStage):
        return ""
    apart = [
        kl_k3(logprob[sample.sample_id], sample.ref_logprob)[sample.kl_mask]
        for sample in samples
        if sample.sample_id in logprob
    ]
    apart_N = torch.cat(apart) if apart else torch.empty(0)
    if not len(apart_N) or (kl := float(apart_N.mean())) <= cfg.cap:  # demonstrations alone have none
        return ""
    found = f"the policy is {kl:.3g} nats per token from its reference, more than kl.cap = {cfg.cap:g}"
    if cfg.cap_action == "rollback":
        raise Unstable(f"{found} at {where}", remedy="[guard] says what becomes of it")
    if cfg.cap_action == "stop":
        raise GateError(
            f"{found} at {where}",
            expected="less",
            remedy="lower the learning rate, raise kl.coef, or set kl.cap_action; checkpoints are kept",
        )
    return found if cfg.cap_action == "skip" or inner_step > 0 else ""


def gate_metrics(
    tokens: TokenStreams, setting: UpdateConfig, skipped: int, equal_groups: int
) -> dict[str, float]:
    """What the gates of a step kept out, where the recipe has any."""
    gates, found = setting.gates, {}
    if not isinstance(setting.stage, PolicyStage):
        return found
    if gates.equal_groups != "count":
        found["gate/equal_groups"] = float(equal_groups)
    if setting.kl.cap is not None or gates.min_trained_tokens or gates.min_trained_share:
        found["gate/held_back"] = float(skipped)
    if gates.min_ratio is not None or gates.max_ratio is not None:
        (log_ratio_N,) = drop_nan(
            log_ratio(tokens.stream("new_logprob"), tokens.stream("old_logprob"))[tokens.policy]
        )
        if len(log_ratio_N):
            kept_N = within_bounds(log_ratio_N, gates.min_ratio, gates.max_ratio)
            found["gate/ratio_masked_share"] = float((~kept_N).double().mean())
    return found
