"""Every term of every loss: its gradient is a finite difference in float64, and parts add up to the whole."""

import dataclasses

import pytest
import torch
from samples import demo, sample

from truing.algos import ALGORITHMS, StepConfig
from truing.config import GrpoConfig, KlConfig, PpoConfig, ReinforceConfig, RlooConfig, SftConfig
from truing.models.forward.collate import collate
from truing.types.batch import Scores

RATES = {"steps": 1, "learning_rate": 1e-3}
KL = KlConfig(coef=0.3, estimator="k3")
SETTINGS = {
    "sft": StepConfig(SftConfig(**RATES), KlConfig()),
    "grpo": StepConfig(GrpoConfig(**RATES), KL),
    "grpo gspo": StepConfig(GrpoConfig(**RATES, objective="gspo"), KL),
    "rloo": StepConfig(RlooConfig(**RATES), KlConfig(coef=0.3, estimator="k2")),
    "reinforce": StepConfig(ReinforceConfig(**RATES), KL),
    "ppo": StepConfig(PpoConfig(**RATES), KL),
    "ppo clipped": StepConfig(PpoConfig(**RATES, value_clip=0.3, value_coef=0.7), KL),
}


def rows(seed=0):
    """Ragged answers off-policy, each with all that a term may read, and a demonstration."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for i, length in enumerate((3, 1, 4)):
        row = sample([1, 2], [5] * length, name=f"r{i}", reward=float(i))

        def drawn(row=row):
            return torch.where(row.policy_mask, torch.randn(len(row), generator=generator), torch.nan)

        streams = {name: drawn() for name in ("advantage", "returns", "value")}
        streams |= {name: drawn() * 0.3 - 1 for name in ("old_logprob", "ref_logprob")}
        made.append(dataclasses.replace(row, **streams))
    return [*made, demo([1], [5, 6], "demo")]


def leaves(samples, seed=1):
    """Log-probability, entropy and value that a forward might give, as leaves in float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = collate(samples).token_ids.shape
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)
    ]


def total(name, samples, all_samples, logprob, entropy, value):
    """The loss of some samples, with the denominators of all."""
    algorithm, config = ALGORITHMS[name.split()[0]], SETTINGS[name]
    batch = collate(samples)
    scores = Scores(logprob, entropy, entropy.detach(), value)
    return sum(
        term.weight * term.loss(batch, scores, term.denominator(all_samples))
        for term in algorithm.terms(config)
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_are_finite_differences(name, monkeypatch):
    """The ratio that weighs the KL is a constant of its gradient, so here it is one of its value too."""
    samples = rows()
    given = leaves(samples)
    constant = (given[0].detach() - collate(samples).old_logprob.double()).exp()
    monkeypatch.setattr("truing.ops.losses.token_ratio", lambda _: constant.nan_to_num())
    assert torch.autograd.gradcheck(lambda *x: total(name, samples, samples, *x), given)


@pytest.mark.parametrize("name", SETTINGS)
def test_micro_batches_add_up(name):
    samples = rows()
    given = leaves(samples)
    whole = total(name, samples, samples, *given)
    parts = 0
    for start in (0, 2):
        part = samples[start : start + 2]
        width = collate(part).token_ids.shape[1]
        parts = parts + total(name, part, samples, *(x[start : start + 2, :width] for x in given))
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_that_no_term_reads_have_no_gradient(name):
    samples = rows()
    given = leaves(samples)
    total(name, samples, samples, *given).backward()
    batch = collate(samples)
    read = batch.supervised_mask if name == "sft" else batch.policy_mask
    for x in given:
        if x.grad is not None:
            assert (x.grad[~read] == 0).all()
            assert not x.grad.isnan().any()
    assert given[0].grad[read].all()
