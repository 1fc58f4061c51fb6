"""Each rule fires on its example and names its cause first, and says nothing of what is healthy."""

import itertools
from dataclasses import replace

import pytest
import torch

from dev.pages.rules import pages
from truing.doctor.diagnosis import Diagnosis, is_finding, ranked, select_rules
from truing.doctor.evidence import Setup, Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.token_gradients import expected_token_gradients
from truing.doctor.report.text import report_facts, report_lines
from truing.doctor.rule import SECTIONS
from truing.doctor.rule_inputs import INPUTS
from truing.doctor.rule_state import Checked, check, examine
from truing.doctor.rules import RULES, msk003, rwd001
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.errors import InvalidValueError, RecipeError
from truing.ops.losses import OBJECTIVES
from truing.types.step_table import StepNumbers

HEALTHY = {
    "grpo": {},
    "no deviation": {"advantage": "none"},
    "by batch": {"advantage": "batch"},
    **{
        name: {
            "surrogate": objective.surrogate,
            "ratio": objective.ratio,
            "aggregation": objective.aggregation,
            "clip_low": objective.clip_low,
            "clip_high": objective.clip_high,
            "max_ratio": objective.max_ratio,
        }
        for name, objective in OBJECTIVES.items()
    },
}


def codes(step):
    return [found.code for found in ranked(examine(step, RULES.values()))]


@pytest.mark.parametrize("code", RULES)
def test_the_example_fires_and_no_other_rule_names_its_cause_first(code):
    assert codes(RULES[code].example())[0] == code


@pytest.mark.parametrize("code", RULES)
def test_look_alikes_are_left_alone(code):
    for twin in RULES[code].lookalikes:
        assert code not in codes(twin()), twin.__name__


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_step_has_no_findings(name):
    assert codes(example_step(setup=HEALTHY[name])) == []


@pytest.mark.parametrize("code", RULES)
def test_no_look_alike_is_proven_to_be_anything(code):
    for twin in RULES[code].lookalikes:
        found = examine(twin(), RULES.values())
        assert [f.code for f in found if f.claim.verdict in (Verdict.PROVEN, Verdict.EVIDENCE)] == []


@pytest.mark.parametrize("code", RULES)
def test_a_rule_whose_input_is_missing_says_which(code):
    rule, step = RULES[code], RULES[code].example()
    for need in rule.needs:
        assert need in INPUTS
        if need in step.tokens:
            without = changed_step(step, without=[need])
            if rule.applies(without):
                assert check(without, rule) == Checked(lacking=(INPUTS[need],))


@pytest.mark.parametrize("code", RULES)
def test_every_page_is_whole(code):
    rule = RULES[code]
    assert rule.code == code
    assert rule.title.endswith(".")
    assert [name for name in SECTIONS if not rule.section(name)] == []
    assert rule.name == rule.name.lower().replace(" ", "-")


def test_the_pages_are_those_of_the_rules(request):
    folder = request.config.rootpath / "docs" / "rules"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == pages(), "python -m dev.pages.rules docs/rules writes them anew"


def test_rules_are_chosen_by_code_and_family():
    assert [rule.code for rule in select_rules(["RAT001"])] == ["RAT001"]
    assert {rule.code[:3] for rule in select_rules(["MSK", "ADV"])} == {"MSK", "ADV"}
    assert not [rule for rule in select_rules(ignore=["MSK"]) if rule.code.startswith("MSK")]
    with pytest.raises(RecipeError, match="no such rule"):
        select_rules(["XYZ"])


def test_a_suppressed_finding_is_kept_and_not_reported():
    rule = RULES["MSK001"]
    diagnosis = Diagnosis([rule], {"MSK001": "meant"})
    assert diagnosis.add(rule.example()) == []
    (result,) = diagnosis.results()
    assert (result.verdict, result.suppressed) == (Verdict.PROVEN, "meant")


def test_a_result_is_as_strong_as_its_strongest_finding_and_clean_without():
    rule = RULES["MSK001"]
    diagnosis = Diagnosis([rule])
    diagnosis.add(example_step())
    assert [each.verdict for each in diagnosis.results()] == [Verdict.CLEAN]
    diagnosis.add(rule.example())
    (result,) = diagnosis.results()
    assert (result.verdict, result.steps) == (Verdict.PROVEN, 2)
    assert result.verdict in FINDING_VERDICTS


def test_what_is_pulled_is_seen_whatever_the_mask_says():
    step = example_step()
    token_gradient = step.tokens["token_gradient"].clone()
    token_gradient[0] = 0.5  # the first token of a prompt
    found = examine(changed_step(step, token_gradient=token_gradient), [RULES["MSK003"]])
    assert [(f.claim.row, f.claim.start, f.claim.end) for f in found] == [(0, 0, 1)]
    assert torch.equal(step.tokens["token_gradient"].isnan(), ~step.tokens["policy_mask"])


UNKNOWN = {
    "ADV001": "the group of each sequence",
    "ADV004": "rewards",
    "ADV006": "the declared λ",
    "KLD001": "log-probabilities of the reference",
    "LEN003": "the share of cut rollouts",
    "MSK003": "whether any setting re-weights tokens or rewards",
    "RAT003": "old log-probabilities",
    "RAT006": "the declared upper clip",
    "REF001": "a digest of the reference's weights",
    "REF002": "log-probabilities of the reference",
    "REF003": "log-probabilities of the reference",
    "REF004": "a plain forward of the same tokens",
    "VAL001": "values per token",
    "VAL002": "values per token, or their explained variance",
    "VAL003": "the gradient of the loss per value of the critic",
}


@pytest.mark.parametrize("code", UNKNOWN)
def test_what_is_not_declared_is_not_checked_and_does_not_vanish(code):
    bare = Step(stage="train", step=0, metrics={}, samples=[], starts=[0], streams={}, setup=Setup())
    assert UNKNOWN[code] in check(bare, RULES[code]).lacking


@pytest.mark.parametrize("code", UNKNOWN)
def test_what_cannot_be_in_supervised_fine_tuning_is_not_asked_there(code):
    setup = Setup(algo="sft")
    bare = Step(stage="train", step=0, metrics={}, samples=[], starts=[0], streams={}, setup=setup)
    assert check(bare, RULES[code]) is None


def test_without_a_declared_kl_no_reference_is_asked_for_and_with_one_it_is():
    def asked(kl_coef):
        setup = Setup(algo="grpo", kl_coef=kl_coef)
        bare = Step(stage="train", step=0, metrics={}, samples=[], starts=[0], streams={}, setup=setup)
        return {code for code in RULES if code.startswith("REF") and check(bare, RULES[code])}

    assert asked(0.0) == set()
    assert asked(0.1) == asked(None) == {"REF001", "REF002", "REF003", "REF004"}


def test_a_reward_that_does_not_see_how_a_rollout_ended_is_a_fact():
    step = rwd001.cut_ones((1.0, 0.0, 1.0, 0.0) * 4, [i for i in range(16) if i % 4 < 3])
    (found,) = examine(step, [RULES["RWD001"]])
    assert found.claim.verdict is Verdict.FACT
    (found,) = examine(RULES["RWD001"].example(), [RULES["RWD001"]])
    assert found.claim.verdict is Verdict.SUSPECT


@pytest.mark.parametrize("groups", [1, 3])
def test_the_chance_that_cut_rollouts_are_the_best_is_that_of_all_ways_to_give_out_rewards(groups):
    tables = [(2, 1, 1, 2), (1, 1, 0, 2), (0, 2, 1, 1)][:groups]
    ways = []
    for both, cut, best, neither in tables:
        size = both + cut + best + neither
        drawn = itertools.combinations(range(size), both + best)
        ways.append([sum(each < both + cut for each in chosen) for chosen in drawn])
    seen = sum(both for both, *_ in tables)
    every = [sum(each) for each in itertools.product(*ways)]
    expected = sum(each >= seen for each in every) / len(every)
    assert rwd001.chance_of(tables) == pytest.approx(expected)


def test_a_fact_is_no_finding_and_is_distinguished():
    step = RULES["LEN003"].example()
    diagnosis = Diagnosis(select_rules(["LEN003", "MSK001"]))
    diagnosis.add(step)
    (fact,) = [each for each in diagnosis.results() if each.code == "LEN003"]
    assert fact.verdict is Verdict.FACT
    assert not is_finding(fact)
    facts = report_facts(diagnosis)
    assert ([each["code"] for each in facts["facts"]], facts["findings"]) == (["LEN003"], [])
    texts = [text for text, _ in report_lines(diagnosis, "RUN")]
    assert texts[0].startswith("FACT LEN003 rollouts-cut-off  at grpo ")
    assert any(text.startswith("0 rules found something") for text in texts)
    assert not any("affects" in text for text in texts)


@pytest.mark.parametrize(("before", "verdict"), [(0.5, Verdict.FACT), (0.0, Verdict.SUSPECT)])
def test_weights_that_move_without_a_gradient_are_a_fact_where_momentum_moves_them(before, verdict):
    weights = {"before": "a", "after": "b", "next": "b"}
    entries = [StepNumbers("grpo", 0, {"grad/norm": before}, {})]
    step = changed_step(example_step(), past=entries, metrics={"grad/norm": 0.0}, facts={"weights": weights})
    (found,) = examine(step, [RULES["OPT001"]])
    assert found.claim.verdict is verdict


def test_a_gradient_near_the_tolerance_is_no_missing_one():
    """The closed form is above the tolerance and the gradient below it, by rounding alone."""
    step = example_step()
    expected_N, advantage_N = expected_token_gradients(step), step.tokens["advantage"].clone()
    token = int(step.tokens["policy_mask"].nonzero()[0])
    tolerance = msk003.ROUNDING * float(expected_N.abs().max())
    advantage_N[token] *= tolerance * (1 + 1e-4) / float(expected_N[token].abs())
    step = changed_step(step, advantage=advantage_N)
    gradient_N = expected_token_gradients(step).masked_fill(~step.tokens["policy_mask"], torch.nan)
    gradient_N[token] *= 1 - 2e-4
    assert float(gradient_N[token].abs()) < tolerance
    near = changed_step(step, token_gradient=gradient_N.float())
    assert examine(near, [RULES["MSK003"]]) == []
    gradient_N[token] = 0.0
    (found,) = examine(changed_step(step, token_gradient=gradient_N.float()), [RULES["MSK003"]])
    assert found.claim.what == "no gradient reaches 1 token of the declared loss"


def in_float16(**changes):
    known = {"trainer": 0.6, "rounding": 0.03, "device": "cpu, torch.float16", "tokens": 64, "noisy": False}
    known |= {"mean": {"trainer": 0.5, "rounding": 0.02}, "median": {"trainer": 0.5, "rounding": 0.01}}
    return changed_step(example_step(), facts={"plain": known | changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [Verdict.PROVEN]),
        ({"noisy": True}, [Verdict.SUSPECT]),
        ({"device": "cuda, torch.float16"}, [Verdict.SUSPECT]),
        ({"median": {"trainer": 0.1}}, [Verdict.SUSPECT]),  # a few tokens alone are far off
        ({"tokens": 7}, []),
        ({"mean": {"trainer": 0.07, "rounding": 0.02}, "trainer": 0.3}, []),
        (
            {"trainer": 0.7, "mean": {"trainer": 0.07, "rounding": 0.02}, "median": {"trainer": 0.05}},
            [Verdict.SUSPECT],
        ),
    ],
)
def test_in_another_precision_rounding_says_what_is_far(changes, expected):
    found = examine(in_float16(**changes), [RULES["SMP005"]])
    assert [each.claim.verdict for each in found] == expected


@pytest.mark.parametrize(
    "need", ["advantages", "setup.clip", "sample.pay", "facts.weight", "metrics.reward", "x.y"]
)
def test_a_rule_that_needs_what_no_step_has_is_refused(need):
    with pytest.raises(InvalidValueError, match="needs what no step has"):
        replace(RULES["MSK003"], needs=(need,))
