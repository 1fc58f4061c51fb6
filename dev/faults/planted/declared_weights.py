"""Which weights train, and from which numbers they start."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import LORA, PPO


def _on_policy(change):
    """Change the policy after it has been loaded."""

    def make(real):
        def load_policy(*args, **kwargs):
            loaded, policy = real(*args, **kwargs)
            with torch.no_grad():
                change(policy)
            return loaded, policy

        return load_policy

    return patched("truing.trainer.session:load_policy", make)


def _freeze(*parts):
    """Freeze the trained weights whose names have all of these parts."""

    def change(policy):
        for name, weight in policy.named_parameters():
            if all(part in name for part in parts):
                weight.requires_grad_(False)

    return change


ADAPTER_ON_ATTENTION = Fault(
    name="adapter-on-attention",
    numbers=(109,),
    what="an adapter that is declared for all linear layers is on attention alone",
    plant=lambda: patched(
        "truing.models.load_policy:add_lora",
        lambda real: lambda model, *, targets, **rest: real(model, targets=["q_proj", "v_proj"], **rest),
    ),
    expected=("OPT018",),
    changes=LORA,
)


MLP_A_FROZEN = Fault(
    name="mlp-a-frozen",
    numbers=(109,),
    what="A of the adapters in the MLP is frozen",
    plant=lambda: _on_policy(_freeze("mlp", "lora_A")),
    expected=("OPT018",),
    changes=LORA,
)


LAST_LAYER_FROZEN = Fault(
    name="last-layer-frozen",
    numbers=(109,),
    what="full training leaves out the last decoder layer",
    plant=lambda: _on_policy(_freeze("layers.1.")),
    expected=("OPT018",),
)


NORMS_TRAINED = Fault(
    name="norms-trained",
    numbers=(109,),
    what="the norms of the base train beside an adapter on linear layers",
    plant=lambda: _on_policy(
        lambda policy: [
            weight.requires_grad_() for name, weight in policy.named_parameters() if "norm" in name
        ]
    ),
    expected=("OPT018",),
    changes=LORA,
)


RANK_HALVED = Fault(
    name="rank-halved",
    numbers=(109,),
    what="the adapter has half the declared rank, at the same scale",
    plant=lambda: patched(
        "truing.models.load_policy:add_lora",
        lambda real: (
            lambda model, *, rank, alpha, **rest: real(model, rank=rank // 2, alpha=alpha / 2, **rest)
        ),
    ),
    expected=("OPT018",),
    changes=LORA,
)


ALPHA_BY_ROOT_OF_RANK = Fault(
    name="alpha-by-root-of-rank",
    numbers=(109,),
    what="the adapter is scaled by alpha over the root of its rank, not over its rank",
    plant=lambda: patched(
        "truing.models.load_policy:add_lora",
        lambda real: (
            lambda model, *, rank, alpha, **rest: real(model, rank=rank, alpha=alpha * rank**0.5, **rest)
        ),
    ),
    expected=("OPT018",),
    changes=LORA,
)


CRITIC_TRUNK_FROZEN = Fault(
    name="critic-trunk-frozen",
    numbers=(109,),
    what="a critic with a trunk of its own trains its head alone",
    plant=lambda: patched(
        "truing.models.critic:_own_trunk", lambda real: lambda causal: real(causal).requires_grad_(False)
    ),
    expected=("OPT018",),
    changes=PPO | {"ppo.critic": "separate"},
)


def _with_new_trunk(real):
    def own_trunk(causal):
        trunk, generator = real(causal), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in trunk.parameters():
                if weight.ndim > 1:
                    weight.normal_(0, 0.02, generator=generator)
        return trunk

    return own_trunk


CRITIC_TRUNK_RANDOM = Fault(
    name="critic-trunk-random",
    numbers=(110,),
    what="a critic's own trunk begins with random weights, not with the policy's",
    plant=lambda: patched("truing.models.critic:_own_trunk", _with_new_trunk),
    expected=("OPT018",),
    changes=PPO | {"ppo.critic": "separate"},
)


def _rounded(dtype):
    def change(policy):
        for weight in policy.parameters():
            weight.copy_(weight.to(dtype))

    return change


LOADED_IN_BFLOAT16 = Fault(
    name="loaded-in-bfloat16",
    numbers=(110,),
    what="weights are rounded to bfloat16 when they are loaded, and declared as float32",
    plant=lambda: _on_policy(_rounded(torch.bfloat16)),
    expected=("OPT018",),
)


BASE_IN_FLOAT16 = Fault(
    name="base-in-float16",
    numbers=(110,),
    what="the base under an adapter is rounded to float16 when it is loaded",
    plant=lambda: _on_policy(_rounded(torch.float16)),
    expected=("OPT018",),
    changes=LORA,
    not_in_bfloat16="float16 has more digits, so weights in bfloat16 are not rounded by it",
)


def _moved(policy):
    weight = policy.get_input_embeddings().weight
    weight.copy_(weight.roll(1, 0))


EMBEDDING_MOVED = Fault(
    name="embedding-moved",
    numbers=(110,),
    what="each row of the embedding is read as that of the next id",
    plant=lambda: _on_policy(_moved),
    expected=("OPT018",),
)


ADAPTER_BEGINS_WITH_NOISE = Fault(
    name="adapter-begins-with-noise",
    numbers=(110,),
    what="B of a new adapter begins with small random numbers, not with 0",
    plant=lambda: _on_policy(
        lambda policy: [
            weight.normal_(0, 1e-3, generator=torch.Generator().manual_seed(0))
            for name, weight in policy.named_parameters()
            if "lora_B" in name
        ]
    ),
    expected=("OPT018",),
    changes=LORA,
)


def _one_a(policy):
    drawn = {}
    for name, weight in policy.named_parameters():
        if ".lora_A." in name:
            weight.copy_(drawn.setdefault(tuple(weight.shape), weight))


ADAPTER_DRAWN_ONCE = Fault(
    name="adapter-drawn-once",
    numbers=(),
    what="A of all adapted layers of one shape begins with the same random numbers",
    plant=lambda: _on_policy(_one_a),
    expected=("OPT018",),
    changes=LORA,
)
