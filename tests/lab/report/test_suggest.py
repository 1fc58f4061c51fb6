"""What a run suggests: hypotheses from its answers and curves, found ones first, as headers."""

import json
import math
import tomllib

import pytest
from runs import MINI

from truing.config import resolve
from truing.config.overrides import with_overrides
from truing.doctor.causes.cause import Advice, Answer
from truing.doctor.causes.example import example_history
from truing.doctor.rules import RULES
from truing.lab.report import suggest as module
from truing.lab.report.suggest import (
    ERROR_SHARE,
    RULE_ARMS,
    Suggestion,
    header_text,
    suggest,
)
from truing.lab.stats.e_process import min_pairs
from truing.lab.store.hypothesis_file import Header


@pytest.fixture
def suggested(monkeypatch):
    """Suggestions of a run with such answers, a minute a training and half of one a check."""

    def make(*answers, training=1.0, check=0.5):
        monkeypatch.setattr(module, "why", lambda history: list(answers))
        monkeypatch.setattr(module, "check_minutes", lambda history: check)
        monkeypatch.setattr(module, "training_minutes", lambda history: training)
        return suggest(example_history())

    return make


def answer(name="length", state="open", because="seen", changes=("kl.coef=0.1",), code=""):
    return Answer(state, because, advice=Advice("", changes=changes), title=name, code=code)


def test_nothing_is_suggested_where_nothing_is_open(suggested):
    assert suggested() == []
    assert suggested(answer(state="ruled out"), answer(changes=())) == []


def test_an_answer_with_changes_is_an_arm(suggested):
    (found,) = suggested(answer("too easy", changes=("grpo.steps=9", "kl.coef=0.1")))
    assert found.title == "Too easy"
    assert found.changes == ("grpo.steps=9", "kl.coef=0.1")
    assert found.claim == "with grpo.steps=9 kl.coef=0.1 the reward is higher"
    assert (found.arm, found.because, found.found) == ("changed", "seen", False)
    assert found.minutes == 2 * min_pairs(ERROR_SHARE)
    assert found.test == f"{min_pairs(ERROR_SHARE)} pairs or more with grpo.steps=9 kl.coef=0.1"


def test_what_was_found_comes_before_what_is_open(suggested):
    """However long its test takes."""
    rule = exact()
    check = answer(f"SUSPECTED {rule.code} x", "open", changes=(), code=rule.code)
    suggestions = suggested(answer("one", "open"), check, answer("two", "found"))
    assert [(each.arm, each.found) for each in suggestions] == [
        ("changed", True),
        ("", False),
        ("changed", False),
    ]
    assert suggestions[0].minutes > suggestions[1].minutes


def exact():
    return next(rule for rule in RULES.values() if rule.kind in "ECM" and rule.code not in RULE_ARMS)


def test_an_exact_rule_is_settled_by_a_check(suggested):
    rule = exact()
    (found,) = suggested(answer(f"PROVEN {rule.code} x", "found", changes=(), code=rule.code))
    assert (found.rules, found.changes, found.arm) == ((rule.code,), (), "")
    assert (found.found, found.minutes) == (True, 0.5)
    assert found.title.startswith(f"{rule.code}: ")
    assert found.test == f"check {rule.code} on two steps"


@pytest.mark.parametrize("code", RULE_ARMS)
def test_a_statistic_has_the_arms_of_its_remedies(suggested, code):
    suggestions = suggested(answer(f"SUSPECTED {code} x", "found", changes=(), code=code))
    assert {each.arm: each.changes for each in suggestions if each.arm} == RULE_ARMS[code]
    assert all(each.title.endswith(f": {each.arm}") for each in suggestions if each.arm)


def test_remedies_are_of_rules_and_recipes_that_there_are():
    """A remedy that no recipe takes is worth nothing."""
    for code, arms in RULE_ARMS.items():
        assert code in RULES
        for changes in arms.values():
            assert resolve(with_overrides(MINI, changes)) != resolve(MINI)


# Order and minutes.


def test_unknown_minutes_come_last(suggested):
    rule = exact()
    check = answer(f"SUSPECTED {rule.code} x", "open", changes=(), code=rule.code)
    suggestions = suggested(check, answer("arm", "open"), check=None)
    assert [bool(each.rules) for each in suggestions] == [False, True]
    assert math.isnan(suggestions[1].minutes)


def test_one_suggestion_of_a_title(suggested):
    first, second = answer("same", because="first"), answer("same", because="second")
    (found,) = suggested(first, second)
    assert found.because == "first"


# Headers.


def of_arm(**facts):
    given = {"title": "T", "claim": "it helps", "because": "seen", "found": False}
    return Suggestion(**given | {"arm": "no-kl", "changes": ("kl.coef=0",), "minutes": 16.0} | facts)


def parsed_header(suggestion):
    return Header.model_validate(tomllib.loads(header_text(suggestion)))


def test_a_header_of_an_arm():
    result = parsed_header(of_arm())
    assert result.arms == {"no-kl": ("kl.coef=0",)}
    assert (result.claim, result.why) == ("it helps", "seen")
    assert [str(each) for each in (*result.confirm, *result.refute)] == [
        "eval/reward, no-kl − baseline > 0",
        "eval/reward, no-kl − baseline < 0.05",
    ]
    assert result.check is None


def test_a_header_of_a_check():
    result = parsed_header(of_arm(arm="", changes=(), rules=("LEN001",), minutes=math.nan))
    assert result.check
    assert (result.check.rules, result.check.settles, result.arms) == (("LEN001",), True, {})


@pytest.mark.parametrize(
    "text", ['it said "no"', "C:\\new", "two\nlines", "tab\tand\rreturn", "ende – ∞ 🙂", "\x00\x1f\x7f"]
)
def test_a_header_holds_any_text(text):
    result = parsed_header(of_arm(claim=text, because=text, changes=(f"env.path={text}",)))
    assert (result.claim, result.why) == (text, text)
    assert result.arms["no-kl"] == (f"env.path={text}",)


@pytest.mark.parametrize("code", RULE_ARMS)
def test_each_remedy_makes_a_header(suggested, code):
    for each in suggested(answer(f"SUSPECTED {code} x", "found", changes=(), code=code)):
        assert parsed_header(each).claim == each.claim


def test_facts_are_json(suggested):
    for each in (of_arm(), of_arm(minutes=math.nan)):
        facts = json.loads(json.dumps(each.facts(), allow_nan=False))
        assert facts["test"] == each.test
    assert of_arm(minutes=math.nan).facts()["minutes"] is None
