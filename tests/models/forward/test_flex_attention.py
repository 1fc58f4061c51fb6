"""FlexAttention, which computes trees on CUDA, against the CPU's segments: outputs, gradients, whole models.

Torch compiles its forward for a CPU too, but no backward. So gradients are those of its uncompiled form,
with torch's refusal of gradients on a CPU switched off.
"""

import pytest
import torch
from test_hidden_states import LLAMA, ROWS, TREES, alone, gradients, made, same, together
from test_tree_attention import FLOAT32_ERROR, SCALE, errors, random_tree, results, tensors
from torch._dynamo.testing import CompileCounter
from torch.nn.attention import flex_attention as flex

from truing.models.forward import hidden_states, tree_attention
from truing.models.forward.fused_modules import use_fused_modules
from truing.models.forward.token_tree import build_tree
from truing.models.forward.tree_attention import segment_attention

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
CPU = torch.device("cpu")


@pytest.fixture
def uncompiled(monkeypatch):
    """Let FlexAttention run uncompiled, with gradients, and let models on a CPU take it."""
    monkeypatch.setattr(flex, "_validate_device", lambda query, key, value: None)
    monkeypatch.setattr(tree_attention, "_compiled_flex", lambda: flex.flex_attention)
    monkeypatch.setattr(hidden_states, "tree_attention", tree_attention.flex_attention)


def layer(attention):
    """The first layer's attention of query, key and value."""
    return lambda query, key, value: attention(0, query, key, value, SCALE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, FLOAT32_ERROR), (torch.bfloat16, 0.02)], ids=["float32", "bfloat16"]
)
def test_it_has_the_outputs_and_gradients_of_segments(uncompiled, seed, dtype, most):
    """Four heads share two keys; eight rows branch from one."""
    tree = random_tree(seed)
    assert len(tree.segments()) > 8
    inputs = tensors(len(tree.ends_L), seed)
    exact = results(layer(segment_attention(tree)), inputs, torch.float64)
    assert max(errors(results(layer(tree_attention.flex_attention(tree, CPU)), inputs, dtype), exact)) < most


def test_a_leaf_that_sees_its_sibling_is_noticed(uncompiled):
    tree = build_tree([torch.tensor(ids) for ids in ROWS])
    inputs = tensors(len(tree.ends_L), 0)
    exact = results(layer(segment_attention(tree)), inputs, torch.float64)
    tree.ends_L[:] = len(tree.ends_L)
    wrong = results(layer(tree_attention.flex_attention(tree, CPU)), inputs, torch.float32)
    assert min(errors(wrong, exact)) > 100 * FLOAT32_ERROR


@pytest.mark.parametrize("config", TREES, ids=lambda config: config.model_type)
def test_a_model_computes_its_samples_as_alone(uncompiled, config):
    """Among the models are some whose window is longer than each row."""
    same(made(config), ROWS)


@pytest.mark.parametrize("form", [tree_attention.flex_attention, tree_attention.tree_attention])
@pytest.mark.parametrize("config", TREES, ids=lambda config: config.model_type)
def test_under_autocast_it_rounds_as_the_models_own_forward(uncompiled, monkeypatch, config, form):
    """On CUDA a model in float32 computes under autocast, where queries and values differ in dtype."""
    monkeypatch.setattr(hidden_states, "tree_attention", form)
    model = made(config)
    use_fused_modules(model)
    exact = alone(model, ROWS)
    exact_gradients = gradients(model, exact)
    with torch.autocast("cpu", torch.bfloat16):
        found = [each(model, ROWS) for each in (together, alone)]
    in_tree, own = (errors([each.detach().float()], [exact.detach()])[0] for each in found)
    assert 1e-4 < in_tree < 2 * own < 0.1
    in_tree, own = (errors([gradients(model, each.float())], [exact_gradients])[0] for each in found)
    assert 1e-4 < in_tree < 2 * own < 0.2


def test_recomputed_layers_stay_under_autocast(uncompiled):
    sequences = [torch.tensor(ids) for ids in ROWS]
    wanted = torch.tensor([[b, t] for b, ids in enumerate(ROWS) for t in range(1, len(ids))]).T
    found = []
    for again in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            hidden = hidden_states.hidden_before(LLAMA, sequences, wanted, recompute=again)
        found.append(gradients(LLAMA, hidden))
    assert torch.equal(*found)


def test_trees_of_other_sizes_compile_nothing_new(uncompiled, monkeypatch):
    """One graph for any number of tokens and blocks, a single block included; each takes seconds."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(flex.flex_attention, dynamic=True, backend=counter)
    monkeypatch.setattr(tree_attention, "_compiled_flex", lambda: compiled)
    for length in (20, 100, 90, 200, 300):
        tree = build_tree([torch.randint(0, 9, (length,)) for _ in range(2)])
        inputs = tensors(len(tree.ends_L), 0)[:3]
        found = layer(tree_attention.flex_attention(tree, CPU))(*inputs)
        assert errors([found], [layer(segment_attention(tree))(*inputs)])[0] < FLOAT32_ERROR
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_it_computes_segments(dtype):
    """Compiling takes some 20 seconds. All have two blocks: torch 2.13 compiles no second number on a CPU."""
    torch._dynamo.reset()
    for seed in (0, 2, 3):
        tree = random_tree(seed)
        inputs = [each.bfloat16().to(dtype) for each in tensors(len(tree.ends_L), seed)[:3]]
        exact = layer(segment_attention(tree))(*(each.double() for each in inputs))
        found = layer(tree_attention.flex_attention(tree, CPU))(*inputs)
        assert found.dtype is dtype
        assert errors([found], [exact])[0] < (FLOAT32_ERROR if dtype is torch.float32 else 0.01)
