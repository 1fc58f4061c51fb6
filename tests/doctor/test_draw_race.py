"""Draws by races are run again: right ones win, others are behind, and unknown noise gives no claim."""

import math
from itertools import islice

import pytest
import torch

from truing.doctor.oracle.draw_race import (
    IMPOSSIBLE,
    KINDS,
    behind,
    chances,
    hashed_noise,
    is_their_noise,
    race_facts,
    race_noise,
)

BITS = 2**64 - 1


def splitmix64(state, n):
    """The n-th number of SplitMix64 from a state, in Python's integers."""
    z = (state + n * 0x9E3779B97F4A7C15) & BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


def test_the_second_implementation_gives_the_published_numbers():
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [splitmix64(0, n) for n in (1, 2, 3)] == published


@pytest.mark.parametrize("number", [0, 1, 2**31 - 1])
def test_hashed_noise_is_that_of_a_second_implementation(number):
    key = splitmix64(number - 0x9E3779B97F4A7C15, 1)  # the output function of the number itself
    uniform = [((splitmix64(key, v + 1) >> 11) + 0.5) / 2**53 for v in range(50)]
    expected = [-math.log(-math.log(u)) for u in uniform]
    assert hashed_noise(number, 50).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_of_the_gumbel_distribution_and_other_at_each_token_and_seed(kind):
    first, second = islice(race_noise(kind, 7, 200_000), 2)
    (other,) = islice(race_noise(kind, 8, 200_000), 1)
    assert float(first.mean()) == pytest.approx(0.5772, abs=0.02)
    assert float(first.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)
    for each in (second, other):
        assert abs(float(torch.corrcoef(torch.stack([first, each]))[0, 1])) < 0.02
    assert torch.equal(first, next(race_noise(kind, 7, 200_000)))


def test_an_id_is_behind_by_the_difference_of_the_sums():
    logprob, noise = torch.tensor([[-1.0, -2.0, -math.inf]]), torch.tensor([[0.5, 2.0, 9.0]])
    assert behind(logprob, torch.tensor([1]), noise).tolist() == [0.0]  # 0 beats −0.5
    assert behind(logprob, torch.tensor([0]), noise).tolist() == [0.5]
    assert behind(logprob, torch.tensor([2]), noise).tolist() == [IMPOSSIBLE]


def races(temperature=1.0, noise_seed=3, scale=2.0, tokens=200):
    """Distributions, tokens that raced at a temperature, and the noise of a seed."""
    generator = torch.Generator().manual_seed(0)
    logprob = (scale * torch.randn(tokens, 60, generator=generator)).double().log_softmax(1)
    noise = torch.stack(list(islice(race_noise("hashed", 3, 60), tokens)))
    drawn = ((logprob / temperature).log_softmax(1) + noise).argmax(1)
    return logprob, drawn, torch.stack(list(islice(race_noise("hashed", noise_seed, 60), tokens)))


def test_draws_of_the_declared_distribution_win():
    facts = race_facts(*races())
    assert (facts["missed"], facts["largest"], facts["instead"]) == (0, 0.0, "")
    assert is_their_noise([facts])


def test_draws_at_another_temperature_are_behind_and_it_is_named():
    facts = race_facts(*races(temperature=1.3))
    assert facts["missed"] > 10
    assert facts["instead"] == "a temperature 1.3 times as high"
    assert is_their_noise([facts])


@pytest.mark.parametrize("tokens", [16, 64])
def test_few_draws_far_from_the_declared_distribution_show_the_noise(tokens):
    """At a third of the temperature nearly every id is the likeliest one, and few win the declared race."""
    generator = torch.Generator().manual_seed(1)
    logprob = (0.2 * torch.randn(tokens, 264, generator=generator)).double().log_softmax(1)
    noise = torch.stack([next(race_noise("hashed", 1000 + i, 264)) for i in range(tokens)])
    other = torch.stack([next(race_noise("hashed", 9000 + i, 264)) for i in range(tokens)])
    drawn = ((logprob / 0.3).log_softmax(1) + noise).argmax(1)
    facts = race_facts(logprob, drawn, noise)
    assert "temperature" in facts["instead"]
    assert is_their_noise([facts])
    assert not is_their_noise([race_facts(logprob, drawn, other)])


def test_other_noise_agrees_as_often_as_chance_has_it():
    facts = race_facts(*races(noise_seed=4))
    assert facts["missed"] > 100
    assert not is_their_noise([facts])


def test_a_policy_that_is_certain_shows_nothing_about_noise():
    assert not is_their_noise([race_facts(*races(noise_seed=4, scale=400.0))])
    assert not is_their_noise([race_facts(*races(scale=400.0))])


def test_within_the_tolerance_of_rounding_no_draw_is_behind():
    logprob, drawn, noise = races(tokens=1000)
    generator = torch.Generator().manual_seed(5)
    rounded = logprob + 0.2 * (torch.rand(logprob.shape, generator=generator) - 0.5)
    assert race_facts(rounded, drawn, noise)["missed"] > 0
    assert race_facts(rounded, drawn, noise, tolerance=0.2)["missed"] == 0


@pytest.mark.integration
@pytest.mark.parametrize("tolerance", [1e-3, 0.3])
def test_the_chance_to_agree_grows_with_the_tolerance(tolerance):
    logprob, drawn, _ = races(tokens=4000)
    _, _, other = races(tokens=4000, noise_seed=9)
    agreed = (behind(logprob, drawn, other) <= tolerance).double()
    expected = chances(logprob, drawn, tolerance)
    assert float(expected.mean()) == pytest.approx(float(agreed.mean()), abs=4 * float(agreed.std()) / 63)
    assert not is_their_noise([race_facts(logprob, drawn, other, tolerance)])
