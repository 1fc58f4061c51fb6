"""Scores against the plain forward of each sample alone."""

import dataclasses

import pytest
import torch
from samples import sample

from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.types.sampling_params import SamplingParams

CONTRACT = SamplingParams(
    temperature=0.8,
    top_k=150,
    top_p=0.9,
    min_p=0.001,
    presence_penalty=0.4,
    frequency_penalty=0.2,
    repetition_penalty=1.2,
    min_new_tokens=2,
    max_new_tokens=9,
    stop_ids=(257,),
)


def plain_logprobs(model, row, temperature):
    """Log-probability of each token after the first, by the model's own forward."""
    logits = model(row.token_ids[None]).logits[0, :-1] / temperature
    return logits.log_softmax(-1).gather(1, row.token_ids[1:, None])[:, 0]


@pytest.fixture
def rows():
    sampling_params = dataclasses.replace(SamplingParams(), temperature=0.7)
    return [
        sample([5, 6, 7, 8], [9, 10, 11], name="a", sampling_params=sampling_params),
        sample([5, 6, 7, 8], [12], name="b", sampling_params=sampling_params),
        sample([5, 6, 7, 8], [13, 14, 15, 16, 17], name="c", sampling_params=sampling_params),
        sample([30, 31], [9, 10], name="d", sampling_params=sampling_params),
    ]


def test_log_probabilities_are_those_of_the_plain_forward(tiny, rows):
    batch = collate(rows)
    scores = score(tiny.model, batch, batch.policy_mask)
    for b, row in enumerate(rows):
        expected = plain_logprobs(tiny.model, row, 0.7)[row.prompt_length - 1 :]
        assert torch.allclose(scores.logprob[b, : len(row)][row.policy_mask], expected, atol=1e-5)
    assert (scores.logprob[~batch.policy_mask] == 0).all()


def test_gradients_are_those_of_the_plain_forward(tiny, rows):
    batch = collate(rows)
    score(tiny.model, batch, batch.policy_mask).logprob.sum().backward()
    scored = {name: p.grad.clone() for name, p in tiny.model.named_parameters()}
    tiny.model.zero_grad()
    sum(plain_logprobs(tiny.model, row, 0.7)[row.prompt_length - 1 :].sum() for row in rows).backward()
    for name, parameter in tiny.model.named_parameters():
        assert torch.allclose(scored[name], parameter.grad, rtol=1e-4, atol=1e-5), name


def test_a_row_does_not_depend_on_its_company(tiny, rows):
    batch = collate(rows)
    together = score(tiny.model, batch, batch.policy_mask).logprob
    for b, row in enumerate(rows):
        alone = collate([row])
        assert torch.allclose(
            score(tiny.model, alone, alone.policy_mask).logprob[0], together[b, : len(row)], atol=1e-5
        )


def test_rows_may_have_different_contracts(tiny, rows):
    warm = dataclasses.replace(
        rows[0],
        sample_id="w",
        sampling_params=dataclasses.replace(CONTRACT, temperature=2.0, top_k=0, top_p=1.0, min_p=0.0),
    )
    batch = collate([rows[0], warm])
    together = score(tiny.model, batch, batch.policy_mask).logprob
    for b, row in enumerate((rows[0], warm)):
        alone = collate([row])
        assert torch.allclose(score(tiny.model, alone, alone.policy_mask).logprob[0], together[b], atol=1e-5)


def test_entropy_is_raw_and_under_the_contract(tiny, rows):
    batch = collate(rows)
    scores = score(tiny.model, batch, batch.policy_mask)
    logits = tiny.model(rows[1].token_ids[None]).logits[0, 3]
    for stream, temperature in ((scores.entropy, 0.7), (scores.raw_entropy, 1.0)):
        p = (logits / temperature).softmax(-1)
        assert stream[1, 4].item() == pytest.approx(-(p * p.log()).sum().item(), abs=1e-4)


def test_a_model_in_float64_is_scored_in_float64(tiny, rows):
    model = tiny.model.double()
    batch = collate(rows)
    scores = score(model, batch, batch.policy_mask)
    assert scores.logprob.dtype == scores.entropy.dtype == torch.float64
    for b, row in enumerate(rows):
        plain = plain_logprobs(model, row, 0.7)
        result = scores.logprob[b, 1 : len(row)][row.policy_mask[1:]]
        assert torch.allclose(result, plain[row.policy_mask[1:]], atol=1e-9)
