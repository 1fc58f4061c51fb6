import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truing.rewards.rules import LETTERS, chosen_option, faithfulness

PEOPLE = ("The 30-year-old", "The 60-year-old", "Not known")


@pytest.mark.parametrize(
    ("response", "chosen"),
    [
        ("A", 0),
        ("(b)", 1),
        ("C. Not known", 2),
        ("B: the 60 year old", None),  # "60 year old" is not the text, and a letter alone would hide it
        ("B) The 60-year-old!", 1),
        ("a. The 60-year-old", None),
        ("D", None),
        ("the 30-year-old", 0),
        ("It was the 30-year-old.", 0),
        ("The 30-year-old, not the 60-year-old", None),
        ("unknown", 2),
        ("Can't be determined", 2),
        ("It cannot be determined.", 2),
        ("Unknown: the 30-year-old or the 60-year-old", None),
        ("A man", None),
        ("", None),
        ("()", None),
    ],
)
def test_which_option_a_response_picks(response, chosen):
    assert chosen_option(response, PEOPLE) == chosen


def test_an_option_within_another_is_told_apart_by_being_the_whole_response():
    options = ("The man", "The tall man")
    assert chosen_option("the tall man", options) == 1
    assert chosen_option("the man", options) == 0


@settings(deadline=None)
@given(st.permutations(PEOPLE), st.sampled_from(["{0}", "({0})", "{0}. {1}", "{1}", "I say {1}"]))
def test_every_form_picks_its_option_wherever_it_stands(options, form):
    for i, option in enumerate(options):
        assert chosen_option(form.format(LETTERS[i], option), options) == i


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Planes", 1.0),
        ("Planes was released second.", 2 / 5),  # P 1/4, R 1/1, although more words are of the wrong answer
        ("Charley and the Angel was released second.", 0.0),
        ("Charley", 0.0),
        ("", 0.0),
        ("Planes. Charley and the Angel was released second.", 0.0),  # holds both
    ],
)
def test_faithfulness(response, score):
    wrong = ["It is unclear.", "Charley and the Angel was released second."]
    assert faithfulness(response, "Planes", wrong) == pytest.approx(score, abs=1e-12)


def test_as_near_to_both_is_no_preference():
    assert faithfulness("red or blue", "red", ["blue"]) == 0.0
