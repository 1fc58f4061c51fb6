"""A forward along recorded expert routes: the selection is the record's, the scores are the router's own."""

from dataclasses import replace

import pytest
import torch
from architectures import tiny_config, tiny_model
from samples import sample

from truing.doctor.oracle.expert_routes import routes_imposed
from truing.errors import ModelError
from truing.models.forward.collate import collate
from truing.models.forward.expert_routes import record_routes, routers_of, use_routes
from truing.models.forward.hidden_states import split_micro_batches
from truing.models.forward.route_support import why_no_replay
from truing.models.forward.score import causal_model, score
from truing.models.lora import add_lora
from truing.models.reference import make_reference
from truing.types.token import NO_ROUTE

REPLAYED = [
    "qwen3_moe",
    "qwen2_moe",
    "mixtral",
    "olmoe",
    "flex_olmo",
    "granitemoe",
    "gpt_oss",
    "deepseek_v3",
    "glm4_moe",
    "ernie4_5_moe",
    "dots1",
    "jamba",
    "minimax",
    "exaone_moe",
    "qwen3_next",
]
LENGTHS = (11, 14, 9)


@pytest.fixture
def mixture():
    """A Qwen3 mixture: two layers of four experts, of which a token takes two."""
    return tiny_model(tiny_config("qwen3_moe"))


def rows_of(model, shared=6):
    """Samples that begin alike, each with the model's own routes."""
    generator = torch.Generator().manual_seed(3)
    rows = []
    for i, length in enumerate(LENGTHS):
        ids = torch.cat(
            [torch.arange(5, 5 + shared), torch.randint(4, 200, (length - shared,), generator=generator)]
        )
        row = sample(ids[:3].tolist(), ids[3:].tolist(), name=str(i))
        rows.append(replace(row, routes=own_routes(model, ids)))
    return rows


@torch.no_grad()
def own_routes(model, ids):
    with record_routes(model) as recorded:
        model(input_ids=ids[None], use_cache=False)
        return recorded()


def logprobs(model, rows, **options):
    batch = collate(rows)
    return score(model, batch, batch.policy_mask, **options)


def other_experts(routes, seed=0):
    """Routes of random experts, two different ones per token and layer."""
    generator = torch.Generator().manual_seed(seed)
    experts = 1 + int(routes.max())
    noise = torch.rand(*routes.shape[:2], experts, generator=generator)
    return noise.topk(routes.shape[2]).indices.to(torch.int16)


def test_a_record_of_the_models_own_routes_changes_no_bit(mixture):
    rows = rows_of(mixture)
    along, free = logprobs(mixture, rows), logprobs(mixture, rows, replay_routes=False)
    assert torch.equal(along.logprob, free.logprob)
    compared, different = along.routes
    assert compared == 2 * (6 + sum(length - 6 - 1 for length in LENGTHS))  # both layers, each node once
    assert different == 0
    assert free.routes == (0, 0)


def test_other_routes_give_other_log_probabilities_and_are_counted(mixture):
    rows = rows_of(mixture)
    moved = [replace(row, routes=row.routes.roll(1, 0)) for row in rows]
    free, along = logprobs(mixture, rows, replay_routes=False), logprobs(mixture, moved)
    assert float((along.logprob - free.logprob).abs().max()) > 1e-3
    assert along.routes[1] > along.routes[0] / 4


@pytest.mark.parametrize("model_type", REPLAYED)
def test_a_forward_along_routes_is_the_plain_forward_with_imposed_routes(model_type):
    model = tiny_model(tiny_config(model_type))
    assert why_no_replay(model) == ""
    rows = [replace(row, routes=other_experts(row.routes, i)) for i, row in enumerate(rows_of(model))]
    batch = collate(rows)
    along = score(model, batch, batch.policy_mask).logprob
    for b, row in enumerate(rows):
        with torch.no_grad(), routes_imposed(model.get_decoder(), row.routes):
            logits = model(input_ids=row.token_ids[None], use_cache=False).logits[0]
        plain = logits.log_softmax(-1)[:-1].gather(1, row.token_ids[1:, None])[:, 0]
        scored = batch.policy_mask[b, 1 : len(row)]
        assert torch.allclose(along[b, 1 : len(row)][scored], plain[scored], atol=2e-5)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("phimoe", "does not select its experts by one topk"),
        ("lfm2_moe", "does not select its experts by one topk"),
        ("hunyuan_v1_moe", "selects its experts outside a router"),
    ],
)
def test_a_mixture_that_cannot_replay_says_why_and_routes_by_itself(model_type, reason):
    model = tiny_model(tiny_config(model_type))
    assert reason in why_no_replay(model)
    assert model_type in why_no_replay(model)
    ids = torch.arange(5, 15)
    row = replace(sample(ids[:3].tolist(), ids[3:].tolist()), routes=torch.zeros(10, 2, 2, dtype=torch.int16))
    free = logprobs(model, [replace(row, routes=None)])
    assert torch.equal(logprobs(model, [row]).logprob, free.logprob)


def test_groups_of_experts_that_mask_scores_are_not_replayed():
    config = tiny_config("deepseek_v2")
    config.topk_method, config.n_group, config.topk_group = "group_limited_greedy", 2, 1
    assert "has no score for experts that it would not select" in why_no_replay(tiny_model(config))


def test_an_expert_that_the_router_would_not_select_gets_its_gradient(mixture):
    mixture = mixture.double()
    mixture.config._experts_implementation = "eager"  # grouped products have no float64
    (row, *_) = rows_of(mixture)
    row = replace(row, routes=other_experts(row.routes))
    router = routers_of(mixture)[1]
    own = own_routes(mixture, row.token_ids)[:, 1]
    drifted = next(
        int(expert)
        for t in range(len(row) - 1)
        for expert in row.routes[t, 1]
        if expert not in own[t].tolist()
    )

    def total():
        return logprobs(mixture, [row]).logprob.sum()

    total().backward()
    got = router.weight.grad[drifted].clone()
    assert float(got.abs().max()) > 1e-4
    direction, step, ends = got / got.norm(), 1e-2, []
    for sign in (1, -1):
        with torch.no_grad():
            router.weight[drifted] += sign * step * direction
            ends.append(float(total()))
            router.weight[drifted] -= sign * step * direction
    # the router's softmax is in float32
    assert float(got.norm()) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-3)


def test_the_gradient_is_that_of_the_plain_forward(mixture):
    rows = [replace(row, routes=other_experts(row.routes, i)) for i, row in enumerate(rows_of(mixture))]
    logprobs(mixture, rows).logprob.sum().backward()
    got = {name: weight.grad.clone() for name, weight in mixture.named_parameters()}
    mixture.zero_grad()
    for row in rows:
        with routes_imposed(mixture.get_decoder(), row.routes):
            logits = mixture(input_ids=row.token_ids[None], use_cache=False).logits[0]
        plain = logits.log_softmax(-1)[:-1].gather(1, row.token_ids[1:, None])[:, 0]
        plain[row.policy_mask[1:]].sum().backward()
    for name, weight in mixture.named_parameters():
        assert torch.allclose(got[name], weight.grad, atol=1e-4, rtol=1e-3), name


@pytest.mark.parametrize("layout", ["tree", "rows"])
def test_recomputed_layers_take_the_same_routes(mixture, layout, monkeypatch):
    if layout == "rows":
        monkeypatch.setattr("truing.models.forward.hidden_states.why_no_tree", lambda *_: "for a test")
    rows = [replace(row, routes=other_experts(row.routes, i)) for i, row in enumerate(rows_of(mixture))]
    grads = []
    for recompute in (False, True):
        mixture.zero_grad()
        logprobs(mixture, rows, recompute=recompute).logprob.sum().backward()
        grads.append([weight.grad.clone() for weight in mixture.parameters()])
    for plain, recomputed in zip(*grads, strict=True):
        assert torch.equal(plain, recomputed)


def test_a_tree_gives_what_padded_rows_give_though_routes_of_equal_ids_differ(mixture, monkeypatch):
    rows = rows_of(mixture)
    forked = rows[1].routes.clone()
    forked[3:] = other_experts(forked)[3:]  # from the fourth token, of the shared six
    rows[1] = replace(rows[1], routes=forked)
    (micro,) = split_micro_batches(mixture, rows, 10_000)
    assert micro.tokens == 6 + (LENGTHS[0] - 7) + (LENGTHS[2] - 7) + (LENGTHS[1] - 1 - 3)
    tree = logprobs(mixture, rows).logprob
    monkeypatch.setattr("truing.models.forward.hidden_states.why_no_tree", lambda *_: "for a test")
    assert torch.allclose(tree, logprobs(mixture, rows).logprob, atol=1e-5)
    alone = torch.cat([logprobs(mixture, [row]).logprob[0, 3:] for row in rows])
    assert torch.allclose(torch.cat([tree[b, 3 : len(row)] for b, row in enumerate(rows)]), alone, atol=1e-5)


def test_tokens_without_a_record_route_by_themselves(mixture):
    rows = rows_of(mixture)
    partly = rows[0].routes.clone()
    partly[2:5] = NO_ROUTE
    mixed = [replace(rows[0], routes=partly), replace(rows[1], routes=None), rows[2]]
    free = logprobs(mixture, rows, replay_routes=False).logprob
    assert torch.allclose(logprobs(mixture, mixed).logprob, free, atol=1e-5)


def test_routes_of_another_model_are_refused(mixture):
    (row, *_) = rows_of(mixture)
    with pytest.raises(ModelError, match="do not fit"):
        logprobs(mixture, [replace(row, routes=row.routes.repeat(1, 1, 2))])
    for other in (row.routes[:, :1], row.routes + 4):
        with pytest.raises(ModelError, match="of another model"):
            logprobs(mixture, [replace(row, routes=other)])


def test_routes_are_used_within_their_block_alone(mixture):
    ids, routers = torch.arange(5, 15), routers_of(mixture)
    before = own_routes(mixture, ids)
    with use_routes(mixture, other_experts(before)):
        pass
    assert torch.equal(own_routes(mixture, ids), before)
    assert not any("forward" in router.__dict__ for router in routers.values())


def test_an_adapter_is_trained_along_the_routes_and_the_reference_routes_by_itself(mixture):
    rows = [replace(row, routes=other_experts(row.routes, i)) for i, row in enumerate(rows_of(mixture))]
    policy = add_lora(mixture, rank=2, alpha=4.0, dropout=0.0, targets=["q_proj", "v_proj"], seed=0)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight += 0.1
    batch = collate(rows)
    along = score(policy, batch, batch.policy_mask)
    along.logprob.sum().backward()
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    assert all(bool(weight.grad.any()) for weight in trained)
    with torch.no_grad(), routes_imposed(causal_model(policy).get_decoder(), rows[0].routes):
        logits = policy(input_ids=rows[0].token_ids[None], use_cache=False).logits[0]
    plain = logits.log_softmax(-1)[:-1].gather(1, rows[0].token_ids[1:, None])[:, 0]
    assert torch.allclose(along.logprob[0, 3 : len(rows[0])], plain[2:], atol=2e-5)
    reference = make_reference(policy, syncable=True).score(batch, batch.policy_mask).logprob
    free = score(policy, batch, batch.policy_mask, replay_routes=False).logprob
    assert torch.equal(reference, free.detach())
    assert not torch.allclose(reference, along.logprob.detach(), atol=1e-3)
