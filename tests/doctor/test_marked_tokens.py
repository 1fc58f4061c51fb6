"""Tokens that a rule points at, in all rows, and what a finding's event says of them."""

import json

import pytest
import torch

from truing.doctor import token_places as places_module
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.live_doctor import finding_event
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES
from truing.doctor.token_places import places
from truing.doctor.verdict import Span

STEP = example_step()


def mask(*tokens):
    wrong_N = torch.zeros(len(STEP.sample_of_token), dtype=torch.bool)
    wrong_N[list(tokens)] = True
    return wrong_N


def test_each_stretch_of_a_row_is_one_and_rows_are_parted():
    first, second = STEP.starts[:2]
    length = STEP.lengths[0]
    assert second == first + length > 4
    result = places(STEP, mask(0, 1, 3, second - 1, second, second + 1, len(STEP.sample_of_token) - 1))
    last = len(STEP.samples) - 1
    assert result.spans == (
        *(Span(0, 0, 2), Span(0, 3, 4), Span(0, length - 1, length), Span(1, 0, 2)),
        Span(last, STEP.lengths[last] - 1, STEP.lengths[last]),
    )
    assert (result.tokens, result.rows, result.row, result.start) == (7, 3, 0, 0)
    assert result.claim_fields == {"row": 0, "start": 0, "end": 2, "spans": result.spans}


def test_the_last_token_and_the_first_are_no_neighbours():
    whole = places(STEP, torch.ones(len(STEP.sample_of_token), dtype=torch.bool))
    assert whole.spans == tuple(Span(i, 0, length) for i, length in enumerate(STEP.lengths))
    ends = places(STEP, mask(0, len(STEP.sample_of_token) - 1))
    assert [each.row for each in ends.spans] == [0, len(STEP.samples) - 1]


def test_where_there_are_none_a_claim_says_nothing():
    nothing = places(STEP, mask())
    assert (bool(nothing), nothing.spans, nothing.claim_fields, nothing.rows) == (False, (), {}, 0)


def test_of_very_many_the_first_are_kept_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(places_module, "MAX_SPANS", 2)
    every = places(STEP, torch.ones(len(STEP.sample_of_token), dtype=torch.bool))
    assert (len(every.spans), every.tokens, every.rows) == (2, len(STEP.sample_of_token), len(STEP.samples))


@pytest.mark.parametrize("code", ["MSK001", "ADV001", "RAT001"])
def test_an_event_marks_all_that_a_rule_means(code):
    found, *_ = examine(RULES[code].example(), [RULES[code]])
    marks = json.loads(json.dumps(finding_event(found)))["marks"]
    assert marks[found.sample_id][0] == [found.claim.start, found.claim.end]
    spans = sum(end - start for stretches in marks.values() for start, end in stretches)
    assert spans == sum(each.end - each.start for each in found.claim.spans) >= 1


def test_an_event_marks_every_row():
    healthy = example_step()
    mask_N = healthy.tokens["policy_mask"].clone()
    wrong = [start + 1 for start in healthy.starts[:-1]]
    mask_N[wrong] = True
    found, *_ = examine(changed_step(healthy, policy_mask=mask_N), [RULES["MSK001"]])
    assert {name: [list(each) for each in spans] for name, spans in found.marks.items()} == {
        row.sample_id: [[1, 2]] for row in healthy.samples
    }


def test_a_claim_about_a_row_marks_the_sample_and_one_about_a_step_nothing():
    of_a_row = [
        each
        for rule in RULES.values()
        for each in examine(rule.example(), [rule])
        if each.claim.row is not None and each.claim.end <= each.claim.start
    ]
    of_a_step = [
        each for rule in RULES.values() for each in examine(rule.example(), [rule]) if each.claim.row is None
    ]
    assert of_a_row
    assert of_a_step
    assert all(each.marks == {each.sample_id: ()} for each in of_a_row)
    assert all(each.marks == {} for each in of_a_step)
