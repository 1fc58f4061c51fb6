"""Traces of a small GRPO loop that is not Truing's: healthy, or with one planted bug.

The policy is a table of logits by the token before. A row is a prompt, two sampled tokens, a reply of a tool,
and an answer that ends with a stop token or at its limit; batches are padded on the right.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truing import trace_writer
from truing.errors import RecordError
from truing.trace_writer import Step, Writer
from truing.utils.one_thread import one_thread

WRITER = "truing_trace.py"

VOCABULARY, STOP, PAD = 12, 1, 0
REPLY = (10, 11)
PROMPTS, GROUP, CALL, MOST = 4, 4, 2, 5
STEPS, EPOCHS, MICRO_BATCHES = 8, 2, 2
CLIP, KL, EPS, RATE = 0.2, 0.02, 1e-4, 0.1

BUGS: Mapping[str, str] = {
    "mask-shifted": "the loss mask is one token early",
    "reply-trained": "the loss trains the tool's reply, too",
    "stop-masked": "the stop token is not trained",
    "advantage-negated": "advantages have the other sign",
    "groups-transposed": "rewards are grouped across prompts, not by prompt",
    "deviation-of-batch": "advantages are divided by the deviation of all rewards",
    "micro-batch-mean": "each micro-batch divides by its own tokens",
    "old-zero": "old log-probabilities are 0",
    "reference-follows": "the reference is the policy itself",
    "sampler-stale": "the sampler has the weights of the step before",
    "temperature-ignored": "tokens are sampled at a temperature of 0.5, and trained without it",
}

SETUP: Mapping[str, Any] = {
    "algo": "grpo",
    "mask": "sampled",
    "group_size": GROUP,
    "advantage": "group",
    "advantage_eps": EPS,
    "inner_steps": EPOCHS,
    "on_policy": True,
    "surrogate": "clip",
    "ratio": "token",
    "aggregation": "token_mean",
    "clip_low": CLIP,
    "clip_high": CLIP,
    "kl_coef": KL,
    "kl_where": "loss",
    "kl_estimator": "k3",
    "kl_weight": "none",
    "entropy_coef": 0.0,
    "plain": True,
    "truncated": "keep",
    "stop_ids": [STOP],
    "bos_id": -1,
    "reference_moves": False,
    "dropout": False,
    "learning_rate": RATE,
}


def write_demo(folder: Path) -> list[Path]:
    """Write a healthy trace, one for each bug and the file that writes traces; return the traces."""
    if folder.exists() and any(folder.iterdir()):
        raise RecordError("the demo needs a folder of its own", got=folder, expected="an empty one")
    names = ("healthy", *BUGS)
    for name in names:
        write_trace(folder / name, name if name in BUGS else "")
    shutil.copy(trace_writer.__file__, folder / WRITER)
    return [folder / name for name in names]


def write_trace(
    folder: Path, bug: str = "", setup: Mapping[str, Any] = SETUP, rate: float = RATE, seed: int = 0
) -> None:
    """Train for a few steps, and write their trace; ``bug`` is one of ``BUGS`` or ""."""
    writer = Writer(folder, producer="demo 1", setup=setup, decode=_texts, waiting=STEPS)
    loop = Loop(writer, bug, rate, seed)
    with one_thread():  # tables of some hundred tokens
        for step in range(STEPS):
            loop.step(step)
    writer.close()


@dataclass
class Batch:
    """Padded rows [B, L] of a step, and what was sampled with them."""

    ids: Tensor
    attention: Tensor
    sampled: Tensor
    sampler_logprob: Tensor
    reward: Tensor  # [B]


@dataclass
class Loop:
    """The policy, its optimizer, and a step of training with at most one bug."""

    writer: Writer
    bug: str
    rate: float
    seed: int
    weights: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        start = torch.randn(VOCABULARY, VOCABULARY, generator=self.generator)
        start[:, [PAD, *REPLY]] = -20.0
        self.reference, self.before = start.clone(), start.clone()
        self.weights = start.requires_grad_()
        self.optimizer = torch.optim.Adam([self.weights], lr=self.rate)

    def step(self, number: int) -> None:
        """Sample, and train on it."""
        stale = self.bug == "sampler-stale"
        batch = self.sample(self.before if stale else self.weights.detach())
        self.before = self.weights.detach().clone()
        with torch.no_grad():
            old = self.logprob(self.weights, batch.ids)
            follows = self.bug == "reference-follows"
            reference = self.logprob(self.weights if follows else self.reference, batch.ids)
        if self.bug == "old-zero":
            old = torch.zeros_like(old)
        advantage, mask = self._advantage(batch.reward), self._mask(batch)
        record = self.write(number, batch, mask, old, reference, advantage)
        for epoch in range(EPOCHS):
            self.optimizer.zero_grad()
            for micro, rows in enumerate(torch.arange(len(batch.ids)).chunk(MICRO_BATCHES)):
                new = self.logprob(self.weights, batch.ids[rows])
                new = record.forward(new, rows=rows.tolist(), optimizer_step=epoch, micro_batch=micro)
                tokens = mask[rows].sum() * MICRO_BATCHES if self.bug == "micro-batch-mean" else mask.sum()
                loss = _loss(new, old[rows], reference[rows], advantage[rows], mask[rows]) / tokens
                loss.backward()
            self.optimizer.step()

    def write(
        self, number: int, batch: Batch, mask: Tensor, old: Tensor, reference: Tensor, advantage: Tensor
    ) -> Step:
        """Write what a step knows before its first forward."""
        return self.writer.step(
            number,
            ids=batch.ids,
            attention=batch.attention,
            sampled=batch.sampled,
            loss_mask=mask,
            sampler_logprob=batch.sampler_logprob,
            old_logprob=old,
            ref_logprob=reference,
            advantage=advantage,
            reward=batch.reward,
            group_id=[str(row // GROUP) for row in range(len(batch.ids))],
            version=[number] * len(batch.ids),
            numbers={"lr": self.rate},
        )

    def sample(self, weights: Tensor) -> Batch:
        """Sample GROUP rows of each prompt: a call, the reply, an answer."""
        temperature = 0.5 if self.bug == "temperature-ignored" else 1.0
        logprob = (weights / temperature).log_softmax(-1)
        rows: list[tuple[list[int], list[bool], list[float]]] = []
        for prompt in range(PROMPTS):
            for _ in range(GROUP):
                ids = [2 + prompt, 2 + (3 * prompt) % 5, 6]
                sampled, drawn = [False] * 3, [0.0] * 3
                for limit, reply in ((CALL, REPLY), (MOST, ())):
                    for _ in range(limit):
                        row = logprob[ids[-1]]
                        ids.append(int(torch.multinomial(row.exp(), 1, generator=self.generator)))
                        sampled.append(True)
                        drawn.append(float(row[ids[-1]]))
                        if ids[-1] == STOP:
                            break
                    ids += reply
                    sampled += [False] * len(reply)
                    drawn += [0.0] * len(reply)
                rows.append((ids, sampled, drawn))
        length = max(len(ids) for ids, *_ in rows)
        padded = [torch.tensor([row[i] + [0] * (length - len(row[0])) for row in rows]) for i in range(3)]
        attention = torch.tensor([[t < len(ids) for t in range(length)] for ids, *_ in rows])
        answers = [ids[ids.index(REPLY[-1]) + 1 :] for ids, *_ in rows]
        reward = torch.tensor([sum(t % 2 == 0 for t in ids) / MOST for ids in answers])
        return Batch(padded[0], attention, padded[1].bool(), padded[2].float(), reward)

    def _advantage(self, reward: Tensor) -> Tensor:
        """Return (reward − mean of the group) ÷ (deviation + ε): [B]."""
        groups = reward.view(PROMPTS, GROUP)
        across = 0 if self.bug == "groups-transposed" else 1
        deviation = reward.std() if self.bug == "deviation-of-batch" else groups.std(across, keepdim=True)
        advantage = ((groups - groups.mean(across, keepdim=True)) / (deviation + EPS)).flatten()
        return -advantage if self.bug == "advantage-negated" else advantage

    def _mask(self, batch: Batch) -> Tensor:
        """Return the loss mask: [B, L]."""
        mask = batch.sampled.clone()
        if self.bug == "mask-shifted":
            mask = mask.roll(-1, 1)
        if self.bug == "reply-trained":
            mask |= torch.isin(batch.ids, torch.tensor(REPLY))
        if self.bug == "stop-masked":
            mask &= batch.ids != STOP
        return mask & batch.attention

    @staticmethod
    def logprob(weights: Tensor, ids: Tensor) -> Tensor:
        """Return the log-probability of each token after the one before it, 0 at the first: [B, L]."""
        logprob = weights[ids[:, :-1]].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        return torch.cat([torch.zeros(len(ids), 1), logprob], dim=1)


def _loss(new: Tensor, old: Tensor, reference: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over tokens of the clipped surrogate and the KL: scalar."""
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    surrogate = torch.minimum(ratio * advantage[:, None], clipped * advantage[:, None])
    apart = reference - new
    return ((KL * (apart.exp() - apart - 1) - surrogate) * mask).sum()


def _texts(ids: list[int]) -> list[str]:
    return [f"<{i}>" if i in (PAD, STOP, *REPLY) else "abcdefghijkl"[i] for i in ids]
