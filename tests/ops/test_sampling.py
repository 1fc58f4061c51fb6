import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from truing.errors import InvalidValueError
from truing.ops.logprobs import token_logprobs
from truing.ops.sampling import draw, mass_below, processed_logits, support_mask
from truing.types.sampling_params import RAW, SamplingParams

INF = math.inf
EVERYTHING = SamplingParams(0.8, 20, 0.9, 0.02, 0.4, 0.3, 1.3, 3, 16, (7, 11))
EVERYTHING_SMALL = replace(EVERYTHING, stop_ids=(2,), min_new_tokens=1)
CONTRACTS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 40]),
    top_p=st.sampled_from([0.2, 0.7, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    repetition_penalty=st.sampled_from([0.7, 1.0, 1.5]),
    min_new_tokens=st.integers(0, 3),
    stop_ids=st.sampled_from([(), (2,), (0, 5)]),
)


def nothing(rows):
    return torch.zeros(rows, 0, dtype=torch.int64)


def history(*rows):
    width = max(map(len, rows))
    return torch.tensor([list(row) + [-1] * (width - len(row)) for row in rows], dtype=torch.int64)


def logits(rows=6, vocab=64, seed=0, dtype=torch.float32):
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_penalties_hand_worked():
    # id 0 drawn twice, id 2 once; repetition 2 halves what is positive and doubles what is not, then
    # presence 1 once and frequency ½ per draw:  4/2 − 1 − ½·2 = 0;   −1·2 − 1 − ½·1 = −3.5
    params = SamplingParams(presence_penalty=1.0, frequency_penalty=0.5, repetition_penalty=2.0)
    got_NV = processed_logits(torch.tensor([[4.0, 3.0, -1.0]]), params, history([0, 2, 0]))
    assert got_NV.tolist() == [[0.0, 3.0, -3.5]]


def test_temperature_and_bans_hand_worked():
    params = SamplingParams(temperature=0.5, min_new_tokens=2, stop_ids=(1,))
    allowed_NV = torch.tensor([[True, True, False]] * 2)
    got_NV = processed_logits(
        torch.tensor([[1.0, 2.0, 3.0]] * 2), params, history([0], [0, 0]), allowed_NV=allowed_NV
    )
    assert got_NV.tolist() == [[2.0, -INF, -INF], [2.0, 4.0, -INF]], "the second row may stop: two are drawn"


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        # probabilities .4 .3 .2 .1
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.69}, [0, 1]),
        ({"top_p": 0.71}, [0, 1, 2]),
        ({"top_p": 0.01}, [0]),
        ({"min_p": 0.49}, [0, 1, 2]),  # ≥ .196
        ({"min_p": 0.51}, [0, 1]),  # ≥ .204
        # one after the other: of the 4/9 3/9 2/9 that top-3 leaves, .75 takes two; alone it takes three
        ({"top_k": 3, "top_p": 0.75}, [0, 1]),
        ({"top_p": 0.75}, [0, 1, 2]),
        ({"temperature": 0.0}, [0]),
    ],
)
def test_truncation_hand_worked(rules, kept):
    logits_NV = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    got_NV = processed_logits(logits_NV, SamplingParams(**rules), nothing(1))
    assert got_NV.isfinite()[0].nonzero()[:, 0].tolist() == kept
    assert torch.equal(got_NV[0, kept], logits_NV[0, kept])


def test_equals():
    flat_NV = torch.zeros(1, 4)
    assert processed_logits(flat_NV, SamplingParams(top_k=2), nothing(1)).isfinite().sum() == 4
    assert processed_logits(flat_NV, SamplingParams(top_p=0.5), nothing(1)).isfinite().sum() == 2
    assert processed_logits(flat_NV, SamplingParams(temperature=0.0), nothing(1)).tolist() == [
        [0, -INF, -INF, -INF]
    ]


def slow_processed_logits(row, params, generated):
    """The same over plain numbers, one token after the other, truncation by sorting."""
    scores = list(row)
    for token in set(generated):
        damped = scores[token] / params.repetition_penalty
        scores[token] = damped if scores[token] > 0 else scores[token] * params.repetition_penalty
        scores[token] -= params.presence_penalty + params.frequency_penalty * generated.count(token)
    if len(generated) < params.min_new_tokens:
        scores = [-INF if token in params.stop_ids else score for token, score in enumerate(scores)]
    if params.temperature == 0:
        return [score if token == scores.index(max(scores)) else -INF for token, score in enumerate(scores)]
    scores = [score / params.temperature for score in scores]
    if params.top_k:
        kth = sorted(scores)[-min(params.top_k, len(scores))]
        scores = [score if score >= kth else -INF for score in scores]
    if params.top_p < 1:
        total, mass, kept = sum(map(math.exp, scores)), 0.0, []
        for score, token in sorted(((score, token) for token, score in enumerate(scores)), reverse=True):
            kept += [token] if mass < params.top_p else []
            mass += math.exp(score) / total
        scores = [score if token in kept else -INF for token, score in enumerate(scores)]
    floor = max(scores) + (math.log(params.min_p) if params.min_p else -INF)
    return [score if score >= floor else -INF for score in scores]


@given(CONTRACTS, st.integers(0, 99), st.lists(st.integers(0, 7), max_size=5))
def test_against_a_plain_loop(params, seed, generated):
    logits_NV = logits(1, 8, seed, torch.float64)
    got = processed_logits(logits_NV, params, history(generated))[0].tolist()
    assert got == pytest.approx(slow_processed_logits(logits_NV[0].tolist(), params, generated), abs=1e-6)


@given(
    CONTRACTS, st.integers(0, 99), st.lists(st.integers(0, 7), max_size=5), st.randoms(), st.integers(0, 3)
)
def test_the_order_of_the_history_and_its_pads_change_nothing(params, seed, generated, random, pads):
    moved = generated + [-1] * pads
    random.shuffle(moved)
    expected_NV = processed_logits(logits(1, 8, seed), params, history(generated))
    assert torch.equal(processed_logits(logits(1, 8, seed), params, history(moved)), expected_NV)


@given(CONTRACTS, st.integers(0, 99), st.lists(st.integers(0, 7), max_size=5))
def test_what_is_drawn_is_inside_and_replays(params, seed, generated):
    logits_NV, generated_NH = logits(1, 8, seed), history(generated)
    scores_NV = processed_logits(logits_NV, params, generated_NH)
    ids_N = draw(scores_NV, torch.rand(1, dtype=torch.float64))
    assert scores_NV[0, ids_N].isfinite()
    support_NV = support_mask([scores_NV[0].isfinite().nonzero()[:, 0]], 8)
    replayed_NV = processed_logits(logits_NV, params, generated_NH, support_NV=support_NV)
    assert torch.equal(replayed_NV, scores_NV)


def test_the_support_stays_when_the_weights_move():
    params = SamplingParams(top_k=3)
    before_NV = processed_logits(logits(seed=0), params, nothing(6))
    support_NV = before_NV.isfinite()
    after_NV = processed_logits(logits(seed=1), params, nothing(6), support_NV=support_NV)
    assert torch.equal(after_NV.isfinite(), support_NV)
    assert not torch.equal(processed_logits(logits(seed=1), params, nothing(6)).isfinite(), support_NV)


def test_penalties_never_look_at_the_prompt():
    prompt, generated = torch.tensor([[3, 4]]), torch.tensor([[5, 5]])
    logits_NV, penalty = logits(1, 8), SamplingParams(repetition_penalty=1.5)
    got_NV = processed_logits(logits_NV, penalty, generated)
    changed = (got_NV != logits_NV)[0].nonzero()[:, 0].tolist()
    assert changed == [5]
    theirs = RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=2)
    assert torch.equal(got_NV, theirs(torch.cat([prompt, generated], dim=1), logits_NV))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("rules", "theirs"),
    [
        ({"temperature": 0.7}, [TemperatureLogitsWarper(0.7)]),
        ({"top_k": 5}, [TopKLogitsWarper(5)]),
        ({"top_k": 500}, [TopKLogitsWarper(500)]),
        ({"top_p": 0.9}, [TopPLogitsWarper(0.9)]),
        ({"top_p": 0.01}, [TopPLogitsWarper(0.01)]),
        ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
        (
            {"repetition_penalty": 1.3, "temperature": 1.7, "top_k": 30, "top_p": 0.8, "min_p": 0.05},
            [
                RepetitionPenaltyLogitsProcessor(1.3),
                TemperatureLogitsWarper(1.7),
                TopKLogitsWarper(30),
                TopPLogitsWarper(0.8),
                MinPLogitsWarper(0.05),
            ],
        ),
    ],
)
def test_agrees_with_transformers(rules, theirs, seed):
    logits_NV, generated_NH = logits(seed=seed, vocab=2000), torch.tensor([[1, 2, 1], [4, 4, 4]] * 3)
    expected_NV = logits_NV
    for processor in theirs:
        expected_NV = processor(generated_NH, expected_NV)
    assert torch.equal(processed_logits(logits_NV, SamplingParams(**rules), generated_NH), expected_NV)


def test_a_nucleus_wider_than_the_window():
    """Row 0 needs most of 3000 ids, row 1 needs a few: both as transformers has them."""
    logits_NV = logits(2, 3000) * torch.tensor([[0.05], [2.0]])
    got_NV = processed_logits(logits_NV, SamplingParams(top_p=0.9), nothing(2))
    assert torch.equal(got_NV, TopPLogitsWarper(0.9)(nothing(2), logits_NV))
    assert got_NV[0].isfinite().sum() > 2000


def test_gradients_flow_through():
    logits_NV = logits(2, 6, dtype=torch.float64).requires_grad_()
    support_NV = torch.tensor([[True] * 4 + [False] * 2] * 2)

    def score(z):
        scores_NV = processed_logits(z, EVERYTHING_SMALL, history([1, 1], [0]), support_NV=support_NV)
        return token_logprobs(scores_NV, torch.tensor([1, 3]))

    assert torch.autograd.gradcheck(score, logits_NV)
    (gradient_NV,) = torch.autograd.grad(score(logits_NV).sum(), logits_NV)
    assert (gradient_NV[:, 4:] == 0).all(), "what was cut has no gradient"


def test_edge_cases():
    assert processed_logits(logits(0, 5), EVERYTHING_SMALL, nothing(0)).shape == (0, 5)
    assert processed_logits(logits(2).bfloat16(), RAW, nothing(2)).dtype == torch.float32
    assert torch.equal(processed_logits(logits(2), RAW, nothing(2)), logits(2))
    only_stop_N = torch.zeros(1, 64, dtype=torch.bool)
    only_stop_N[0, 7] = True
    with pytest.raises(InvalidValueError, match="no token that can be sampled"):
        processed_logits(logits(1), EVERYTHING, nothing(1), allowed_NV=only_stop_N)
    with pytest.raises(InvalidValueError, match="generated_NH holds an id outside"):
        processed_logits(logits(1, 5), RAW, torch.tensor([[5]]))
    with pytest.raises(InvalidValueError, match="stop_ids holds an id outside"):
        processed_logits(logits(1, 5), EVERYTHING, nothing(1))
    with pytest.raises(InvalidValueError, match="support_NV disagrees"):
        processed_logits(logits(1, 5), RAW, nothing(1), support_NV=only_stop_N)


def test_the_mass_below_an_id_is_where_its_interval_begins():
    logits = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]).log()
    below = mass_below(logits, torch.tensor([2, 0]))
    assert torch.allclose(below, torch.tensor([0.8, 0.0], dtype=torch.float64))


def test_draws_lie_in_the_interval_of_what_they_drew():
    torch.manual_seed(0)
    logits, uniform = 3 * torch.randn(500, 700), torch.rand(500, dtype=torch.float64)
    logits[:, ::3] = -torch.inf
    ids = draw(logits, uniform)
    below = mass_below(logits, ids)
    size = logits.double().softmax(-1).gather(1, ids[:, None])[:, 0]
    assert ((below - uniform) < 1e-6).all()
    assert ((uniform - below - size) < 1e-6).all()
