"""The trainer's log-probabilities."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS


def without_support(real):
    """Return a replacement of ``contract_logits`` in which every token is possible."""

    def logits(logits_NV, sampling_params, *args, support_NV=None, **kwargs):
        return real(logits_NV, replace(sampling_params, top_p=1.0), *args, **kwargs)

    return logits


NUCLEUS_NOT_IN_TRAINER = Fault(
    name="nucleus-not-in-trainer",
    numbers=(19,),
    what="the trainer ignores the nucleus",
    plant=lambda: patched("truing.models.forward.score:processed_logits", without_support),
    expected=("SMP005", "RAT002"),
    changes={"sampling.top_p": 0.7, "sft.steps": 20},
)


GRAMMAR_NOT_IN_TRAINER = Fault(
    name="grammar-not-in-trainer",
    numbers=(24,),
    what="the trainer ignores the grammar of calls",
    plant=lambda: patched("truing.models.forward.score:processed_logits", without_support),
    expected=("SMP005", "RAT002"),
    changes=CALLS,
)


SHARE_hidden_states_off = 1e-4
"""Log-probabilities move by some 2e-5 nats, less than rounding moves a few tokens now and then."""


def _hidden_states_off(real):
    def hidden_before(*args, **kwargs):
        hidden_ND = real(*args, **kwargs)
        return hidden_ND + SHARE_hidden_states_off * hidden_ND.detach().roll(1, -1)

    return hidden_before


HIDDEN_STATES_OFF = Fault(
    name="hidden-states-off",
    numbers=(70,),
    what="the trainer's hidden states are off by one part in ten thousand, everywhere",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _hidden_states_off),
    expected=("SMP005", "RAT002"),
    not_in_bfloat16="below bfloat16's rounding: it moves log-probabilities by 2e-5 nats, rounding by 1e-3",
)


def _logits_not_shifted(real):
    def hidden_before(causal, sequences, index_2N, **kwargs):
        here = index_2N.clone()
        ends = index_2N.new_tensor([len(sequence) - 1 for sequence in sequences])[index_2N[0]]
        here[1] = (here[1] + 1).minimum(ends)
        return real(causal, sequences, here, **kwargs)

    return hidden_before


LOGITS_NOT_SHIFTED = Fault(
    name="logits-not-shifted",
    numbers=(3,),
    what="the trainer's logits are not shifted",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _logits_not_shifted),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)


def _min_tokens_not_in_trainer(real):
    def logits(logits_NV, sampling_params, *args, **kwargs):
        return real(logits_NV, replace(sampling_params, min_new_tokens=0), *args, **kwargs)

    return logits


MIN_TOKENS_NOT_IN_TRAINER = Fault(
    name="min-tokens-not-in-trainer",
    numbers=(21, 22),
    what="the trainer ignores the ban of stops",
    plant=lambda: patched("truing.models.forward.score:processed_logits", _min_tokens_not_in_trainer),
    expected=("SMP005", "RAT002"),
    changes={"sampling.min_new_tokens": 3, "sft.steps": 20},
)


def _penalty_on_prompt(real):
    return lambda sample, t: sample.token_ids[:t]


PENALTY_ON_PROMPT = Fault(
    name="penalty-on-prompt",
    numbers=(20,),
    what="penalties count the tokens of the prompt",
    plant=lambda: patched("truing.models.forward.score:_generated", _penalty_on_prompt),
    expected=("SMP005", "RAT002"),
    changes={"sampling.presence_penalty": 1.0},
)


def _scored(real):
    return lambda sample, t: sample.token_ids[:t]


def _begun(real):
    def begin(cls, request, sampling_params):
        row = real.__func__(cls, request, sampling_params)
        row.prompt = request.prompt_ids.tolist()
        return row

    return classmethod(begin)


def _drawn(real):
    def draw_ids(logits, rows, sampling_params):
        longest = max(len(row.prompt) for row in rows)
        table = [row.prompt + [-1] * (longest - len(row.prompt)) for row in rows]
        ids = torch.tensor(table)
        for n, row in enumerate(rows):
            for i in set(row.prompt) - set(row.ids):
                logits[n, i] -= sampling_params.presence_penalty * float((ids[n] == i).any())
        return real(logits, rows, sampling_params)

    return draw_ids


@contextmanager
def _both():
    with (
        patched("truing.models.forward.score:_generated", _scored),
        patched("truing.engines.base:ActiveRow.begin", _begun),
        patched("truing.engines.local.running_batch:draw_ids", _drawn),
    ):
        yield


PENALTY_ON_PROMPT_EVERYWHERE = Fault(
    name="penalty-on-prompt-everywhere",
    numbers=(20,),
    what="sampler and trainer both count penalties on the prompt",
    plant=lambda: _both(),
    expected=("SMP004", "SMP005"),
    changes={"sampling.presence_penalty": 1.0, "eval.tasks": 0},
)


def _positions_run_on(real):
    def decode(causal, ids_L, positions_L, attention):
        return real(causal, ids_L, torch.arange(len(positions_L)), attention)

    return decode


POSITIONS_RUN_ON = Fault(
    name="positions-run-on",
    numbers=(6,),
    what="positions count through the batch, not within each row",
    plant=lambda: patched("truing.models.forward.hidden_states:decoder_states", _positions_run_on),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)


def _temperature_not_in_trainer(real):
    def logits(logits_NV, sampling_params, *args, **kwargs):
        return real(logits_NV, replace(sampling_params, temperature=1.0), *args, **kwargs)

    return logits


TEMPERATURE_NOT_IN_TRAINER = Fault(
    name="temperature-not-in-trainer",
    numbers=(17,),
    what="the trainer ignores the temperature",
    plant=lambda: patched("truing.models.forward.score:processed_logits", _temperature_not_in_trainer),
    expected=("SMP005", "RAT002"),
    changes={"sampling.temperature": 0.7},
)


def _trainer_lost_a_token(real):
    def hidden_before(causal, sequences, index_2N, **kwargs):
        here = index_2N.clone()
        here[1] -= 1
        return real(causal, [sequence[1:] for sequence in sequences], here, **kwargs)

    return hidden_before


TRAINER_LOST_A_TOKEN = Fault(
    name="trainer-lost-a-token",
    numbers=(11, 15),
    what="the trainer's prompt is one token shorter than the sampler's",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _trainer_lost_a_token),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)


SHARE_tree_leak = 1e-3
"""Of the other branch's values: log-probabilities move by some 1e-4 nats, and rounding moves them by 5e-7."""


def _tree_leak(real):
    def forward(ctx, q, k, v, segments, scale):
        out = real.__func__(ctx, q, k, v, segments, scale)
        times = q.shape[1] // v.shape[1]
        leaves = [(start, end) for start, end, last in segments if last == end]
        for (start, end), (other, stop) in pairwise(leaves):
            length = min(end - start, stop - other)
            seen = v[:, :, start : start + length].repeat_interleave(times, 1)
            out[:, :, other : other + length] += SHARE_tree_leak * seen
        return out

    return staticmethod(forward)


TREE_LEAK = Fault(
    name="tree-leak",
    numbers=(70,),
    what="a branch of the tree sees a little of its neighbour",
    plant=lambda: patched("truing.models.forward.tree_attention:_TreeAttention.forward", _tree_leak),
    expected=("SMP006",),
    not_in_bfloat16="below bfloat16's rounding: it moves log-probabilities by 1e-4 nats, rounding by 1e-3",
)


def _shifted_in_some_rows(real):
    def with_reference_logprobs(samples, learner):
        rows = []
        for number, row in enumerate(real(samples, learner)):
            ref = row.ref_logprob.clone()
            if number % 16 == 7:
                ref[row.kl_mask] = ref[row.kl_mask].roll(1)
            rows.append(replace(row, ref_logprob=ref))
        return rows

    return with_reference_logprobs


REFERENCE_SHIFTED_IN_SOME_ROWS = Fault(
    name="reference-shifted-in-some-rows",
    numbers=(51,),
    what="one row in sixteen has the reference's log-probabilities one token late",
    plant=lambda: patched("truing.learner.step:with_reference_logprobs", _shifted_in_some_rows),
    expected=("REF004",),
    changes={"kl.coef": 0.05, "sampling.max_new_tokens": 8, "sft.steps": 10},
)
