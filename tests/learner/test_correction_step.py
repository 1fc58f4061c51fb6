"""A sampler that differs from the trainer's policy: old log-probabilities recomputed, weights, record."""

import dataclasses

import pytest
import torch
from test_step import GROUPS, GRPO, gradient_of, learner, on_policy

import truing
from truing.config import CorrectionConfig
from truing.learner.step import train_step
from truing.record import RunReader


def lagging(rows):
    """As drawn by a policy under which everything was half as likely as it is now."""
    half = torch.log(torch.tensor(0.5))
    return [
        dataclasses.replace(r, sampler_logprob=r.old_logprob + half, old_logprob=r.old_logprob + half)
        for r in rows
    ]


def test_the_old_policy_is_the_trainers_own_where_the_samplers_is_corrected(tiny):
    rows = on_policy(tiny.model, GROUPS)
    stage_learner = learner(tiny.model, GRPO, correction=CorrectionConfig(method="truncate", high=3.0))
    (done,) = train_step(stage_learner, lagging(rows), (0, "test", 0))
    for row, seen in zip(rows, done.samples, strict=True):
        assert seen.old_source == "recomputed"
        assert torch.allclose(seen.old_logprob[row.kl_mask], row.old_logprob[row.kl_mask], atol=1e-5)
        assert (seen.sampler_logprob[row.kl_mask] < row.old_logprob[row.kl_mask]).all()


@pytest.mark.parametrize(
    ("cfg", "factor"),
    [
        ({"method": "truncate", "high": 3.0}, 2.0),
        ({"method": "truncate", "high": 1.5}, 1.5),
        ({"method": "mask", "high": 3.0}, 2.0),
        ({"method": "mask", "high": 1.5}, 0.0),
        ({"method": "sequence", "high": 3.0}, 1.0),
        ({"method": "sequence", "high": 1.5}, 0.0),
    ],
)
def test_gradients_are_those_on_policy_times_the_weight(tiny, cfg, factor):
    """Every token is twice as likely now as when it was drawn; at the first step θ / old is 1."""
    start = {name: p.detach().clone() for name, p in tiny.model.named_parameters()}
    rows = on_policy(tiny.model, GROUPS)
    plain = gradient_of(tiny.model, GRPO, rows)
    tiny.model.load_state_dict(start, strict=False)
    weighted = gradient_of(tiny.model, GRPO, lagging(rows), correction=CorrectionConfig(**cfg))
    for name, value in plain.items():
        assert torch.allclose(weighted[name], factor * value, rtol=1e-3, atol=1e-6), name


def test_a_run_records_what_correction_came_to(mini, tmp_path):
    table = mini(correction={"method": "mask"}, grpo={"steps": 2})
    for row in RunReader(truing.train(table, out=tmp_path / "run").run).steps():
        found = {name: value for name, value in row.metrics.items() if name.startswith("correction/")}
        if row.stage == "sft":
            assert not found
            continue
        assert found["correction/weight_mean"] == pytest.approx(1.0, abs=1e-4)
        assert found["correction/effective_share"] == pytest.approx(1.0, abs=1e-6)
        assert found["correction/dropped_share"] == 0
