"""Forced tokens are trained as if the policy had chosen them with certainty."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from truing.types.token import Excluded, Origin


def _from_its_prefix(span, forced):
    start = span.start
    while start and forced[start - 1]:
        start -= 1
    return replace(span, start=start)


def _wrong(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        forced = original.origin == Origin.FORCED
        on = original.policy_mask | forced
        logprob = original.sampler_logprob.masked_fill(forced, 0.0)
        return replace(
            original,
            turns=tuple(_from_its_prefix(span, forced) for span in original.turns),
            origin=original.origin.masked_fill(forced, Origin.SAMPLED),
            excluded=original.excluded.masked_fill(forced, Excluded.NO),
            policy_mask=on,
            kl_mask=on,
            value_mask=on,
            sampler_logprob=logprob,
            old_logprob=logprob,
        )

    return sample


FAULT = Fault(
    name="forced-as-sampled",
    numbers=(23,),
    what="forced tokens are labelled as sampled, with log-probability 0",
    plant=lambda: patched("truing.rollouts.flatten:_sample", _wrong),
    expected=("TOK001", "SMP004"),
    changes={"episode.forced_prefix": "12", "episode.force_rate": 1.0},
)
