"""The sampler audit on draws whose distribution is known: silent on fair ones, and it names what is not."""

import math

import pytest
import torch

from truing.doctor.oracle.draw_e_process import LAMBDAS, DrawnTokens, log10_wealth, log_wealth_increments

VOCAB, STOP = 64, 2


def wealths(tokens, sampler, *, chunk=500, noise=0.0, kept=lambda tokens: slice(None)):
    """log10 of the wealth of each feature after every chunk."""
    generator = torch.Generator().manual_seed(7)
    total = {name: [0.0] * len(each) for name, each in LAMBDAS.items()}
    for _ in range(tokens // chunk):
        logits = 2.2 * torch.randn(chunk, VOCAB, generator=generator, dtype=torch.float64)
        said, prompt = (torch.rand(chunk, VOCAB, generator=generator) < share for share in (0.15, 0.3))
        index = torch.randint(0, 60, (chunk,), generator=generator)
        drawn = torch.multinomial(sampler(logits, said, prompt, index).softmax(1), 1, generator=generator)[
            :, 0
        ]
        off = noise * torch.randn(chunk, VOCAB, generator=generator, dtype=torch.float64)
        some = kept(drawn)
        context = (index[some], said[some], prompt[some])
        declared = DrawnTokens((logits + off).log_softmax(1)[some], drawn[some], *context, [STOP])
        for name, gains in log_wealth_increments(declared).items():
            total[name] = [a + b for a, b in zip(total[name], gains, strict=True)]
        yield {name: log10_wealth(gains) for name, gains in total.items()}


def total_log10(wealth):
    return math.log10(sum(10 ** min(each, 300.0) for each in wealth.values()) / len(wealth))


def unchanged_logits(logits, said, prompt, index):
    return logits


def nucleus(logits, said, prompt, index):
    ordered, ids = logits.softmax(1).sort(1, descending=True)
    inside = torch.zeros_like(logits, dtype=torch.bool).scatter(1, ids, ordered.cumsum(1) - ordered < 0.95)
    return logits.masked_fill(~inside, -math.inf)


def no_stop_yet(logits, said, prompt, index):
    stop = torch.arange(VOCAB) == STOP
    return logits.masked_fill(stop & (index < 15)[:, None], -math.inf)


UNFAIR = {
    "temperature": (lambda logits, *_: logits / 1.2, 2_000),
    "top-p 0.95": (nucleus, 2_000),
    "penalty on the answer": (lambda logits, said, *_: logits - 0.3 * said, 12_000),
    "penalty on the prompt": (lambda logits, said, prompt, _: logits - 0.3 * (prompt & ~said), 12_000),
    "ban of stops": (no_stop_yet, 10_000),
    "greedy": (lambda logits, *_: 8 * logits, 500),
}


@pytest.mark.parametrize("cause", UNFAIR)
def test_it_names_the_cause_within_so_many_tokens(cause):
    sampler, tokens = UNFAIR[cause]
    last = list(wealths(tokens, sampler))[-1]
    assert total_log10(last) > 6
    assert max(last, key=last.__getitem__) == cause


@pytest.mark.integration
def test_fair_draws_make_nobody_rich():
    assert max(map(total_log10, wealths(100_000, unchanged_logits))) < 3


def test_noise_of_an_engine_makes_nobody_rich():
    assert max(map(total_log10, wealths(30_000, unchanged_logits, noise=0.05))) < 3


def test_a_choice_by_what_was_drawn_makes_wealth_out_of_nothing():
    """Why tokens are chosen before any reward is known."""
    *_, last = wealths(20_000, unchanged_logits, kept=lambda drawn: drawn != STOP)
    assert total_log10(last) > 6
    assert max(last, key=last.__getitem__) == "ban of stops"


@pytest.mark.slow
def test_a_million_fair_tokens_stay_below_a_thousand_to_one():
    assert max(map(total_log10, wealths(1_000_000, unchanged_logits, chunk=5_000))) < 3


def test_the_wealth_of_a_bet_by_hand():
    # one token of two with p = 1/2, f = 1 on the first, λ = 1: e / (e/2 + 1/2) if it came
    drawn = DrawnTokens(
        torch.full((1, 2), 0.5).log(),
        torch.tensor([0]),
        torch.tensor([40]),
        torch.tensor([[True, False]]),
        torch.zeros(1, 2, dtype=torch.bool),
        [],
    )
    gains = log_wealth_increments(drawn)["penalty on the answer"]
    assert gains[LAMBDAS["penalty on the answer"].index(1.0)] == pytest.approx(1 - math.log((math.e + 1) / 2))
