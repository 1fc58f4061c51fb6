"""Which tokens the loss trains."""

from contextlib import nullcontext
from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS
from truing.algos.flatten import without_policy_term
from truing.types.token import Excluded

ALL_CUT_AND_MASKED = Fault(
    name="all-cut-and-masked",
    numbers=(72,),
    what="no token is trained: every rollout is cut, and the gate masks cut rollouts",
    plant=nullcontext,
    expected=("MSK009",),
    changes={
        "gates.truncated": "mask",
        "sampling.min_new_tokens": 4,
        "grpo.steps": 12,
    },
)


def _bad_rollouts_masked(real):
    def gated(samples, rollouts, setting):
        return [
            without_policy_term(sample, Excluded.STRUCTURE) if sample.reward < 0.2 else sample
            for sample in real(samples, rollouts, setting)
        ]

    return gated


BAD_ROLLOUTS_MASKED = Fault(
    name="bad-rollouts-masked",
    numbers=(60,),
    what="rollouts that failed are masked whole",
    plant=lambda: patched("truing.rollouts.step_samples:_without_truncated", _bad_rollouts_masked),
    expected=("MSK006", "MSK002"),
)


def _count_as_position(real):
    def collate(samples):
        batch = real(samples)
        pads = [batch.valid.shape[1] - len(sample) for sample in samples]
        moved = torch.stack([row.roll(-n) for row, n in zip(batch.policy_mask, pads, strict=True)])
        advantages = [sample.advantage.nan_to_num()[sample.policy_mask][:1] for sample in samples]
        rows = torch.stack([torch.cat([each, each.new_zeros(1)])[0] for each in advantages])
        return replace(
            batch,
            policy_mask=moved,
            old_logprob=batch.old_logprob.nan_to_num(),
            advantage=rows[:, None].expand(moved.shape),
        )

    return collate


COUNT_AS_POSITION = Fault(
    name="count-as-position",
    numbers=(4, 5),
    what="the mask is placed by valid_len − resp_len, as if padding were on the other side",
    plant=lambda: patched("truing.learner.step:collate", _count_as_position),
    expected=("MSK003",),
)


EVERY_TURN_FORCED = Fault(
    name="every-turn-forced",
    numbers=(72,),
    what="no token is trained: every turn begins with forced tokens, and the mask leaves such turns out",
    plant=nullcontext,
    expected=("MSK009",),
    changes={
        "episode.mask": "action",
        "episode.forced_prefix": "1",
        "episode.force_rate": 1.0,
        "grpo.steps": 12,
    },
)


def _kl_mask_short(real):
    def kl_mask(origin_T):
        mask_T = real(origin_T).clone()
        mask_T[mask_T.nonzero()[1:, 0][-1:]] = False
        return mask_T

    return kl_mask


KL_MASK_SHORT = Fault(
    name="kl-mask-short",
    numbers=(104,),
    what="the KL loss leaves out the last token of each answer",
    plant=lambda: patched("truing.algos.flatten:kl_mask", _kl_mask_short),
    expected=("MSK002",),
    changes={"kl.coef": 0.05},
)


TEMPLATE_LIKE_IDS = {ord(character) for character in '{}",:0'}
"""The tiny model reads bytes."""


def _mask_by_id(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        forced = original.token_ids.new_tensor(
            [int(i) in TEMPLATE_LIKE_IDS for i in original.token_ids]
        ).bool()
        off = original.policy_mask & forced
        why = original.excluded.masked_fill(off, Excluded.STRUCTURE)
        return replace(original, policy_mask=original.policy_mask & ~off, excluded=why)

    return sample


MASK_BY_ID = Fault(
    name="mask-by-id",
    numbers=(25,),
    what="tokens are masked by their id, whatever their origin",
    plant=lambda: patched("truing.algos.flatten:_sample", _mask_by_id),
    expected=("MSK002",),
    changes={"sft.steps": 15},
)


def _mask_list_versus_id(real):
    def excluded(origin_T, structure_T, forced_T, policy):
        return real(origin_T, torch.zeros_like(structure_T), forced_T, policy)

    return excluded


MASK_LIST_VERSUS_ID = Fault(
    name="mask-list-versus-id",
    numbers=(25,),
    what="an id is compared with a list of ids, and no scaffolding is ever masked",
    plant=lambda: patched("truing.algos.flatten:exclusion_reasons", _mask_list_versus_id),
    expected=("MSK002",),
    changes={**CALLS, "episode.mask": "no_structure"},
)


def _early(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        shifted = mask.roll(-1, dims=1)
        filled = advantage.nan_to_num().where(mask, advantage.nan_to_num().roll(-1, dims=1))
        return real(logprob, old.nan_to_num(), filled, shifted, **kwargs)

    return loss


MASK_SHIFTED = Fault(
    name="mask-shifted",
    numbers=(3,),
    what="the mask of the policy loss is one token too early",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _early),
    expected=("MSK003",),
)


def _padding_trained(real):
    def to_completion(self, sampling_params, *weights):
        one = real(self, sampling_params, *weights)
        left = sampling_params.max_new_tokens - len(one.token_ids)
        return replace(
            one,
            token_ids=torch.cat([one.token_ids, one.token_ids[-1:].expand(left)]),
            origin=torch.cat([one.origin, one.origin[-1:].expand(left)]),
            logprob=torch.cat([one.logprob, one.logprob[-1:].expand(left)]),
        )

    return to_completion


PADDING_TRAINED = Fault(
    name="padding-trained",
    numbers=(8,),
    what="padding after the stop is trained as if the policy had chosen it",
    plant=lambda: patched("truing.engines.base:ActiveRow.to_completion", _padding_trained),
    expected=("MSK005",),
    changes={"stages": ["sft", "grpo"], "sft.steps": 30},
)


def _prompt_in_loss(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        # each row's own advantage, on all of its tokens
        row = advantage.nan_to_num().sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        everything = mask.new_ones(mask.shape)
        everything[:, 0] = False
        return real(logprob, old.nan_to_num(), row.expand_as(mask), everything, **kwargs)

    return loss


PROMPT_IN_LOSS = Fault(
    name="prompt-in-loss",
    numbers=(1,),
    what="the policy loss trains the prompt too",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _prompt_in_loss),
    expected=("MSK003", "MSK001"),
)


def _stop_masked(real):
    def sample(*args, **kwargs):
        original = real(*args, **kwargs)
        stops = (
            original.token_ids[:, None] == original.token_ids.new_tensor(original.sampling_params.stop_ids)
        ).any(1)
        off = original.policy_mask & stops
        why = original.excluded.masked_fill(off, Excluded.STRUCTURE)
        return replace(original, policy_mask=original.policy_mask & ~off, excluded=why)

    return sample


STOP_MASKED = Fault(
    name="stop-masked",
    numbers=(7,),
    what="the stop token is masked because its id is the pad id",
    plant=lambda: patched("truing.algos.flatten:_sample", _stop_masked),
    expected=("MSK002", "MSK004"),
)


def _tool_results_in_loss(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        after = mask.cumsum(1) > 0
        before_the_end = mask.flip(1).cumsum(1).flip(1) > 0
        row = advantage.nan_to_num().sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return real(logprob, old.nan_to_num(), row.expand_as(mask), after & before_the_end, **kwargs)

    return loss


TOOL_RESULTS_IN_LOSS = Fault(
    name="tool-results-in-loss",
    numbers=(2,),
    what="the policy loss trains tool results",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _tool_results_in_loss),
    expected=("MSK003",),
    changes=CALLS,
)
