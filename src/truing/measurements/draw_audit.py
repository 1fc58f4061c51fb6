"""Audit of sampled tokens: an e-process and a replay of draws test whether the sampler draws as declared."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.oracle.draw_e_process import DrawnTokens, log_wealth_increments
from truing.doctor.oracle.draw_replay import TOLERANCE, intervals
from truing.engines.base import Draws
from truing.learner.learner import Learner
from truing.measurements.draw_replay import draw_numbers, sampled_mask
from truing.measurements.inversion_replay import InversionReplay
from truing.measurements.measurement import Measurement
from truing.measurements.race_replay import RaceReplay
from truing.models.forward.collate import collate
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import causal_model, computed_precision, distributions
from truing.models.lora import evaluation_mode
from truing.types.batch import Batch
from truing.types.sample import Sample
from truing.types.token_facts import Audit, Replay
from truing.utils.rng import permutation

AUDITED_ROLLOUTS = 8
"""Audited rollouts of a step."""

AUDITED_PROBABILITIES = 1 << 25
"""Probabilities of an audit, some seconds: with 150,000 ids 27 tokens of each rollout, with 8,000 524."""

LIKELIEST = 64
"""Ids of a token whose log-probabilities are rounded again: races are among them."""

Replayer = RaceReplay | InversionReplay

REPLAYS: Mapping[Draws, type[Replayer] | None] = {
    "inversion": InversionReplay,
    "race": RaceReplay,
    "unknown": None,
}
"""What replays draws, by how ids follow from a request's key."""


class DrawAudit(Measurement):
    """Bets on the tokens of some rollouts, against draws as declared; and a replay of those draws.

    Not where older weights sampled: the trainer lacks their distribution.
    """

    facts = ("audit",)
    cost = "a forward of 8 rollouts; not in float32, three"
    audit = "audit"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compute the distributions."""
        step = self.step
        if step.learner.algorithm.source == "rollouts" and not step.recipe.engine.ahead:
            key = (step.recipe.seed, step.stage, step.step_index)
            engine = step.publication.get("rows", {}).get("largest", 0.0)
            fact = draw_audit_fact(step.learner, step.all_samples, key, step.sampler.engine.draws, engine)
            self.found = {"audit": fact}


def draw_audit_fact(
    learner: Learner, rows: Sequence[Sample], key: tuple[object, ...], draws: Draws, engine: float = 0.0
) -> Audit:
    """Return the fact ``audit`` of some rollouts of a step; the key selects them, never their rewards.

    ``draws``: how ids follow from the rollouts' keys, so that their draws can be replayed. ``engine``: nats
    by which its log-probabilities of the published rows were off.
    """
    sampled = [row for row in rows if sampled_mask(row).any()]
    chosen = [sampled[i] for i in permutation(len(sampled), *key, "audit")[:AUDITED_ROLLOUTS]]
    if not chosen:
        return {"tokens": 0, "gains": {}}
    batch = collate(chosen)
    mask_BT = torch.zeros(batch.token_ids.shape, dtype=torch.bool)
    most = tokens_of_rollout(causal_model(learner.model).config.get_text_config().vocab_size)
    for b, row in enumerate(chosen):
        mask_BT[b, : len(row)] = _audited(sampled_mask(row), most, (*key, "audit", row.sample_id))
    device = computed_precision(learner.model)
    kind = REPLAYS[draws] if draws != "race" or _can_race(device, chosen) else None
    gains: dict[str, list[float]] = {}
    with evaluation_mode(learner.model):
        rounding = _rounding(kind, learner, batch, mask_BT, engine) if kind and is_coarse(device) else None
        replay = kind and kind(chosen, draw_numbers(rows), max(TOLERANCE, MEAN_MULTIPLES * (rounding or 0.0)))
        for places, logprob_KV in distributions(learner.model, batch, mask_BT):
            drawn = drawn_tokens(chosen, places, logprob_KV.cpu(), chosen[0].sampling_params.stop_ids)
            add_gains(gains, drawn)
            if replay:
                replay.add(places, drawn)
        replayed = replay.facts(learner.model, sampled) if replay else None
    fact: Audit = {"tokens": int(mask_BT.sum()), "gains": gains}
    if replayed:
        fact["replay"] = Replay(**replayed, device=device)
        if rounding is not None:
            fact["replay"]["rounding"] = rounding
    return fact


def add_gains(gains: dict[str, list[float]], drawn: DrawnTokens) -> None:
    """Add the gains of some tokens to those before, by feature and λ."""
    for name, each in log_wealth_increments(drawn).items():
        before = gains.get(name, [0.0] * len(each))
        gains[name] = [a + b for a, b in zip(before, each, strict=True)]


def _can_race(device: str, rows: Sequence[Sample]) -> bool:
    """Return whether races can be replayed; in another precision rounding decides which ids top-k keeps."""
    cut = any(row.sampling_params.truncates_support for row in rows)
    return device.startswith("cpu") and not (cut and is_coarse(device))


def tokens_of_rollout(vocabulary: int) -> int:
    """Return the largest number of audited tokens of a rollout."""
    return max(1, AUDITED_PROBABILITIES // (AUDITED_ROLLOUTS * vocabulary))


def _audited(sampled_T: Tensor, most: int, key: tuple[object, ...]) -> Tensor:
    """Return at most this many of the sampled tokens: the first half of them, and others by the key."""
    tokens = sampled_T.nonzero()[:, 0]
    if len(tokens) <= most:
        return sampled_T
    first, later = tokens[: most // 2], tokens[most // 2 :]
    others = later[permutation(len(later), *key)[: most - len(first)]]
    return torch.zeros_like(sampled_T).index_fill(0, torch.cat([first, others]), True)


def _rounding(kind: type[Replayer], learner: Learner, batch: Batch, mask_BT: Tensor, engine: float) -> float:
    """Return by how much rounding moves a draw, in the units in which a replay measures misses."""
    if kind is RaceReplay:
        return max(engine, _race_rounding(learner, batch, mask_BT))
    return _interval_rounding(learner, batch, mask_BT)


def _interval_rounding(learner: Learner, batch: Batch, mask_BT: Tensor) -> float:
    """Return the largest change of an end of a sampled token's probability interval by random rounding.

    Rounding of single ids cancels in an end, which is a sum over many: it moves less than log-probabilities.
    """
    exact_2K = _intervals(learner, batch, mask_BT)
    with random_rounding(learner.model, seed=0):
        rounded_2K = _intervals(learner, batch, mask_BT)
    return float((rounded_2K - exact_2K).abs().max())


def _race_rounding(learner: Learner, batch: Batch, mask_BT: Tensor) -> float:
    """Return the largest change of a likely id's log-probability by random rounding, nats."""
    likely = [
        logprob_KV.topk(min(LIKELIEST, logprob_KV.shape[1]), 1)
        for _, logprob_KV in distributions(learner.model, batch, mask_BT)
    ]
    with random_rounding(learner.model, seed=0):
        changes = [
            (logprob_KV.gather(1, best.indices) - best.values).abs().nan_to_num(0.0).max()  # excluded: −∞
            for best, (_, logprob_KV) in zip(
                likely, distributions(learner.model, batch, mask_BT), strict=True
            )
        ]
    return float(torch.stack(changes).max())


def _intervals(learner: Learner, batch: Batch, mask_BT: Tensor) -> Tensor:
    """Return the probability intervals of the sampled tokens: [2, K]."""
    return torch.cat(
        [
            intervals(logprob_KV.cpu(), torch.stack([batch.token_ids[place] for place in places]).cpu())
            for places, logprob_KV in distributions(learner.model, batch, mask_BT)
        ],
        1,
    )


def drawn_tokens(
    rows: Sequence[Sample], places: Sequence[tuple[int, int]], logprob_KV: Tensor, stop_ids: Sequence[int]
) -> DrawnTokens:
    """Return K tokens with their distributions and earlier ids; each place is a row and a token."""
    seen_KV = torch.zeros(logprob_KV.shape, dtype=torch.bool)
    prompt_KV, tokens, indices = torch.zeros_like(seen_KV), list[Tensor](), list[int]()
    for k, (b, t) in enumerate(places):
        row = rows[b]
        start = next((turn.start for turn in row.turns if turn.start <= t < turn.end), t)
        seen_KV[k, row.token_ids[start:t]] = True
        prompt_KV[k, row.token_ids[: row.prompt_length]] = True
        tokens.append(row.token_ids[t])
        indices.append(t - start)
    return DrawnTokens(logprob_KV, torch.stack(tokens), torch.tensor(indices), seen_KV, prompt_KV, stop_ids)
