"""Metrics of a step, worked by hand, and each loss label reached."""

import math
from dataclasses import replace

import pytest
import torch
from samples import scored, table_with

from truing.errors import InvalidValueError
from truing.metrics.definitions import check_metric_names
from truing.metrics.loss_label import loss_label
from truing.metrics.step import (
    entropy_metrics,
    kl_metrics,
    mismatch_metrics,
    policy_metrics,
    reward_metrics,
    step_metrics,
    token_metrics,
    value_metrics,
)
from truing.ops.losses import OBJECTIVES
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status
from truing.types.token import Origin

NAN = float("nan")
P, G, F, S, D = Origin.PROMPT, Origin.TEMPLATE, Origin.FORCED, Origin.SAMPLED, Origin.DEMO
GRPO, GSPO, CISPO = OBJECTIVES["grpo"], OBJECTIVES["gspo"], OBJECTIVES["cispo"]


COMPUTED = ("new_logprob", "entropy", "raw_entropy", "token_gradient")


def row(name="a", group="g", origin=(P, S, S), *, reward=NAN, parts=None, mask=None, **known):
    """A scored sample of given origins; streams are lists, NaN where not given."""
    origin = torch.tensor(origin, dtype=torch.uint8)
    computed = {key: known.pop(key) for key in COMPUTED if key in known}
    sample = Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id"), name),
        **dict.fromkeys(("task_id", "family", "prompt_hash"), "x"),
        group_id=group,
        prompt_length=1,
        turns=(),
        sampling_params=SamplingParams(),
        reward=reward,
        reward_parts=parts or {},
        ended_by=EndedBy.ENVIRONMENT,
        token_ids=torch.arange(len(origin)),
        origin=origin,
        policy_mask=origin == S if mask is None else torch.tensor(mask),
        supervised_mask=origin == D,
        **{"status": Status.DONE}
        | {key: torch.tensor(each) if isinstance(each, list) else each for key, each in known.items()},
    )
    return scored(sample, **computed)


def policy_row(ratios, advantages, **more):
    """A prompt token, then one sampled token per ratio, old log-probability −1."""
    return row(
        origin=(P, *[S] * len(ratios)),
        old_logprob=[NAN] + [-1.0] * len(ratios),
        new_logprob=[NAN] + [-1.0 + math.log(ratio) for ratio in ratios],
        advantage=[NAN, *advantages],
        **more,
    )


def test_rewards_count_rollouts_once_and_skip_what_has_none():
    rows = [
        row("a", "g", reward=1.0, parts={"f1": 0.5}),
        row("b", "g", reward=0.0, parts={"f1": 0.1}, status=Status.TRUNCATED),
        row("c", "h", reward=NAN, parts={"f1": NAN}, status=Status.ERROR),
    ]
    samples = [sample for sample, _ in rows]
    samples.append(replace(samples[0], sample_id="a/turn2"))
    assert reward_metrics(samples) == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/std": math.sqrt(0.5),  # deviations ±½: (¼ + ¼) / (2 − 1)
            "reward_part/f1": 0.3,
            "truncated/share": 1 / 2,
            "group/zero_variance_share": 0.0,
            "group/all_right_share": 0.0,
            "group/all_wrong_share": 0.0,
        }
    )


def test_groups_of_equal_rewards_are_split_into_too_easy_and_too_hard():
    rewards = {"easy": (1, 1), "hard": (0, 0), "half": (0.5, 0.5), "mixed": (0, 1), "lone": (1,)}
    rows = [row(f"{g}{i}", g, reward=float(r)) for g, values in rewards.items() for i, r in enumerate(values)]
    metrics = reward_metrics([sample for sample, _ in rows])
    assert metrics["group/zero_variance_share"] == 3 / 4
    assert metrics["group/all_right_share"] == 1 / 4
    assert metrics["group/all_wrong_share"] == 1 / 4


def test_demonstrations_have_a_reward_only_where_a_rollout_has_it():
    assert reward_metrics(row(origin=(P, D, D))[:1]) == {}
    assert reward_metrics(row(origin=(P, D, D), reward=1.0)[:1]) == {
        "reward/mean": 1.0,
        "truncated/share": 0.0,
    }


def test_tokens_are_counted_by_origin_and_by_use():
    mask, scored = [False, False, True, False, False], [NAN, NAN, -1.0, NAN, NAN]
    first = row(origin=(P, P, S, S, F), mask=mask, new_logprob=scored)
    metrics = token_metrics(table_with(first, row("b", origin=(P, G, D))))
    assert metrics == pytest.approx(
        {
            "tokens/sampled": 2,
            "tokens/trained": 2,  # one under the policy term, one under the supervised
            "tokens/scored": 1,
            "tokens/learnable_share": 2 / 4,  # of S S F D
            "tokens/origin_share/prompt": 3 / 8,
            "tokens/origin_share/template": 1 / 8,
            "tokens/origin_share/tool": 0,
            "tokens/origin_share/forced": 1 / 8,
            "tokens/origin_share/sampled": 2 / 8,
            "tokens/origin_share/demo": 1 / 8,
            "length/mean": 2.0,
            "length/max": 2,
        }
    )


def test_the_clip_is_read_with_the_sign_of_the_advantage():
    # band [0.8, 1.2]; A > 0 is clipped above, A < 0 below, and the other side still learns
    ratios = [1.5, 1.5, 0.5, 0.5, 1.0, 1.1]
    advantages = [1.0, -1.0, 1.0, -1.0, 2.0, 0.0]
    metrics = policy_metrics(table_with(policy_row(ratios, advantages)), GRPO)
    expected = {
        "clip/clipped_share": 2 / 6,
        "clip/high_share": 1 / 6,
        "clip/low_share": 1 / 6,
        "clip/active_share": 3 / 6,  # the second, the third and the fifth; the last has A = 0
        "clip/active_positive_share": 2 / 6,  # the third, whose advantage moves it back, and the fifth
        "clip/active_negative_share": 1 / 6,  # the second
        "clip/in_band_share": 2 / 6,  # the last two
        "ratio/mean": 6.1 / 6,
        "ratio/min": 0.5,
        "ratio/max": 1.5,
        "ratio/p50": 1.05,
        "ratio/p10": 0.5,
        "ratio/p90": 1.5,
        "ratio/mean_positive_advantage": 3.0 / 3,
        "ratio/mean_negative_advantage": 2.0 / 2,
        "advantage/mean": 2 / 6,
        "advantage/mean_abs": 6 / 6,
        "advantage/max_abs": 2.0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_what_is_active_or_clipped_by_sign_adds_up_to_what_has_an_advantage():
    """Also where rows without an advantage were not computed, and have no ratio."""
    signs = [("active_positive", "high"), ("active_negative", "low")]
    for advantages in ([1.0, -1.0, 0.0, 2.0], [0.0, 0.0, 0.0, -1.0], [3.0, 3.0, 3.0, 3.0]):
        silent = row("b", origin=(P, S), old_logprob=[NAN, -1.0], advantage=[NAN, 0.0])
        metrics = policy_metrics(table_with(policy_row([1.3, 0.7, 1.0, 1.1], advantages), silent), GRPO)
        shares = [metrics[f"clip/{part}_share"] for pair in signs for part in pair]
        assert sum(shares) == pytest.approx(sum(each != 0 for each in advantages) / 5)
        assert shares[0] + shares[2] == pytest.approx(metrics["clip/active_share"])
        positive = sum(each > 0 for each in advantages) / 5
        assert shares[0] + shares[1] == pytest.approx(positive)


def test_tokens_that_are_not_trained_do_not_count():
    masked = row(
        origin=(P, S, S),
        mask=[False, True, False],
        old_logprob=[NAN, -1.0, -1.0],
        new_logprob=[NAN, -1.0, 5.0],
        advantage=[NAN, 1.0, 9.0],
    )
    metrics = policy_metrics(table_with(masked), GRPO)
    assert metrics["ratio/max"] == 1.0
    assert metrics["advantage/mean_abs"] == metrics["advantage/max_abs"] == 1.0
    assert "ratio/std" not in metrics
    assert "ratio/mean_negative_advantage" not in metrics


def test_a_sequence_ratio_is_the_geometric_mean_of_its_tokens():
    metrics = policy_metrics(table_with(policy_row([4.0, 1.0], [1.0, 1.0])), GSPO)
    assert metrics["ratio/min"] == metrics["ratio/max"] == pytest.approx(2.0)  # √(4 · 1)
    assert metrics["clip/high_share"] == 1.0


def test_cispo_caps_and_does_not_clip():
    metrics = policy_metrics(table_with(policy_row([6.0, 1.0], [1.0, 1.0])), CISPO)
    assert metrics["clip/capped_share"] == 0.5
    assert "clip/clipped_share" not in metrics


def test_kl_over_trained_and_over_all_sampled_tokens():
    one = row(
        origin=(P, S, S),
        mask=[False, True, False],
        new_logprob=[NAN, -1.0, -1.0],
        ref_logprob=[NAN, -1.5, -1.0 + math.log(2)],
    )
    metrics = kl_metrics(table_with(one, row("b", origin=(P, S))))  # the second has no reference
    x = math.log(2)  # of the second token, whose k1 is −x and k3 is expm1(x) − x = 1 − log 2
    assert metrics == pytest.approx(
        {
            "kl_trained/k1": 0.5,
            "kl_trained/k2": 0.125,
            "kl_trained/k3": math.exp(-0.5) - 1 + 0.5,
            "kl_all/k1": (0.5 - x) / 2,
            "kl_all/k2": (0.125 + x * x / 2) / 2,
            "kl_all/k3": (math.exp(-0.5) - 0.5 + 1 - x) / 2,
            "kl_sequence/k1": 0.5 - x,
        },
        abs=1e-6,
    )


def test_mismatch_covers_every_sampled_token_masked_or_not():
    one = row(mask=[False, True, False], sampler_logprob=[NAN, -1.0, -2.0], new_logprob=[NAN, -1.0, -2.5])
    # x = trainer − sampler = 0 and −½: k1 = 0 and ½, k3 = 0 and e^−½ − ½
    assert mismatch_metrics(table_with(one)) == pytest.approx(
        {"mismatch/k1": 0.25, "mismatch/k3": (math.exp(-0.5) - 0.5) / 2, "mismatch/max_abs": 0.5}
    )


def test_entropy_is_over_trained_tokens():
    one = row(mask=[False, True, False], entropy=[NAN, 1.0, 9.0], raw_entropy=[NAN, 2.0, 9.0])
    assert entropy_metrics(table_with(one)) == {"entropy/mean": 1.0, "entropy/raw": 2.0}


def test_what_has_no_input_is_left_out_and_never_nan():
    metrics = step_metrics(table_with(row(reward=NAN)), GRPO)
    assert not any(math.isnan(value) for value in metrics.values())
    families = {name.split("/")[0] for name in metrics}
    assert families == {"tokens", "length", "context", "ended", "turns", "tools", "masked"}


@pytest.mark.parametrize("objective", [*OBJECTIVES.values(), None])
def test_every_metric_is_a_documented_float(objective):
    full = policy_row(
        [1.5, 0.5, 1.0], [1.0, -1.0, 1.0], reward=1.0, parts={"f1": 1.0}, ref_logprob=[NAN] + [-1.0] * 3
    )
    other = row(
        "b",
        reward=0.0,
        entropy=[NAN, 1.0, 1.0],
        raw_entropy=[NAN, 1.0, 1.0],
        sampler_logprob=[NAN, -1.0, -1.0],
    )
    metrics = step_metrics(table_with(full, other), objective)
    check_metric_names(metrics)
    assert all(type(value) is float for value in metrics.values())


def test_values_are_judged_against_the_mean_of_the_returns():
    """Returns 0 and 2, V 0 and 1: half of their variance is explained. Equal returns have none to explain."""
    half = row(value=[NAN, 0.0, 1.0], returns=[NAN, 0.0, 2.0])
    assert value_metrics(table_with(half)) == {
        "returns/mean": 1.0,
        "returns/std": pytest.approx(2**0.5),
        "value/mean": 0.5,
        "value/explained_variance": 0.5,
    }
    equal = row(value=[NAN, 0.0, 1.0], returns=[NAN, 2.0, 2.0])
    assert "value/explained_variance" not in value_metrics(table_with(equal))
    uncritical = row(returns=[NAN, 0.0, 2.0])
    assert value_metrics(table_with(uncritical)).keys() == {"returns/mean", "returns/std"}
    assert value_metrics(table_with(row())) == {}


def label(rows, objective=GRPO, loss=0.0, grad_norm=0.5):
    return loss_label(table_with(*rows), objective, loss=loss, grad_norm=grad_norm)


def test_an_on_policy_loss_near_zero_is_expected():
    result = label([policy_row([1.0, 1.00004], [1.0, -1.0])], loss=1e-5)
    assert result.label == "on_policy"
    assert "ratios are 1 to 4e-05" in result.text
    assert "mean advantage (0 over tokens), weighted by the objective: a value near 0 is" in result.text
    assert result.text.endswith("loss 1e-05, gradient norm 0.5")


def test_the_value_of_a_cispo_loss_is_not_explained_away():
    assert "only the gradient" in label([policy_row([1.0, 1.0], [1.0, -1.0])], CISPO).text


def test_equal_rewards_are_no_signal():
    result = label([policy_row([1.0, 1.5], [0.0, 0.0])], grad_norm=0.0)
    assert result.label == "no_signal"
    assert "2 advantages are 0" in result.text


def test_tokens_that_could_be_no_other_are_no_signal():
    certain = row(old_logprob=[NAN, 0.0, 0.0], new_logprob=[NAN, 0.0, 0.0], advantage=[NAN, 1.0, 1.0])
    assert label([certain], grad_norm=0.0).label == "no_signal"


def test_nothing_trained_is_all_masked():
    result = label([row(mask=[False] * 3)], grad_norm=0.0)
    assert (result.label, result.text) == (
        "all_masked",
        "none of 3 tokens is trained; loss 0, gradient norm 0",
    )


def test_advantages_without_gradient_are_a_fault():
    result = label([policy_row([1.0, 1.5], [1.0, 1.0])], grad_norm=0.0)
    assert result.label == "zero_gradient"
    assert "1 of 2 tokens should have a gradient" in result.text  # the other one is clipped


def test_a_zero_gradient_is_right_where_all_is_clipped():
    result = label([policy_row([1.5, 1.5], [1.0, 1.0])], grad_norm=0.0)
    assert result.label == "off_policy"
    assert "2 of 2 tokens are clipped" in result.text


def test_moved_ratios_are_off_policy():
    assert label([policy_row([1.0, 1.1], [1.0, -1.0])]).label == "off_policy"


def test_demonstrations_are_supervised():
    assert label([row(origin=(P, D, D))], None, loss=2.0).label == "supervised"
    assert label([row(origin=(P, D, D))], None, loss=2.0, grad_norm=0.0).label == "zero_gradient"


def test_trained_tokens_without_numbers_cannot_be_labelled():
    with pytest.raises(InvalidValueError, match="no policy token"):
        label([row()])
