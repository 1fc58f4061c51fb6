"""A mixture of experts in a real vLLM server: its experts are proven, and its routes are replayed."""

import pytest
import torch

from truing.engines.base import Request, generate
from truing.engines.vllm.proof.scores import canary_sample
from truing.errors import PublicationError
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.tiny_moe import CHOSEN, EXPERTS, LAYERS
from truing.types.sampling_params import SamplingParams
from truing.types.token import NO_ROUTE

PARAMS = SamplingParams(max_new_tokens=24)


def sampled(engine, key):
    """Turns of several lengths, all at one time."""
    prompts = [torch.arange(20 + 9 * i) * (i + 3) % 256 for i in range(6)]
    requests = [Request(prompt, (key, i)) for i, prompt in enumerate(prompts)]
    return list(zip(requests, generate(engine, requests, PARAMS), strict=True))


@torch.no_grad()
def compared(policy, turns, *, along):
    """The largest difference of log-probabilities, and the share of sets of experts that differ."""
    rows = [
        canary_sample(str(i), request.prompt_ids, turn.token_ids, PARAMS, routes=turn.routes)
        for i, (request, turn) in enumerate(turns)
    ]
    batch = collate(rows)
    scores = score(policy, batch, batch.policy_mask, replay_routes=along)
    differences = [
        (scores.logprob[b, row.prompt_length : len(row)] - turns[b][1].logprob).abs().max()
        for b, row in enumerate(rows)
    ]
    known, other = scores.routes
    return float(max(differences)), other / max(known, 1)


def test_trained_experts_are_proven_after_a_reload(mixture):
    with mixture.engine() as engine:
        mixture.publish(engine, 0)
        mixture.move(seed=1)
        receipt = mixture.publish(engine, 1)
        difference, share = compared(mixture.policy, sampled(engine, "proven"), along=True)
    assert receipt["layers"]["experts"]["layers"] == LAYERS
    assert receipt["layers"]["experts"]["largest"] < 0.3
    assert receipt["rows"]["largest"] < 1e-4
    assert receipt["rows"]["told_apart_from"] == ["the weights of version 0"]
    assert difference < 1e-4
    assert share < 0.01


def test_experts_that_a_reload_leaves_unpacked_are_refused(mixture):
    with mixture.engine() as engine:
        mixture.publish(engine, 0)
        mixture.plant("experts_unpacked")
        mixture.move(seed=1)
        with pytest.raises(PublicationError, match="other weights than were published") as error:
            mixture.publish(engine, 1)
    assert "mlp.experts" in error.value.got


def test_turns_have_the_routes_of_their_own_tokens(mixture):
    with mixture.engine() as engine:
        mixture.publish(engine, 0)
        assert engine.returns_routes
        for request, turn in sampled(engine, "own"):
            routes = turn.routes
            assert routes.shape == (len(request.prompt_ids) + len(turn.token_ids), LAYERS, CHOSEN)
            assert bool((routes[-1] == NO_ROUTE).all())
            assert int(routes[:-1].min()) >= 0
            assert int(routes.max()) < EXPERTS


def test_log_probabilities_agree_along_the_routes_of_an_engine_that_selects_otherwise(mixture):
    with mixture.engine() as engine:
        mixture.publish(engine, 0)
        mixture.plant("routes_otherwise")
        engine.servers[0].client.post("/reset_prefix_cache")
        turns = sampled(engine, "otherwise")
        mixture.plant("")
    along, share = compared(mixture.policy, turns, along=True)
    assert share > 0.2
    assert along < 1e-4
    apart, _ = compared(mixture.policy, turns, along=False)
    assert apart > 100 * along
