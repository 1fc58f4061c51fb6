"""A loss term that is not finite: the number that it lacks, and where."""

import math
from dataclasses import replace

import pytest
import torch
from samples import sample

from truing.errors import NonFiniteError
from truing.learner.loss_check import check_loss
from truing.models.forward.collate import collate
from truing.types.batch import Scores


def scores(batch, **changes):
    zeros = torch.zeros(batch.token_ids.shape)
    return replace(Scores(zeros, zeros, zeros, value=zeros), **changes)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_it_names_the_stream_and_the_first_token(value):
    whole = sample([1, 2], [3, 4], name="a", ref_logprob=torch.zeros(4))
    lacking = sample([1, 2], [3, 4, 5], name="b", ref_logprob=torch.tensor([0, 0, -1.0, value, -1.0]))
    batch = collate([whole, lacking])
    losses = {"policy": torch.tensor(1.0), "kl": torch.tensor(value)}
    with pytest.raises(NonFiniteError, match=f"the kl term of the loss is {value} at step 3") as error:
        check_loss(losses, "step 3", batch, scores(batch))
    assert error.value.got == f"ref_logprob is {value} at 1 of 5 tokens, the first is token 3 of b"


def test_the_forward_of_the_step_is_called_new():
    batch = collate([sample([1, 2], [3, 4], name="a", advantage=torch.ones(4))])
    logprob = torch.zeros(1, 4).index_fill(1, torch.tensor([2]), -math.inf)
    with pytest.raises(NonFiniteError) as error:
        check_loss({"policy": torch.tensor(math.nan)}, "step 3", batch, scores(batch, logprob=logprob))
    assert error.value.got == "new logprob is -inf at 1 of 2 tokens, the first is token 2 of a"


def test_finite_numbers_may_overflow_together():
    batch = collate([sample([1, 2], [3, 4], name="a", advantage=torch.ones(4))])
    with pytest.raises(NonFiniteError) as error:
        check_loss({"policy": torch.tensor(math.inf)}, "step 3", batch, scores(batch))
    assert error.value.got == "inf, of finite numbers"


def test_a_finite_loss_passes():
    batch = collate([sample([1, 2], [3, 4], name="a")])
    check_loss({"policy": torch.tensor(1.0)}, "step 3", batch, scores(batch))
