"""Caps and scales of logits in trainer, sampler, reference and adapter: as the model itself has them."""

import copy

import pytest
import torch
from architectures import tiny_config, tiny_model
from samples import sample

from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.engines.local.merge_adapter import sampler_copy, sync_weights
from truing.models.critic import Critic
from truing.models.forward.collate import collate
from truing.models.forward.onednn_linear import use_onednn
from truing.models.forward.output_head import head_of
from truing.models.forward.score import causal_model, score
from truing.models.lora import add_lora, trainable_parameters
from truing.models.reference import make_reference
from truing.types.sampling_params import SamplingParams

FORMULAS = {  # logits of what the output layer gives, by papers and model cards
    "gemma2": lambda z: 3.0 * torch.tanh(z / 3.0),
    "gemma3n_text": lambda z: 3.0 * torch.tanh(z / 3.0),
    "recurrent_gemma": lambda z: 3.0 * torch.tanh(z / 3.0),
    "vaultgemma": lambda z: 3.0 * torch.tanh(z / 3.0),
    "nanochat": lambda z: 3.0 * torch.tanh(z / 3.0),
    "cohere": lambda z: 4.0 * z,
    "cohere2": lambda z: 4.0 * z,
    "granite": lambda z: z / 4.0,
    "granitemoe": lambda z: z / 4.0,
    "granitemoehybrid": lambda z: z / 4.0,
    "falcon_h1": lambda z: 0.5 * z,
}
ON_THE_WAY = ("minicpm3", "bert", "hyperclovax")  # they scale or transform hidden states first
LAYER_ONLY = (
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma",
    "gptj",
    "phi",
    "codegen",
    "smollm3",
)  # some have a bias
DRAWN = SamplingParams(max_new_tokens=8)


@pytest.fixture
def made():
    """``made(model_type)``: a tiny model whose logits are large enough for a cap to change them."""

    def make(model_type, **changes):
        config = tiny_config(model_type)
        for name, value in changes.items():
            setattr(config, name, value)
        model = tiny_model(config)
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(20)
        return model

    return make


def batch():
    return collate([sample([3, 4, 5], [6, 7, 8, 9]), sample([3], [9, 2], name="b")])


@pytest.mark.parametrize("model_type", FORMULAS)
def test_logits_are_those_of_the_formula(made, model_type):
    model = made(model_type)
    layer = model.get_output_embeddings()
    hidden = torch.randn(5, layer.weight.shape[1])
    expected = FORMULAS[model_type](layer(hidden))
    assert torch.allclose(head_of(model)(hidden), expected, atol=1e-5)
    assert not torch.allclose(layer(hidden), expected, atol=0.1)


@pytest.mark.parametrize("model_type", LAYER_ONLY)
def test_an_output_layer_that_is_all_is_called_itself(made, model_type):
    model = made(model_type)
    assert head_of(model) is model.get_output_embeddings()


@pytest.mark.parametrize("model_type", [*FORMULAS, *ON_THE_WAY, *LAYER_ONLY])
def test_scores_and_gradients_are_those_of_the_models_own_forward(made, model_type):
    model = made(model_type)
    same_scores(model, model)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("electra", {"embedding_size": 16}), ("opt", {"word_embed_proj_dim": 16})],
    ids=["electra", "opt"],
)
def test_embeddings_may_be_narrower_than_hidden_states(made, model_type, changes):
    model = made(model_type, **changes)
    assert model.get_output_embeddings().weight.shape[1] == 16
    same_scores(model, model)
    rows = batch()
    critic = Critic(model, separate=False)
    values = score(model, rows, rows.policy_mask, critic=critic).value
    assert values is not None
    assert not values.any()  # it begins at 0


@pytest.mark.parametrize(
    "model_type", ["gemma2", "gemma3n_text", "cohere", "granite", "minicpm3", "nanochat"]
)
@pytest.mark.parametrize("lora", [False, True], ids=["all", "lora"])
def test_policy_sampler_and_reference_agree_while_the_policy_moves(made, model_type, lora):
    base = made(model_type)
    use_onednn(base)
    untouched = copy.deepcopy(base)
    policy = add_lora(base, rank=2, alpha=4, dropout=0.0, targets="all-linear", seed=0) if lora else base
    reference = make_reference(policy)
    perturb(policy)
    same_scores(policy, causal_model(policy))
    rows = batch()
    held = reference.score(rows, rows.policy_mask).logprob[rows.policy_mask]
    assert torch.allclose(held, own(untouched, rows), atol=1e-5)
    drawing = sampler_copy(policy)
    sampler = LocalEngine(drawing, context_length=128)
    sync_weights(policy, drawing)
    prompts = [torch.tensor([3]), torch.tensor([4, 5, 6]), torch.arange(7, 12)]
    completions = sampler.generate([Request(ids, ("x", i)) for i, ids in enumerate(prompts)], DRAWN)
    for ids, each in zip(prompts, completions, strict=True):
        rows = collate([sample(ids.tolist(), each.token_ids.tolist())])
        assert torch.allclose(own(causal_model(policy), rows), each.logprob, atol=1e-4)


@torch.no_grad()
def perturb(policy):
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable_parameters(policy).values():
        parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def own(model, rows):
    """Log-probabilities of the tokens that are trained, by the model's own forward, row by row."""
    results = []
    for row in rows.samples:
        logits = model(input_ids=row.token_ids[None]).logits[0, row.prompt_length - 1 : -1].float()
        answer = row.token_ids[row.prompt_length :, None]
        results.append(logits.log_softmax(-1).gather(1, answer)[:, 0])
    return torch.cat(results)


def same_scores(policy, causal):
    rows = batch()
    weight = torch.linspace(-1, 1, int(rows.policy_mask.sum()))
    scored = score(policy, rows, rows.policy_mask).logprob[rows.policy_mask]
    expected = own(causal, rows)
    assert torch.allclose(scored, expected, atol=1e-4)
    mine, wanted = (gradient(policy, (each * weight).sum()) for each in (scored, expected))
    assert (mine - wanted).norm() <= 1e-4 * wanted.norm()


def gradient(policy, loss):
    result = torch.autograd.grad(loss, list(trainable_parameters(policy).values()), allow_unused=True)
    return torch.cat([each.flatten() for each in result if each is not None])
