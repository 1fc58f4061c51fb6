"""What a rank computes otherwise, or sums otherwise with the others."""

from itertools import count

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from dev.faults.fault import Fault, patched
from truing.models.forward.score import score


def _rank_clips_by_own_norm(real):
    def gradient_norm(parameters):
        local = [weight.grad.to_local() for weight in parameters.values() if weight.grad is not None]
        return torch.nn.utils.get_total_norm(local)

    return gradient_norm


RANK_CLIPS_BY_OWN_NORM = Fault(
    name="rank-clips-by-own-norm",
    numbers=(97,),
    what="each rank clips by the norm of its own part of the gradient",
    plant=lambda: patched("truing.learner.optimizer:gradient_norm", _rank_clips_by_own_norm),
    expected=("DST004",),
    changes={"trainer.ranks": 2, "optimizer.max_grad_norm": 0.02},
)


def _rank_critic_averaged(real):
    def shard_critic(critic, *args, **options):
        real(critic, *args, **options)
        for part in critic.modules():  # in bfloat16 the head is sharded apart
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(2.0)

    return shard_critic


RANK_CRITIC_AVERAGED = Fault(
    name="rank-critic-averaged",
    numbers=(98,),
    what="the critic's gradient is averaged over ranks",
    plant=lambda: patched("truing.learner.learner:shard_critic", _rank_critic_averaged),
    expected=("OPT014",),
    changes={
        "trainer.ranks": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)


def _rank_critic_differs(real):
    def critic_of(policy, **options):
        critic = real(policy, **options)
        torch.nn.init.constant_(critic.head.bias, 0.1)
        return critic

    return critic_of


RANK_CRITIC_DIFFERS = Fault(
    name="rank-critic-differs",
    numbers=(98,),
    what="one replica begins with another critic",
    plant=lambda: patched("truing.learner.learner:Critic", _rank_critic_differs),
    expected=("DST001",),
    changes={
        "trainer.ranks": 2,
        "trainer.replicate": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
    on_ranks=(1,),
)


RANK_CRITIC_NOT_SUMMED = Fault(
    name="rank-critic-not-summed",
    numbers=(98,),
    what="the critic's gradient is not summed over ranks",
    plant=lambda: patched("truing.learner.learner:shard_critic", lambda real: lambda *_, **__: None),
    expected=("OPT014",),
    changes={
        "trainer.ranks": 2,
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)


RANK_GRADIENTS_AVERAGED = Fault(
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


def _rank_own_advantages(real):
    def group_advantages(rewards, group, scale, eps=1e-4):
        own = group % 2 == dist.get_rank()
        return real(rewards, group, scale, eps) * (rewards.std() / rewards[own].std())

    return group_advantages


RANK_OWN_ADVANTAGES = Fault(
    name="rank-own-advantages",
    numbers=(99,),
    what="each rank divides advantages by the deviation of its own groups",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _rank_own_advantages),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "grpo.advantage_scale": "batch"},
)


def _rank_own_denominators(real):
    def backward(learner, micro, terms_with_denominator, done, where, *hooks):
        terms = [term for term, _ in terms_with_denominator]
        rows = [row for row in done.samples if any(term.has_gradient(row) for term in terms)]
        own = [row for part in learner.micro_batches(rows) if not part.is_padding for row in part.samples]
        if not where.startswith("the doctor"):
            terms_with_denominator = [(term, term.denominator(own)) for term in terms]
        real(learner, micro, terms_with_denominator, done, where, *hooks)

    return backward


RANK_OWN_DENOMINATORS = Fault(
    name="rank-own-denominators",
    numbers=(91,),
    what="each rank divides the loss by its own tokens",
    plant=lambda: patched("truing.learner.step:backward", _rank_own_denominators),
    expected=("DST003",),
    changes={"trainer.ranks": 2, "sft.batch_size": 5},
    seen=("prime-rl#2358", "verl#5625", "miles#3231"),
)


def _rank_reference_is_policy(real):
    def make_reference(policy, **options):
        reference = real(policy, **options)
        reference.score = lambda batch, mask_BT: score(policy, batch, mask_BT)
        return reference

    return make_reference


RANK_REFERENCE_IS_POLICY = Fault(
    name="rank-reference-is-policy",
    numbers=(94,),
    what="one rank scores its rows with the policy in place of the reference",
    plant=lambda: patched("truing.learner.learner:make_reference", _rank_reference_is_policy),
    expected=("REF004",),
    changes={"trainer.ranks": 2, "trainer.replicate": 2, "kl.coef": 0.05},
    on_ranks=(1,),
)


RANK_REFERENCE_SHARD_STALE = Fault(
    name="rank-reference-shard-stale",
    numbers=(94,),
    what="a sync of the reference leaves out the shard of one rank",
    plant=lambda: patched("truing.models.reference:copy_whole", lambda real: lambda target, source: None),
    expected=(),
    refusal="the sync gave the reference wrong weights",
    changes={"trainer.ranks": 2, "kl.coef": 0.05, "reference.sync_every": 1},
    on_ranks=(1,),
)


RANK_REFERENCE_STALE = Fault(
    name="rank-reference-stale",
    numbers=(94,),
    what="one rank keeps the reference of before a sync",
    plant=lambda: patched(
        "truing.learner.learner:Learner.sync_reference", lambda real: lambda learner, steps: False
    ),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "trainer.replicate": 2, "kl.coef": 0.05, "reference.sync_every": 1},
    on_ranks=(1,),
)


def _rank_rows_twice(real):
    def assign(rows, ranks, unit, cost):
        shares = real(rows, ranks, unit, cost)
        first = [row for row in shares[0] if unit(row) == unit(shares[0][0])]
        return [shares[0], first + shares[1]]

    return assign


RANK_ROWS_TWICE = Fault(
    name="rank-rows-twice",
    numbers=(93,),
    what="two ranks compute the rows of one group",
    plant=lambda: patched("truing.learner.learner:assign", _rank_rows_twice),
    expected=("DST002",),
    changes={"trainer.ranks": 2},
)


def _rank_sampler_stale(real):
    past = list[dict[str, torch.Tensor]]()

    @torch.no_grad()
    def gather_weights(policy):
        real(policy)
        own = {name: policy.whole_module.get_parameter(name) for name in policy.parameters}
        past.append({name: weight.clone() for name, weight in own.items()})
        for name, weight in own.items():
            weight.copy_(past[-2:][0][name])

    return gather_weights


RANK_SAMPLER_STALE = Fault(
    name="rank-sampler-stale",
    numbers=(99,),
    what="one rank samples with the weights of the publication before",
    plant=lambda: patched("truing.models.policy:Policy.gather_weights", _rank_sampler_stale),
    expected=("DST001",),
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


def _rank_skips_micro_batch(real):
    calls = count()

    def backward(learner, micro, terms_with_denominator, done, where, *hooks):
        is_dropped = not where.startswith("the doctor") and next(calls) % 2
        real(
            learner,
            micro._replace(is_padding=True) if is_dropped else micro,
            terms_with_denominator,
            done,
            where,
            *hooks,
        )

    return backward


RANK_SKIPS_MICRO_BATCH = Fault(
    name="rank-skips-micro-batch",
    numbers=(93,),
    what="one rank drops every second micro-batch",
    plant=lambda: patched("truing.learner.step:backward", _rank_skips_micro_batch),
    expected=("DST002",),
    changes={"trainer.ranks": 2, "optimizer.micro_batch_tokens": 64},
    on_ranks=(1,),
)


def _rank_weights_differ(real):
    def step(optimizer, *args):
        norms = real(optimizer, *args)
        with torch.no_grad():
            optimizer.param_groups[0]["params"][3].to_local().mul_(1.001)
        return norms

    return step


RANK_WEIGHTS_DIFFER = Fault(
    name="rank-weights-differ",
    numbers=(99,),
    what="the weights of one replica drift away from the others",
    plant=lambda: patched("truing.learner.step:clip_and_step", _rank_weights_differ),
    expected=("DST001",),
    refusal="the evaluation has other weights than declared",
    changes={"trainer.ranks": 2, "trainer.replicate": 2},
    on_ranks=(1,),
)
