"""P11 and P12: the weights that sampled each sample, identified by log-probabilities alone."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor

from dev.probes.closed_form import logprobs, relative_difference, table_gradient, token_weights
from dev.probes.letters_env import Letters
from dev.probes.result import Measurement, at_least, at_most, exactly, near
from dev.probes.reward_signal import ROUNDING
from dev.probes.small_trainer import HEAD, SmallTrainer, small_trainer
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.types.rollout import Rollout, Task
from truing.types.sample import Sample

TOLERANCE = 1e-4
"""Mean log-probability difference of the right weights, nats; wrong ones differ a hundred times as much."""

RATIO_CAP = 1.2
"""Cap of the weights that correct for a stale sampler."""

LAGS = range(4)


def stale_sampler(folder: Path, algo: str) -> list[Measurement]:
    """P11. A sampler k steps behind: its samples fit the weights of then; old ÷ sampler averages 1."""
    sizes = {"sampling": {"max_new_tokens": 4}, "stage": {"group_size": 32}}
    trainer = small_trainer(
        folder, algo, Letters(_letters), correction={"method": "truncate", "high": RATIO_CAP}, **sizes
    ).randomize()
    versions = [trainer.table.detach().clone()]
    for step in LAGS:
        trainer.make_step(trainer.draw(step).samples, step)
        versions.append(trainer.table.detach().clone())
    measurements = []
    for k in LAGS:
        samples = _drawn_with(trainer, versions, version=len(versions) - 1 - k)
        misses = [_mean_difference(trainer, samples, weights) for weights in reversed(versions)]
        measurements += [
            exactly(f"lag {k}: attributed to", min(range(len(misses)), key=misses.__getitem__), k),
            at_most(f"lag {k}: nats that it misses by", min(misses), TOLERANCE),
            at_least(
                f"lag {k}: nats that the next best misses by",
                sorted(misses)[1],
                100 * TOLERANCE,
            ),
        ]
    trainer.table.data.copy_(versions[-1])
    done, gradients = trainer.first_optimizer_step(samples)
    old, drew = (
        torch.cat([getattr(row, name)[row.policy_mask] for row in done.samples]).double()
        for name in ("old_logprob", "sampler_logprob")
    )
    weight, miss = (old - drew).exp(), _weighted_miss(gradients, done.samples, versions[-1])
    return [
        *measurements,
        at_most(
            "gradient, apart from capped weights",
            miss,
            ROUNDING,
        ),
        near(
            f"lag {k}: mean of old ÷ sampler",
            float(weight.mean()),
            1.0,
            4 * float(weight.std()) / len(weight) ** 0.5,
        ),
        at_least(f"lag {k}: its deviation", float(weight.std()), 0.01),
    ]


def _weighted_miss(gradients: Mapping[str, Tensor], rows: Sequence[Sample], table: Tensor) -> float:
    """Return the difference of a gradient from that of A · min(old ÷ sampler, cap), averaged by answers."""
    weights, token_gradients = token_weights("grpo", [int(row.policy_mask.sum()) for row in rows], 0), []
    for row, weight in zip(rows, weights, strict=True):
        capped = (logprobs(table, row) - row.sampler_logprob.double()).exp().clamp(max=RATIO_CAP)
        token_gradients.append(torch.where(row.policy_mask, row.advantage.double() * capped * weight, 0.0))
    return relative_difference(gradients[HEAD], table_gradient(table, rows, token_gradients))


def adapter_sync(folder: Path, algo: str) -> list[Measurement]:
    """P12. An adapter in the trainer: the sampler has it after the sync, and only the base before."""
    trainer = small_trainer("tiny", algo, Letters(_letters), lora={"rank": 4}, sampling={"max_new_tokens": 4})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in trainer.learner.parameters.values():
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
    before, after = trainer.stale_draw().samples, trainer.draw().samples
    measurements = []
    for name, samples, has_adapter in (("not synced", before, False), ("synced", after, True)):
        off, on = (_mean_difference(trainer, samples, adapter_on=each) for each in (False, True))
        right, wrong = (on, off) if has_adapter else (off, on)
        measurements += [
            at_most(
                f"{name}: nats that {'the adapter' if has_adapter else 'the base'} misses by",
                right,
                TOLERANCE,
            ),
            at_least(f"{name}: nats that the other misses by", wrong, 100 * TOLERANCE),
        ]
    return measurements


def _letters(rollout: Rollout, task: Task) -> float:
    """Return a reward that differs for nearly every answer."""
    return float(sum(rollout.text.encode()) % 11)


def _drawn_with(trainer: SmallTrainer, versions: Sequence[Tensor], version: int) -> list[Sample]:
    """Return samples with the weights of a version; they stay in the table."""
    trainer.table.data.copy_(versions[version])
    return trainer.draw(version).samples


@torch.no_grad()
def _mean_difference(
    trainer: SmallTrainer, samples: Sequence[Sample], table: Tensor | None = None, *, adapter_on: bool = True
) -> float:
    """Return the mean |sampler − trainer| log-probability over sampled tokens, by these weights: nats."""
    if table is not None:
        trainer.table.data.copy_(table)
    policy, batch = trainer.learner.model, collate(list(samples))
    off = policy.disable_adapter() if isinstance(policy, PeftModel) and not adapter_on else nullcontext()
    with off:
        logprob_BT = score(policy, batch, batch.kl_mask).logprob
    return float((logprob_BT - batch.sampler_logprob)[batch.kl_mask].abs().mean())
