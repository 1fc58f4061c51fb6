"""The draws of turns that a server sampled follow from their rollouts' keys."""

from dataclasses import replace

import pytest
import torch

from dev.faults.planted import FAULTS
from truing.engines.base import Request, generate
from truing.engines.vllm.proof.scores import canary_sample
from truing.measurements import race_replay
from truing.measurements.draw_audit import drawn_tokens
from truing.measurements.race_replay import EXCHANGE, GREEDY, RaceReplay
from truing.models.forward.collate import collate
from truing.models.forward.score import distributions
from truing.types.sample import TurnSpan
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason

pytestmark = pytest.mark.integration

PARAMS = SamplingParams(max_new_tokens=6, temperature=0.8)
PROMPT = torch.arange(40, 60)


def rows_of(engine, rollouts=6):
    """One turn of each rollout of a group."""
    keys = [("0", "grpo", "0", "0", str(i)) for i in range(rollouts)]
    turns = generate(engine, [Request(PROMPT, key) for key in keys], PARAMS)
    return [
        replace(
            canary_sample("/".join(key), PROMPT, turn.token_ids, PARAMS),
            group_id="group",
            turns=(TurnSpan(len(PROMPT), len(PROMPT) + len(turn.token_ids), FinishReason.LENGTH, 0, ""),),
        )
        for key, turn in zip(keys, turns, strict=True)
    ]


def replayed(policy, rows, part=36):
    """The facts of a replay of all rows, ``part`` tokens at a time."""
    replay = RaceReplay(rows, {row.sample_id: [0] for row in rows})
    batch = collate(rows)
    for places, logprob_KV in distributions(policy, batch, batch.policy_mask):
        drawn = drawn_tokens(rows, places, logprob_KV, [])
        for start in range(0, len(places), part):
            some = slice(start, start + part)
            some_drawn = replace(drawn, logprob_KV=drawn.logprob_KV[some], token_K=drawn.token_K[some])
            replay.add(places[some], some_drawn)
    return replay.facts(policy, rows)


@pytest.fixture
def sampled(served, opened, train):
    """A policy with an adapter that has moved, and rows that a server sampled with it."""
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy, size=0.3)
    engine.publish(policy, 1, "one")
    return policy, rows_of(engine)


def renamed(rows, order):
    """Rows whose answers come in another order."""
    return [
        replace(row, sample_id=rows[i].sample_id, rollout_id=rows[i].rollout_id)
        for row, i in zip(rows, order, strict=True)
    ]


def test_each_draw_follows_from_its_key(sampled):
    policy, rows = sampled
    replay = replayed(policy, rows)
    assert (replay["tokens"], replay["missed"]) == (36, 0)
    assert replay["largest"] < 1e-4


def test_weights_that_did_not_sample_show(sampled, train):
    policy, rows = sampled
    train(policy, seed=9, size=0.3)
    replay = replayed(policy, rows)
    assert replay["missed"] > 0
    assert replay["instead"] == ""


@pytest.mark.parametrize("order", [(1, 0, 2, 3, 4, 5), (1, 2, 3, 4, 5, 0)], ids=["two", "all"])
def test_exchanged_answers_are_distinguished_from_other_draws(sampled, order):
    policy, rows = sampled
    replay = replayed(policy, renamed(rows, order))
    assert replay["instead"] == EXCHANGE
    assert replay["missed"] >= 2


def test_unknown_numbers_give_no_claim(sampled):
    policy, rows = sampled
    other = [replace(row, rollout_id=f"1/{row.rollout_id}") for row in rows]
    assert replayed(policy, other) == {}


def test_parts_give_the_same_as_the_whole_up_to_a_limit_of_random_numbers(sampled, monkeypatch):
    policy, rows = sampled
    assert (replayed(policy, rows, part=4)["tokens"], replayed(policy, rows, part=4)["missed"]) == (36, 0)
    monkeypatch.setattr(race_replay, "MAX_NUMBERS", 8 * 259)
    assert replayed(policy, rows, part=4)["tokens"] == 8


def test_greedy_ids_are_no_unknown_random_numbers(served, opened, train):
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy, size=0.3)
    engine.publish(policy, 1, "one")
    with FAULTS["vllm-greedy"].plant():
        replay = replayed(policy, rows_of(engine))
    assert (replay["instead"], replay["missed"] > 0) == (GREEDY, True)
