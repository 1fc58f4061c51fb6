"""The ladder holds for every algorithm, and each rung breaks where a fault is planted below it."""

import dataclasses
import json
import math

import pytest
import torch

import truing.algos.grpo
import truing.algos.loss_terms
import truing.algos.policy_algorithm
import truing.algos.ppo
import truing.algos.reinforce
import truing.chat.dialogue
import truing.engines.open_engine
import truing.learner.step
import truing.models.forward.hidden_states
import truing.models.policy
import truing.ops.losses
import truing.rollouts.step_samples
from dev.probes import table_model
from dev.probes.result import Measurement, ProbeOutcome, exactly, near
from dev.probes.run_probes import PROBES, probes_by_name, run_probe, run_probes
from truing.errors import ModelError, RecipeError
from truing.ops.losses import OBJECTIVES
from truing.types.token import Excluded

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("probes") / "table"
    table_model.build(made)
    return made


@pytest.mark.parametrize(
    ("probe", "algo"),
    [
        pytest.param(
            p, a, id=f"{p.name}-{a}", marks=() if a in p.algos[:1] and p.name != "P9" else pytest.mark.slow
        )
        for p in PROBES
        for a in p.algos
    ],
)
def test_every_number_is_as_it_must_be(folder, probe, algo):
    outcome = run_probe(probe, algo, folder)
    wrong = [f"{f.name}: {f.got}, not {f.expected}" for f in outcome.findings if not f.holds]
    assert not wrong
    assert outcome.passed


def negated(function):
    return lambda *given, **named: -function(*given, **named)


def raw_rewards(patch):
    patch.setattr(truing.algos.grpo, "group_advantages", lambda rewards, groups, scale: rewards)


def sign(patch):
    patch.setattr(truing.ops.losses, "clipped_surrogate", negated(truing.ops.losses.clipped_surrogate))


def other_prompts_rewards(patch):
    real = truing.algos.grpo.group_advantages
    patch.setattr(truing.algos.grpo, "group_advantages", lambda r, g, scale: real(r, g, scale).roll(8))


def positions(patch):
    real = truing.models.forward.hidden_states.decoder_states
    patch.setattr(
        truing.models.forward.hidden_states,
        "decoder_states",
        lambda model, ids, places, a: real(model, ids, places * 2, a),
    )


def denominator(patch):
    chosen = dataclasses.replace(OBJECTIVES["dr_grpo"], aggregation="token_mean")
    patch.setitem(OBJECTIVES, "dr_grpo", chosen)


def stop_is_taken_for_padding(patch):
    real = truing.rollouts.step_samples._without_truncated

    def without_stops(samples, *given):
        return [
            dataclasses.replace(
                row,
                policy_mask=row.policy_mask & (row.token_ids != table_model.END_ID),
                excluded=torch.where(
                    row.policy_mask & (row.token_ids == table_model.END_ID), int(Excluded.CUT), row.excluded
                ).to(torch.uint8),
            )
            for row in real(samples, *given)
        ]

    patch.setattr(truing.rollouts.step_samples, "_without_truncated", without_stops)


def credit_to_the_last_token(patch):
    real = truing.algos.grpo.broadcast_advantages

    def last(samples, rollouts, advantages):
        made = real(samples, rollouts, advantages)
        for row in made:
            trained = row.policy_mask.nonzero()[:, 0]
            row.advantage[trained[:-1]] = 0.0
        return made

    patch.setattr(truing.algos.grpo, "broadcast_advantages", last)


def rewriting_goes_unseen(patch):
    patch.setattr(truing.chat.dialogue, "_first_difference", lambda *given: "")


def kl_sign(patch):
    real = truing.algos.policy_algorithm.kl_term
    flipped = lambda cfg, how: dataclasses.replace(real(cfg, how), weight=-cfg.coef)  # noqa: E731
    patch.setattr(truing.algos.policy_algorithm, "kl_term", flipped)


def cut_is_the_end(patch):
    patch.setattr(
        truing.algos.ppo,
        "_bootstrap_values",
        lambda chains, cfg: torch.zeros(len(chains.rollouts), dtype=torch.float64),
    )


def entropy_sign(patch):
    patch.setattr(truing.algos.loss_terms, "entropy_loss", negated(truing.algos.loss_terms.entropy_loss))


def old_is_the_samplers(patch):
    patch.setattr(truing.learner.step, "with_old_logprobs", lambda samples, learner: list(samples))


def clip_swapped(patch):
    real = truing.ops.losses.clipped_surrogate
    patch.setattr(truing.ops.losses, "clipped_surrogate", lambda r, a, low, high: real(r, a, high, low))


def no_clip(patch):
    patch.setattr(truing.ops.losses, "clipped_surrogate", lambda r, a, low, high: -r * a.detach())


def ratio_of_tokens(patch):
    patch.setitem(OBJECTIVES, "gspo", dataclasses.replace(OBJECTIVES["gspo"], ratio="token"))


def no_cap(patch):
    real = truing.ops.losses.cispo_surrogate
    patch.setattr(truing.ops.losses, "cispo_surrogate", lambda x, r, a, cap: real(x, r, a, math.inf))


def forward_kl(patch):
    real = truing.ops.losses.kl
    patch.setattr(truing.ops.losses, "kl", lambda logprob, ref, how: real(ref, logprob, how))


def kl_doubled(patch):
    real = truing.ops.losses.kl
    patch.setattr(truing.ops.losses, "kl", lambda *given: 2 * real(*given))


def kl_without_ratio(patch):
    real = truing.algos.loss_terms.kl_loss
    patch.setattr(
        truing.algos.loss_terms,
        "kl_loss",
        lambda now, old, *rest, **how: real(now, now.detach(), *rest, **how),
    )


def entropy_of_first_tokens(patch):
    real = truing.algos.loss_terms.entropy_loss

    def first(entropy_BT, mask_BT, *rest):
        return real(entropy_BT, mask_BT & (mask_BT.cumsum(1) == 1), *rest)

    patch.setattr(truing.algos.loss_terms, "entropy_loss", first)


def correction_uncapped(patch):
    real = truing.algos.loss_terms.correction_weights
    patch.setattr(
        truing.algos.loss_terms,
        "correction_weights",
        lambda o, s, m, how, low, high: real(o, s, m, how, low, 1e9),
    )


def correction_inverted(patch):
    real = truing.algos.loss_terms.correction_weights
    patch.setattr(truing.algos.loss_terms, "correction_weights", lambda o, s, *rest: real(s, o, *rest))


def time_passes_for_the_world(patch):
    real = truing.algos.reinforce.discounted_returns
    patch.setattr(
        truing.algos.reinforce,
        "discounted_returns",
        lambda reward, mask, gamma: real(reward, torch.ones_like(mask), gamma),
    )


def adapter_stays_behind(patch):
    patch.setattr(truing.engines.local.engine, "sync_weights", lambda policy, plain: None)


@pytest.mark.parametrize(
    ("name", "algo", "fault"),
    [
        ("P0", "grpo", raw_rewards),
        ("P1", "grpo", sign),
        pytest.param("P1", "ppo", sign, marks=pytest.mark.slow),
        ("P2", "grpo", other_prompts_rewards),
        ("P3", "grpo", positions),
        ("P4", "dr_grpo", denominator),
        ("P4", "dapo", clip_swapped),
        ("P4", "ppo", no_clip),
        ("P4", "gspo", ratio_of_tokens),
        ("P4", "cispo", no_cap),
        pytest.param("P8", "grpo", forward_kl, marks=pytest.mark.slow),
        pytest.param("P8", "grpo", kl_doubled, marks=pytest.mark.slow),
        pytest.param("P8", "grpo", kl_without_ratio, marks=pytest.mark.slow),
        pytest.param("P10", "grpo", entropy_of_first_tokens, marks=pytest.mark.slow),
        ("P11", "grpo", correction_uncapped),
        pytest.param("P11", "grpo", correction_inverted, marks=pytest.mark.slow),
        ("P6", "reinforce", time_passes_for_the_world),
        ("P5", "grpo", stop_is_taken_for_padding),
        pytest.param("P6", "grpo", credit_to_the_last_token, marks=pytest.mark.slow),
        ("P7", "grpo", rewriting_goes_unseen),
        ("P8", "grpo", kl_sign),
        pytest.param("P9", "ppo", cut_is_the_end, marks=pytest.mark.slow),
        ("P10", "grpo", entropy_sign),
        ("P11", "grpo", old_is_the_samplers),
        ("P12", "grpo", adapter_stays_behind),
    ],
)
def test_a_planted_fault_breaks_its_rung(folder, monkeypatch, name, algo, fault):
    (probe,) = probes_by_name([name])
    fault(monkeypatch)
    if fault is positions:  # a session proves its forward before anything is drawn
        with pytest.raises(ModelError, match="differs from this model's own"):
            run_probe(probe, algo, folder)
        monkeypatch.setattr(truing.models.policy, "prove_forward", lambda policy: None)
        monkeypatch.setattr(truing.engines.open_engine, "prove_sampler", lambda policy, sampler: None)
    assert not run_probe(probe, algo, folder).passed


def test_what_is_not_a_number_or_not_there_has_not_passed():
    assert not Measurement("x", math.nan).holds
    assert not exactly("x", 1e-300).holds
    assert near("x", 1.005, 1.0, 0.01).holds
    assert not ProbeOutcome("P0", "grpo", ()).passed


def test_the_ladder_says_which_probe_and_algorithm_it_does_not_have():
    assert probes_by_name(()) == list(PROBES)
    with pytest.raises(RecipeError, match="no such probe"):
        probes_by_name(["P13"])
    with pytest.raises(RecipeError, match="these probes do not test"):
        list(run_probes(probes_by_name(["P9"]), ["grpo"]))


@pytest.mark.slow
def test_outcomes_come_in_order_as_json():
    entries = [
        json.loads(json.dumps(outcome.to_json()))
        for outcome in run_probes(probes_by_name(["P0", "P3"]), ["grpo"])
    ]
    assert [(line["probe"], line["algo"], line["pass"]) for line in entries] == [
        ("P0", "grpo", True),
        ("P3", "grpo", True),
    ]
    assert entries[0]["expected"]["policy gradient"] == [0.0, 0.0]
    assert entries[0]["got"]["policy gradient"] == 0.0
    assert entries[1]["expected"]["gradient, apart from the padded one"][0] is None
