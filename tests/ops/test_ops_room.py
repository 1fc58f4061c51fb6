"""What holds for every public formula: documented with shapes, tested by name, pure, importing only torch."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor

from truing import ops
from truing.ops import (
    adaptive_coefficients,
    advantages,
    aggregate,
    bounded_mean,
    correction,
    kl,
    logprobs,
    losses,
    masks,
    overlong_penalty,
    pass_at_k,
    ratio_histogram,
    ratios,
    returns,
    sampling,
    stable_exp,
)
from truing.types.sampling_params import SamplingParams
from truing.types.token import Origin

ROOM = Path(ops.__file__).parent
MODULES = sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")
PUBLIC = [
    (module, name)
    for module in MODULES
    for name, value in vars(import_module(f"truing.ops.{module}")).items()
    if inspect.isfunction(value) and value.__module__ == f"truing.ops.{module}" and not name.startswith("_")
]
FORMULAS = [pair for pair in PUBLIC if pair[0] != "argument_checks"]


def function(module, name):
    return getattr(import_module(f"truing.ops.{module}"), name)


def documented_argument(doc, name):
    """The text of one argument: from its name to the next argument or section."""
    result = re.search(rf"^    {name}: (.*?)(?=^    \w+: |^\w+:|\Z)", doc.split("Args:")[1], re.M | re.S)
    assert result, f"{name} is not documented"
    return result[1]


@pytest.mark.parametrize(("module", "name"), FORMULAS)
def test_documented_with_shapes(module, name):
    documented = function(module, name)
    doc = inspect.getdoc(documented)
    assert re.search(r"[=Σ≥]", doc), "no formula"
    assert "Returns:" in doc
    for argument, parameter in inspect.signature(documented).parameters.items():
        text = documented_argument(doc, argument)
        if "Tensor" not in str(parameter.annotation) or "Callable" in str(parameter.annotation):
            continue
        letters = argument.rpartition("_")[2]
        shape = f"[{', '.join(letters)}]" if letters.isupper() else r"shape|\[K\]"
        assert re.search(re.escape(shape) if letters.isupper() else shape, text), f"{argument} names no shape"


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_tested_by_name(module, name):
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob(f"test_{module}*.py"))
    assert re.search(rf"\b{name}\(", tests)


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_torch_types_and_errors(module):
    allowed = {"torch", "math", "typing", "dataclasses", "collections.abc"}
    tree = ast.parse((ROOM / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        else:
            continue
        for name in names:
            ours = name in ("truing.errors",) or name.startswith(("truing.ops.", "truing.types."))
            assert ours or name in allowed or name.startswith("torch."), name


NAN = float("nan")
MASK_BT = torch.tensor([[True, True, False], [True, False, False]])
LOGPROB_BT = torch.tensor([[-1.0, -2.0, NAN], [-0.5, NAN, NAN]])
OLD_BT = torch.tensor([[-1.1, -1.8, NAN], [-0.4, NAN, NAN]])
ADVANTAGE_BT = torch.tensor([[1.0, 1.0, NAN], [-1.0, NAN, NAN]])
RATIO_BT = torch.tensor([[0.5, 1.0, 2.0], [1.5, NAN, 1.0]])
ORIGIN_T = torch.tensor([Origin.PROMPT, Origin.SAMPLED, Origin.DEMO], dtype=torch.uint8)
REWARDS_R, GROUP_R = torch.tensor([1.0, 0.0, 3.0, 3.0]), torch.tensor([4, 4, 2, 2])
LOGITS_NV, IDS_N = torch.tensor([[0.0, 1.0, 2.0], [3.0, 2.0, -torch.inf]]), torch.tensor([2, 0])
PARAMS = SamplingParams(0.7, 2, 0.9, 0.1, 0.2, 0.3, 1.3, 2, 9, (0,))
HISTORY_NH, YES_NV = torch.tensor([[1, -1], [1, 1]]), torch.ones(2, 3, dtype=torch.bool)
UNIFORM_N = torch.tensor([0.1, 0.9], dtype=torch.float64)
BOOT_B, ANY = torch.tensor([0.0, 0.5]), {"objective": losses.OBJECTIVES["gspo"], "denominator": 2.0}
KL_OPTIONS = {"estimator": "k3", "aggregation": "token_mean", "denominator": 2.0}
CALLS = {
    "processed_logits": lambda: (
        sampling.processed_logits,
        LOGITS_NV,
        PARAMS,
        HISTORY_NH,
        {"allowed_NV": YES_NV},
    ),
    "pass_at_k": lambda: (pass_at_k.pass_at_k, 4, 2, 2),
    "mass_below": lambda: (sampling.mass_below, LOGITS_NV, IDS_N),
    "draw": lambda: (sampling.draw, LOGITS_NV, UNIFORM_N),
    "support_mask": lambda: (sampling.support_mask, [IDS_N, IDS_N[:0]], 3),
    "support_ids": lambda: (sampling.support_ids, MASK_BT[0]),
    "token_logprobs": lambda: (logprobs.token_logprobs, LOGITS_NV, IDS_N),
    "entropy": lambda: (logprobs.entropy, LOGITS_NV),
    "chunked_scores": lambda: (logprobs.chunked_scores, RATIO_BT, lambda h: h, IDS_N, lambda z, _: z, 1),
    "exclusion_reasons": lambda: (masks.exclusion_reasons, ORIGIN_T, ORIGIN_T > 0, ORIGIN_T > 0, "sampled"),
    "kl_mask": lambda: (masks.kl_mask, ORIGIN_T),
    "value_mask": lambda: (masks.value_mask, ORIGIN_T),
    "supervised_mask": lambda: (masks.supervised_mask, ORIGIN_T),
    "zero_outside": lambda: (masks.zero_outside, LOGPROB_BT, MASK_BT),
    "group_advantages": lambda: (advantages.group_advantages, REWARDS_R, GROUP_R, "group"),
    "leave_one_out": lambda: (advantages.leave_one_out, REWARDS_R, GROUP_R),
    "turn_returns": lambda: (advantages.turn_returns, REWARDS_R, REWARDS_R[:, None].repeat(1, 2)),
    "log_ratio": lambda: (ratios.log_ratio, LOGPROB_BT, OLD_BT),
    "excess": lambda: (stable_exp.excess, RATIO_BT),
    "times_exp": lambda: (stable_exp.times_exp, RATIO_BT, LOGPROB_BT),
    "scale_gradient_by_exp": lambda: (stable_exp.scale_gradient_by_exp, RATIO_BT, LOGPROB_BT),
    "importance_log_ratio": lambda: (ratios.importance_log_ratio, LOGPROB_BT, MASK_BT, "token"),
    "token_ratio": lambda: (ratios.token_ratio, LOGPROB_BT),
    "sequence_ratio": lambda: (ratios.sequence_ratio, LOGPROB_BT, MASK_BT),
    "importance_ratio": lambda: (ratios.importance_ratio, LOGPROB_BT, MASK_BT, "token"),
    "within_bounds": lambda: (ratios.within_bounds, LOGPROB_BT, 0.5, 2.0),
    "clip_mask": lambda: (ratios.clip_mask, RATIO_BT, ADVANTAGE_BT, 0.2, 0.2),
    "ratio_edges": lambda: (ratio_histogram.ratio_edges, 0.2, 0.2, 5.0),
    "ratio_counts": lambda: (ratio_histogram.ratio_counts, UNIFORM_N, [0.5], [2.0]),
    "kl_k1": lambda: (kl.kl_k1, LOGPROB_BT, OLD_BT),
    "kl_k2": lambda: (kl.kl_k2, LOGPROB_BT, OLD_BT),
    "kl_k3": lambda: (kl.kl_k3, LOGPROB_BT, OLD_BT),
    "kl": lambda: (kl.kl, LOGPROB_BT, OLD_BT, "k3"),
    "gae": lambda: (returns.gae, ADVANTAGE_BT, LOGPROB_BT, MASK_BT, BOOT_B, 0.9, 0.8),
    "discounted_returns": lambda: (returns.discounted_returns, ADVANTAGE_BT, MASK_BT, 0.9),
    "whiten": lambda: (returns.whiten, ADVANTAGE_BT, MASK_BT),
    "explained_variance": lambda: (returns.explained_variance, LOGPROB_BT, OLD_BT, MASK_BT),
    "kl_controller": lambda: (adaptive_coefficients.kl_controller, 0.1, 0.2, 0.1, 64, 1000.0),
    "entropy_controller": lambda: (adaptive_coefficients.entropy_controller, 0.1, 0.2, 0.3, 0.01),
    "linear_decay": lambda: (adaptive_coefficients.linear_decay, 1, 4),
    "overlong_fraction": lambda: (overlong_penalty.overlong_fraction, 9, 10, 4),
    "gaffke_tail": lambda: (bounded_mean.gaffke_tail, UNIFORM_N, 0.5),
    "gaffke_tail_saddlepoint": lambda: (bounded_mean.gaffke_tail_saddlepoint, UNIFORM_N, IDS_N, 0.5),
    "correction_weights": lambda: (
        correction.correction_weights,
        LOGPROB_BT,
        OLD_BT,
        MASK_BT,
        "mask",
        0.5,
        2.0,
    ),
    "effective_share": lambda: (correction.effective_share, UNIFORM_N),
    "aggregate": lambda: (aggregate.aggregate, LOGPROB_BT, MASK_BT, "sequence_mean", 2.0),
    "denominator": lambda: (aggregate.denominator, MASK_BT.sum(1), "token_mean", 3),
    "clipped_surrogate": lambda: (losses.clipped_surrogate, RATIO_BT, ADVANTAGE_BT, 0.2, 0.2),
    "cispo_surrogate": lambda: (losses.cispo_surrogate, LOGPROB_BT, RATIO_BT, ADVANTAGE_BT, 2.0),
    "policy_loss": lambda: (losses.policy_loss, LOGPROB_BT, OLD_BT, ADVANTAGE_BT, MASK_BT, ANY),
    "reinforce_surrogate": lambda: (losses.reinforce_surrogate, LOGPROB_BT, ADVANTAGE_BT),
    "kl_loss": lambda: (losses.kl_loss, LOGPROB_BT, OLD_BT, OLD_BT, MASK_BT, KL_OPTIONS),
    "entropy_loss": lambda: (losses.entropy_loss, LOGPROB_BT, MASK_BT, "token_mean", 3.0),
    "value_loss": lambda: (losses.value_loss, LOGPROB_BT, OLD_BT, ADVANTAGE_BT, MASK_BT, 0.2, 3.0),
    "cross_entropy_loss": lambda: (losses.cross_entropy_loss, LOGPROB_BT, MASK_BT, 3.0),
}


@pytest.mark.parametrize(("module", "name"), FORMULAS)
def test_inputs_are_unchanged(module, name):
    called, *arguments = CALLS[name]()
    keywords = arguments.pop() if isinstance(arguments[-1], dict) else {}
    inputs = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
    before = [value.clone() for value in inputs]
    called(*arguments, **keywords)
    for was, now in zip(before, inputs, strict=True):
        assert torch.equal(was.nan_to_num(nan=7e7), now.nan_to_num(nan=7e7))
