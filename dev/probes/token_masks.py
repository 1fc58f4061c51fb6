"""P3 to P7: padding, denominators, the end of a turn, environment tokens, and several turns."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from dev.probes.closed_form import (
    logprobs,
    off_policy_factors,
    policy_tokens,
    relative_difference,
    table_gradient,
    token_weights,
)
from dev.probes.letters_env import Echo, Letters
from dev.probes.result import Measurement, at_least, at_most, exactly
from dev.probes.reward_signal import MIN_PROBABILITY, ROUNDING, STEPS
from dev.probes.small_trainer import HEAD, SmallTrainer, small_trainer
from dev.probes.table_model import END_ID, NEVER_LOGIT, TEMPLATE
from truing.models.tiny import tiny_model
from truing.types.rollout import Rollout, Task
from truing.types.sample import Sample
from truing.types.status import Status
from truing.types.token import Origin

BUDGET = 5
"""The most tokens of a turn, for answers of several."""

RATIO_CAP = 1.2
"""Cap of CISPO's weight: a second optimizer step exceeds it."""

SUM_ORDER_TOLERANCE = 1e-4
"""Tolerance of a padded batch against a tree, relative to the largest entry: sums in another order."""


def unequal_prompts(folder: Path, algo: str) -> list[Measurement]:
    """P3. Prompts of unequal length: the gradient is that of a left-padded batch through the plain model."""
    prompts = ["a", "abcd", "abcdefghijkl", "zy"]
    trainer = small_trainer(
        "tiny", algo, Letters(_some_bytes, prompts, "cccc"), stage={"prompts_per_step": 4, "group_size": 4}
    )
    done, gradients = trainer.first_optimizer_step(trainer.draw().samples)
    expected = _left_padded(done.samples, token_weights(algo, [1] * len(done.samples), 1))
    return [
        at_most(
            "gradient, apart from the padded one",
            max(relative_difference(gradients[n], expected[n]) for n in expected),
            SUM_ORDER_TOLERANCE,
        ),
        exactly("weights without a gradient", len(expected) - sum(bool(g.any()) for g in gradients.values())),
    ]


def denominators(folder: Path, algo: str) -> list[Measurement]:
    """P4. Unequal answers: a token's gradient is A times its weight; then off-policy, and clipped."""
    twice = {} if algo in ("reinforce", "rloo") else {"inner_epochs": 2}
    stage = twice | {"cispo": {"max_weight": RATIO_CAP}, "gspo": {"learning_rate": 5e-4}}.get(algo, {})
    trainer = small_trainer(
        folder, algo, Letters(_length), sampling={"max_new_tokens": BUDGET}, stage=stage
    ).randomize()
    optimizer_steps = trainer.recorded_optimizer_steps(trainer.draw().samples)
    lengths = [int(row.policy_mask.sum()) for row in optimizer_steps[0].done.samples]
    measurements = []
    for number, each in enumerate(optimizer_steps, start=1):
        token_gradients = []
        for row, weight in zip(each.done.samples, token_weights(algo, lengths, BUDGET), strict=True):
            moved = (logprobs(each.table, row) - logprobs(optimizer_steps[0].table, row))[row.policy_mask]
            advantage = row.advantage[row.policy_mask].double()
            factors = off_policy_factors(algo, moved, advantage, RATIO_CAP)
            token_gradient = torch.zeros(len(row), dtype=torch.float64)
            token_gradient[row.policy_mask] = advantage * factors * weight
            token_gradients.append(token_gradient)
        expected = table_gradient(each.table, each.done.samples, token_gradients)
        name = f"gradient of optimizer step {number}, apart from the declared weights"
        measurements.append(at_most(name, relative_difference(each.gradients[HEAD], expected), ROUNDING))
    return [
        *measurements,
        exactly("optimizer steps", len(optimizer_steps), 1 + len(twice)),
        at_least("lengths that were drawn", len(set(lengths)), 3),
    ]


def end_of_turn(folder: Path, algo: str) -> list[Measurement]:
    """P5. Reward for stopping after one letter: the policy learns the stop, and a cut answer is no stop."""
    trainer = small_trainer(
        folder, algo, Letters(_one_letter), sampling={"max_new_tokens": 3}, stage={"group_size": 16}
    )
    done, _ = trainer.first_optimizer_step(trainer.draw().samples)
    trained = torch.cat(
        [row.policy_mask[policy_tokens(row) & (row.token_ids == END_ID)] for row in done.samples]
    )
    trainer.train(2 * STEPS)
    first, second = trainer.policy()[:, ord("a")], trainer.policy()[END_ID]
    stops = float((first * second).sum() - first[END_ID] * second[END_ID])
    return [
        at_least("p(one letter, then the stop)", stops, MIN_PROBABILITY),
        exactly("share of sampled stops that are trained", float(trained.double().mean()), 1.0),
    ]


def env_tokens(folder: Path, algo: str) -> list[Measurement]:
    """P6. One call, then the environment inserts `ef`: its text is never trained, and the call is learnt."""
    sizes = {"sampling": {"max_new_tokens": 2}, "stage": {"group_size": 16}}
    trainer = small_trainer(folder, algo, Echo(_called, env_reply="ef"), **sizes)
    with torch.no_grad():
        trainer.table[list(b"defgh")] = NEVER_LOGIT  # so that only the environment writes e and f
    before, samples = _calls(trainer), trainer.draw().samples
    done, gradients = trainer.first_optimizer_step(samples)
    inserted = torch.cat([row.origin[row.token_ids == ord("e")] for row in samples])
    outside = sum(int((row.policy_mask & (row.origin != Origin.SAMPLED)).sum()) for row in done.samples)
    within, after = (gradients[HEAD][:, ord(letter)].abs().max() for letter in "ef")
    trainer.train(STEPS)
    return [
        *(_discount(folder, algo) if algo in ("ppo", "reinforce") else ()),
        exactly("gradient within what the environment says", float(within)),
        exactly("trained tokens that were not sampled", outside),
        at_least("tokens e that the environment inserted", int((inserted != Origin.SAMPLED).sum()), 1),
        at_least("gradient after it", float(after), 1e-6),
        at_most("call rate before", before, 0.2),
        at_least("call rate after", _calls(trainer), MIN_PROBABILITY),
    ]


def _discount(folder: Path, algo: str) -> Iterator[Measurement]:
    """Yield whether environment tokens take time: while V is 0, a return is γ^(number of later choices)."""
    credit = {"gamma": 0.5, "group_size": 16} | ({"lam": 1.0} if algo == "ppo" else {"baseline": "none"})
    trainer = small_trainer(
        folder, algo, Echo(lambda rollout, task: 1.0, "ef"), sampling={"max_new_tokens": 2}, stage=credit
    )
    done, _ = trainer.first_optimizer_step(trainer.draw().samples)
    misses = []
    for row in done.samples:
        chosen = row.returns[row.policy_mask].double()
        misses.append(float((chosen - 0.5 ** torch.arange(len(chosen) - 1, -1, -1)).abs().max()))
    yield at_most("returns, apart from ½ for each token chosen since", max(misses), ROUNDING)


def two_turns(folder: Path, algo: str) -> list[Measurement]:
    """P7. Two turns: the second follows the ids of the first; rewritten ids start a new sample."""
    rewriting = folder.parent / "rewriting.jinja"
    rewriting.write_text(TEMPLATE.replace("{{ message['content'] }}", REWRITTEN))
    measurements = []
    for name, model in (("", {}), (", history rewritten", {"chat_template": str(rewriting)})):
        sizes = {"sampling": {"max_new_tokens": 2}, "stage": {"group_size": 16}}
        trainer = small_trainer(
            folder, algo, Echo(_reward_of_texts, env_reply="ef"), model=model, **sizes
        ).randomize()
        with torch.no_grad():
            trainer.table[END_ID, list(b"ab")] = NEVER_LOGIT  # a first turn always has a letter
        drawn = trainer.draw()
        done, _ = trainer.first_optimizer_step(drawn.samples)
        played = [rollout for rollout in drawn.rollouts.values() if len(rollout.turns) == 2]
        apart = [
            (done.stream("new_logprob", row) - row.sampler_logprob)[row.policy_mask].abs().max()
            for row in done.computed
        ]
        restarted = sum(bool(rollout.turns[1].restart_reason) for rollout in played)
        measurements += [
            at_most(f"|trainer − sampler| log-probability{name}", float(max(apart)), ROUNDING),
            exactly(f"share that began anew{name}", restarted / max(1, len(played)), 1.0 if name else 0.0),
            at_least(f"rollouts of two turns{name}", len(played), 1),
        ]
    return measurements


REWRITTEN = (
    "{% if message['role'] == 'assistant' and not loop.last %}{{ message['content'] | upper }}"
    "{% else %}{{ message['content'] }}{% endif %}"
)
"""Part of a template that changes earlier turns."""


def _some_bytes(rollout: Rollout, task: Task) -> float:
    """Return a reward that differs for most pairs of answers of a random model."""
    return float(sum(rollout.text.encode()) % 7)


def _length(rollout: Rollout, task: Task) -> float:
    """Return a reward by length in letters: long and short answers have opposite advantages."""
    return float(len(rollout.text))


def _one_letter(rollout: Rollout, task: Task) -> float:
    return float(len(rollout.text) == 1 and rollout.status is Status.DONE)


def _called(rollout: Rollout, task: Task) -> float:
    return float(rollout.outcome["heard"][:1] == ["c"])  # a cut turn does not reach the environment


def _reward_of_texts(rollout: Rollout, task: Task) -> float:
    """Return a reward by the first letter."""
    return float(sum("".join(rollout.outcome["heard"]).encode()))


def _calls(trainer: SmallTrainer) -> float:
    """Return the smallest probability of the call and its end."""
    policy = trainer.policy()
    return min(float(policy[ord("c"), ord(prompt)] * policy[END_ID, ord("c")]) for prompt in "ab")


def _left_padded(samples: Sequence[Sample], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return gradients of −Σ weight · A · log π by name, of a new plain model without trees or chunks."""
    model, longest = tiny_model(), max(map(len, samples))
    assert model.config.pad_token_id is not None
    ids_BT = torch.full((len(samples), longest), model.config.pad_token_id)
    weighted_advantage_BT = torch.zeros(len(samples), longest)
    for b, (row, weight) in enumerate(zip(samples, weights, strict=True)):
        ids_BT[b, longest - len(row) :] = row.token_ids
        weighted_advantage_BT[b, longest - len(row) :] = torch.where(
            row.policy_mask, row.advantage * weight, 0.0
        )
    attention_BT = torch.arange(longest) >= longest - torch.tensor([len(row) for row in samples])[:, None]
    positions_BT = (attention_BT.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids_BT, attention_mask=attention_BT.long(), position_ids=positions_BT).logits
    logprob_BT = logits[:, :-1].log_softmax(-1).gather(2, ids_BT[:, 1:, None])[:, :, 0]
    (-(weighted_advantage_BT[:, 1:] * logprob_BT).sum()).backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
