"""The reference scores the answer after another prompt than the policy saw."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def scored(samples, learner):
        def raw(sample):
            ids = sample.token_ids.clone()
            ids[: sample.prompt_length] = ids[: sample.prompt_length].roll(1)
            return replace(sample, token_ids=ids)

        ref_logprobs = {each.sample_id: each.ref_logprob for each in real([raw(s) for s in samples], learner)}
        return [replace(sample, ref_logprob=ref_logprobs[sample.sample_id]) for sample in samples]

    return scored


FAULT = Fault(
    name="reference-of-other-prompt",
    numbers=(13,),
    what="the KL is to the reference on an unformatted prompt",
    plant=lambda: patched("truing.learner.step:with_reference_logprobs", _wrong),
    expected=("REF004",),
    changes={"kl.coef": 0.05},
)
