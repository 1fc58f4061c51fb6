"""The weights of the sampler and of the reference."""

from dataclasses import replace
from itertools import count

import torch

from dev.faults.fault import NO_SYNC, Fault, patched


def _half_synced(real):
    def sync(policy, plain):
        before = {name: weight.detach().clone() for name, weight in plain.named_parameters()}
        real(policy, plain)
        with torch.no_grad():
            for n, (name, weight) in enumerate(plain.named_parameters()):
                if n % 2:
                    weight.copy_(before[name])

    return sync


HALF_SYNCED = Fault(
    name="half-synced",
    numbers=(26, 27),
    what="half of the layers are missing in the sync",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _half_synced),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4},
    not_in_bfloat16=NO_SYNC,
)


def _other_share_kept(real):
    def average(before, now, keep):
        return real(before, now, 0.5)

    return average


OTHER_SHARE_KEPT = Fault(
    name="other-share-kept",
    numbers=(),
    what="a sync of the reference keeps half of it instead of the declared nine tenths",
    plant=lambda: patched("truing.models.reference:ema_update", _other_share_kept),
    expected=("REF005",),
    changes={"kl.coef": 0.05, "reference.sync_every": 1, "reference.keep": 0.9, "lora.rank": 4},
)


def _reference_is_base(real):
    return lambda policy: True


REFERENCE_IS_BASE = Fault(
    name="reference-is-base",
    numbers=(51, 52),
    what="the reference is the base model, not the start of the stage",
    plant=lambda: patched("truing.models.reference:adapter_is_zero", _reference_is_base),
    expected=("REF002",),
    changes={"kl.coef": 0.05, "lora.rank": 4, "sft.steps": 10, "sft.learning_rate": 0.01},
)


def _reference_is_policy(real):
    def open_learner(*args, **kwargs):
        learner = real(*args, **kwargs)
        if learner.reference is not None:
            learner.reference.policy = learner.model
        return learner

    return open_learner


REFERENCE_IS_POLICY = Fault(
    name="reference-is-policy",
    numbers=(50,),
    what="the reference shares the policy's weights",
    plant=lambda: patched("truing.trainer.stage_trainer:open_learner", _reference_is_policy),
    expected=("REF001", "REF003"),
    refusal="the reference changed without a sync",
    changes={"kl.coef": 0.05},
)


def _reference_of_other_prompt(real):
    def scored(samples, learner):
        def raw(sample):
            ids = sample.token_ids.clone()
            ids[: sample.prompt_length] = ids[: sample.prompt_length].roll(1)
            return replace(sample, token_ids=ids)

        ref_logprobs = {each.sample_id: each.ref_logprob for each in real([raw(s) for s in samples], learner)}
        return [replace(sample, ref_logprob=ref_logprobs[sample.sample_id]) for sample in samples]

    return scored


REFERENCE_OF_OTHER_PROMPT = Fault(
    name="reference-of-other-prompt",
    numbers=(13,),
    what="the KL is to the reference on an unformatted prompt",
    plant=lambda: patched("truing.learner.step:with_reference_logprobs", _reference_of_other_prompt),
    expected=("REF004",),
    changes={"kl.coef": 0.05},
)


def _sampler_in_bfloat16(real):
    def sync(policy, plain):
        real(policy, plain)
        with torch.no_grad():
            for weight in plain.parameters():
                weight.copy_(weight.bfloat16().float())

    return sync


SAMPLER_IN_BFLOAT16 = Fault(
    name="sampler-in-bfloat16",
    numbers=(28,),
    what="the sampler's weights are rounded to bfloat16",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _sampler_in_bfloat16),
    expected=("SMP003", "SMP004", "REF001", "OPT018"),
    changes={"lora.rank": 4},
    not_in_bfloat16="no fault: the sampler is declared to compute in bfloat16",
)


def _sampler_one_behind(real):
    calls = count()
    return lambda policy, plain: real(policy, plain) if next(calls) % 2 == 0 else None


SAMPLER_ONE_BEHIND = Fault(
    name="sampler-one-behind",
    numbers=(26,),
    what="every second sync is missing",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _sampler_one_behind),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4, "stages": ["grpo"], "grpo.steps": 4},
    not_in_bfloat16=NO_SYNC,
)


def _stale_sampler(real):
    return lambda policy, plain: None


STALE_SAMPLER = Fault(
    name="stale-sampler",
    numbers=(26, 27),
    what="the adapter never reaches the sampler",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _stale_sampler),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4, "eval.tasks": 0},
    not_in_bfloat16=NO_SYNC,
)


def _sync_left_out(real):
    def sync(self, parameters, keep):
        self.record_digest()

    return sync


SYNC_LEFT_OUT = Fault(
    name="sync-left-out",
    numbers=(),
    what="declared syncs of the reference are missing",
    plant=lambda: patched("truing.models.reference:Reference.sync", _sync_left_out),
    expected=("REF005",),
    changes={"kl.coef": 0.05, "reference.sync_every": 1},
)


def _restored_as(weights_of):
    """Give the reference of a resumed run other weights than it began with."""

    def make(real):
        def restore(learner, folder):
            real(learner, folder)
            with torch.no_grad():
                for name, weight in learner.reference.synced_weights().items():
                    weight.copy_(weights_of(learner, name, weight))
            learner.reference.record_digest()

        return restore

    return patched("truing.learner.learner:Learner.restore", make)


RESUMED_REFERENCE = {"kl.coef": 0.05, "checkpoint_every": 1, "grpo.learning_rate": 1e-3, "sft.steps": 6}


REFERENCE_OF_CHECKPOINT = Fault(
    name="reference-of-checkpoint",
    numbers=(111,),
    what="a resumed run has the checkpoint's policy as its reference",
    plant=lambda: _restored_as(lambda learner, name, weight: learner.parameters[name]),
    expected=("REF001",),
    changes=RESUMED_REFERENCE,
    resumed_after=2,
)


REFERENCE_ROUNDED_ON_RESUME = Fault(
    name="reference-rounded-on-resume",
    numbers=(111,),
    what="a resumed run rounds its reference to bfloat16",
    plant=lambda: _restored_as(lambda learner, name, weight: weight.bfloat16()),
    expected=("REF001",),
    changes=RESUMED_REFERENCE,
    resumed_after=2,
    not_in_bfloat16="there the reference is in bfloat16",
)


REFERENCE_LAYER_LOST_ON_RESUME = Fault(
    name="reference-layer-lost-on-resume",
    numbers=(111,),
    what="a resumed run has one weight of its reference at 0",
    plant=lambda: _restored_as(
        lambda learner, name, weight: weight * 0 if "layers.1.mlp.up_proj" in name else weight
    ),
    expected=("REF001",),
    changes=RESUMED_REFERENCE,
    resumed_after=2,
)


SYNCED_REFERENCE_NOT_RESTORED = Fault(
    name="synced-reference-not-restored",
    numbers=(111,),
    what="a resumed run has its policy as the reference, not that of the last sync",
    plant=lambda: _restored_as(lambda learner, name, weight: learner.parameters[name]),
    expected=("REF001",),
    changes=RESUMED_REFERENCE | {"reference.sync_every": 2, "grpo.steps": 5},
    resumed_after=3,
)


def _synced_reference_remade(real):
    def restore(learner, folder):
        first = {name: weight.detach().clone() for name, weight in learner.reference.synced_weights().items()}
        real(learner, folder)
        for name, weight in learner.reference.synced_weights().items():
            weight.data.copy_(first[name])
        learner.reference.record_digest()

    return restore


SYNCED_REFERENCE_REMADE = Fault(
    name="synced-reference-remade",
    numbers=(50,),
    what="a resumed run has the stage's first reference in place of the synced one",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _synced_reference_remade),
    expected=("REF001",),
    changes={"kl.coef": 0.05, "reference.sync_every": 2, "reference.keep": 0.5, "checkpoint_every": 1}
    | {"grpo.learning_rate": 1e-2, "grpo.steps": 4},
    resumed_after=2,
)
