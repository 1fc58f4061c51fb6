"""What programs ask of sampling, and what they get."""

import pytest

from truing.endpoint import wanted as options
from truing.endpoint.calls import CallRefused
from truing.types.sampling_params import SamplingParams


def overridden(*of, constrained=False):
    return options.overridden(*of, constrained=constrained)


DECLARED = SamplingParams(
    temperature=0.7, top_k=20, top_p=0.9, min_new_tokens=2, max_new_tokens=64, stop_ids=(5, 6)
)

SAME = [
    {},
    {"temperature": 0.7},
    {"top_k": 20, "top_p": 0.9, "min_p": 0},
    {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1},
    {"max_tokens": 64},
    {"max_tokens": 4096},
    {"min_tokens": 1},
    {"stop_token_ids": [6]},
]

OTHER = [
    ({"temperature": 0.2}, "temperature = 0.2: the recipe has sampling.temperature = 0.7"),
    ({"temperature": float("nan")}, "temperature = nan"),
    ({"temperature": "0.7"}, "temperature = '0.7': the recipe has sampling.temperature = 0.7"),
    ({"top_p": 1.0}, "top_p = 1.0: the recipe has sampling.top_p = 0.9"),
    ({"top_k": -1}, "top_k = -1: the recipe has sampling.top_k = 20"),
    ({"presence_penalty": False}, "presence_penalty = False: the recipe has sampling.presence_penalty = 0.0"),
    ({"max_tokens": 63}, "max_tokens = 63: the recipe has sampling.max_new_tokens = 64"),
    ({"min_tokens": 3}, "min_tokens = 3: the recipe has sampling.min_new_tokens = 2"),
    ({"stop_token_ids": [6, 7]}, "stop_token_ids = [6, 7]: the policy samples without it"),
    ({"stop_token_ids": 6}, "stop_token_ids = 6: the policy samples without it"),
    ({"stop": ["\n"]}, "stop = ['\\n']: the policy samples without it"),
    ({"seed": 7}, "seed = 7: the policy samples without it"),
    ({"never_heard_of": True}, "never_heard_of = True: the policy samples without it"),
]


@pytest.mark.parametrize("wanted", SAME, ids=str)
def test_what_the_recipe_declares_is_fine(wanted):
    assert overridden(wanted, DECLARED, frozenset()) == ()


@pytest.mark.parametrize(("wanted", "text"), OTHER, ids=lambda value: str(value)[:30])
def test_anything_else_is_refused_by_name_and_what_the_recipe_overrides_is_named(wanted, text):
    with pytest.raises(CallRefused) as refused:
        overridden(wanted, DECLARED, frozenset({"something_else"}))
    [name] = wanted
    assert refused.value.status == 400
    assert text in str(refused.value)
    assert f'override = ["{name}"] in [env]' in str(refused.value)
    assert overridden(wanted, DECLARED, frozenset({name})) == (name,)
    assert overridden(wanted, DECLARED, frozenset({"all"})) == (name,)


def test_a_refusal_names_all_that_is_not_overridden_and_nothing_else():
    wanted = {"temperature": 0.7, "seed": 1, "stop": ["x" * 500], "top_p": 0.5}
    with pytest.raises(CallRefused) as refused:
        overridden(wanted, DECLARED, frozenset({"seed"}))
    assert 'override = ["stop", "top_p"]' in str(refused.value)
    assert "temperature" not in str(refused.value)
    assert len(str(refused.value)) < 600
    assert overridden(wanted, DECLARED, frozenset({"seed", "stop", "top_p"})) == ("seed", "stop", "top_p")


def test_a_greedy_evaluation_is_compared_with_itself():
    greedy = SamplingParams(temperature=0.0)
    assert overridden({"temperature": 0, "top_k": -1}, greedy, frozenset()) == ()
    with pytest.raises(CallRefused):
        overridden({"temperature": 0}, DECLARED, frozenset())


def test_strict_arguments_are_what_a_grammar_gives_and_else_noted_not_refused():
    assert overridden({"strict": True}, DECLARED, frozenset(), constrained=True) == ()
    assert overridden({"strict": True}, DECLARED, frozenset()) == ("strict",)
    with pytest.raises(CallRefused) as refused:
        overridden({"strict": True, "seed": 1}, DECLARED, frozenset())
    assert "strict" not in str(refused.value)


def test_every_option_names_a_sampling_parameter():
    assert {each.name for each in options.OPTIONS.values()} <= set(SamplingParams.__dataclass_fields__)
