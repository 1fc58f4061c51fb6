"""Does a server read the beginning of a long prompt? In bfloat16 a cut prompt may be within rounding.

The server samples once more after the prompt with another beginning, with the same seed. If it never reads
the beginning, the answer is the same to the last bit.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from truing.engines.vllm.proof.canary import REMEDY, largest
from truing.engines.vllm.proof.turn_causes import Turn, turn_scores
from truing.errors import PublicationError
from truing.models.forward.rounding_noise import random_rounding
from truing.types.sampling_params import SamplingParams

PART = 4
"""The beginning is one part of this many."""

TIMES = 3
"""Multiples of the change by random rounding, of a beginning that matters."""


def with_other_beginning(prompt: Tensor) -> Tensor:
    """Return a prompt whose first part has its ids in the opposite order."""
    part = len(prompt) // PART
    return torch.cat([prompt[:part].flip(0), prompt[part:]])


def compare_beginnings(policy: nn.Module, turn: Turn, other: Turn, params: SamplingParams) -> None:
    """Raise if a turn is the same after a prompt with another beginning, and the trainer's is not.

    Args:
        policy: with the published weights.
        turn: after a long prompt.
        other: after the prompt with another beginning, with the same seed.
        params: the declared parameters.
    """
    (request, answer), (changed, second) = turn, other
    if not (answer.token_ids.equal(second.token_ids) and answer.logprob.equal(second.logprob)):
        return
    scores = turn_scores(policy, [turn], params)
    after_other = replace(request, prompt_ids=changed.prompt_ids), answer
    moved = largest(turn_scores(policy, [after_other], params) - scores)
    with random_rounding(policy, seed=0):
        rounding = largest(turn_scores(policy, [turn], params) - scores)
    if moved > TIMES * rounding:
        length = len(request.prompt_ids)
        raise PublicationError(
            f"the engine answers a prompt of {length} tokens without its first {length // PART},"
            " so the prompt is cut",
            got="the same log-probabilities to the last bit after another beginning",
            expected=f"a change of about {moved:.2g} nats; rounding changes {rounding:.2g}",
            remedy=REMEDY,
        )
