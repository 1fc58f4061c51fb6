"""Samples made by hand, for tests of what is done with them."""

import torch

from truing.contract import RAW, SamplingContract
from truing.outcomes import FinishReason
from truing.types import Origin, Sample, TurnSpan


def sample(prompt: list[int], answer: list[int], *, name: str = "s", group: str = "g", **known) -> Sample:
    """A one-turn rollout: sampled log-probabilities are −1 each unless given."""
    start, length = len(prompt), len(prompt) + len(answer)
    drawn = torch.arange(length) >= start
    contract: SamplingContract = known.pop("contract", RAW)
    logprob = torch.where(drawn, -1.0, torch.nan)
    return Sample.bare(
        sample_id=name,
        group_id=group,
        task_id=group,
        family="test",
        prompt_hash=str(prompt),
        prompt_length=start,
        contract=contract,
        token_ids=torch.tensor(prompt + answer),
        origin=torch.where(drawn, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        **{
            "rollout_id": name,
            "turns": (TurnSpan(start, length, FinishReason.STOP, 0, ""),),
            "policy_mask": drawn,
            "kl_mask": drawn,
            "value_mask": drawn,
            "sampler_logprob": logprob,
            "old_logprob": logprob,
            "old_source": "sampler",
        }
        | known,
    )
