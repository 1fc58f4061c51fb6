"""The ids that top-k, top-p and min-p keep: a server that keeps others is refused, though numbers agree."""

import pytest
import torch

from dev.faults.fake_vllm import app
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams

DECLARED = {
    "top-k": {"top_k": 20},
    "top-p": {"top_k": 20, "top_p": 0.5},
    "min-p": {"top_k": 20, "min_p": 0.6},
}


@pytest.fixture
def publish(served, opened, train, monkeypatch):
    """``publish(params, dtype, sample)``: publish to a server that samples with ``sample``."""

    def publish(params, dtype="float32", sample=app.sample_turn):
        server = served(dtype=getattr(torch, dtype), max_logprobs=64)
        engine, policy = opened(server.url, engine={"dtype": dtype})
        engine.prove_with(SamplingParams(**params))
        train(policy, size=0.1)
        monkeypatch.setattr(app, "sample_turn", sample)
        return engine.publish(policy, 1, "one")

    return publish


def changing(**changes):
    """A server, or a proxy before it, that changes parameters of requests."""
    real = app.sample_turn

    def sample(model, prompt, scope, params, *others):
        return real(model, prompt, scope, {**params, **changes}, *others)

    return sample


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_healthy_server_keeps_the_declared_ids(publish, name, dtype):
    assert publish(DECLARED[name], dtype)["turns"]["truncated"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "changes", "cause"),
    [
        ("top-k", {"top_k": 10}, "as with a smaller top-k"),
        ("top-k", {"top_k": 19}, "as with a smaller top-k"),
        ("top-k", {"top_p": 0.7}, "as with a smaller top-k or top-p"),
        ("top-p", {"top_p": 1.0}, "as without top-p or min-p"),
        ("top-p", {"top_p": 0.9}, "as without top-p or min-p"),
        ("top-p", {"top_p": 0.3}, "as with a smaller top-k or top-p"),
        ("min-p", {"min_p": 0.0}, "as without top-p or min-p"),
    ],
)
def test_other_ids_are_refused(publish, name, changes, cause):
    with pytest.raises(PublicationError, match="samples among other ids than the declared") as error:
        publish(DECLARED[name], sample=changing(**changes))
    assert cause in error.value.what


def test_a_smaller_top_k_is_refused_in_bfloat16_too(publish):
    with pytest.raises(PublicationError, match="as with a smaller top-k"):
        publish(DECLARED["top-k"], "bfloat16", changing(top_k=5))


def test_an_unlikely_id_among_the_kept_ones_is_refused(publish):
    real = app.sample_turn

    def sample(model, prompt, scope, params, *others):
        turn = real(model, prompt, scope, params, *others)
        for top in turn.top_logprobs:
            top[min(top, key=top.__getitem__)] = -30.0  # one that top-k excludes
        return turn

    with pytest.raises(PublicationError, match="as without top-p or min-p, or with a larger top-k"):
        publish(DECLARED["top-k"], "bfloat16", sample)


@pytest.mark.parametrize("top_k", [2, 3, 5])
def test_ids_that_equal_the_last_one_are_all_asked_for(publish, top_k):
    """In bfloat16 many logits are equal, and vLLM keeps all of them."""
    assert publish({"top_k": top_k}, "bfloat16")["turns"]["largest"] < 0.1
