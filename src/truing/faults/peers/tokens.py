"""The recorded tokens of a run: the chosen ones, row by row."""

from typing import Any

from torch import Tensor

from truing.faults.peers.recorded import Update
from truing.record import SampleRow
from truing.types.token import Origin


def rows_of(update: Update) -> list[SampleRow]:
    """Return the rows of an update with chosen tokens; demonstrations have none."""
    return [each for each in update.rows if bool(sampled(each).any())]


def sampled(row: SampleRow) -> Tensor:
    """Return the chosen tokens, [T] bool."""
    return row.sample.origin == Origin.SAMPLED


def has_sampler_logprobs(row: SampleRow) -> bool:
    """Return whether the sampler gave a log-probability for every chosen token."""
    return bool(row.sample.sampler_logprob[sampled(row)].isfinite().all())


def scored(row: SampleRow) -> Tensor:
    """Return the chosen tokens with a trainer's log-probability, [T] bool."""
    return sampled(row) & row.new_logprob.isfinite()


def answer_of(row: SampleRow) -> dict[str, Any]:
    """Return a row for sampler and trainer: the prompt, the chosen ids, both log-probabilities.

    The trainer's are empty if the row was not computed.
    """
    sample, where, known = row.sample, sampled(row), scored(row)
    whole = bool((where == known).all())
    return {
        "prompt_ids": sample.token_ids[: sample.prompt_length].tolist(),
        "token_ids": sample.token_ids[where].tolist(),
        "sampler": sample.sampler_logprob[where].tolist(),
        "trainer": row.new_logprob[where].tolist() if whole else [],
        "inner_step": max(row.inner_step, 0),
        "advantage": float(sample.advantage[where].nan_to_num().mean()),
    }
