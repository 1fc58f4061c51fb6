import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truing.rewards.option_match import LETTERS, chosen_option, faithfulness

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
        ("**A**", 0),
        ("**(B)**", 1),
        ("`c`", 2),
        ("[B]", 1),
        ("Answer: A", 0),
        ("answer: (b).", 1),
        ("**Answer:** B. The 60-year-old", 1),
        ("Final answer: **C**", 2),
        ("The answer is A.", 0),
        ("The correct answer is (B): the 60-year-old.", 1),
        ("So, the best option is b", 1),
        ("Option C", 2),
        ("I would pick option B", 1),
        ("It's (A)", 0),
        ("A is correct.", 0),
        (r"\boxed{B}", 1),
        (r"$\boxed{\text{B}}$", 1),
        ("<answer>B</answer>", 1),
        ("B - the 60-year-old", 1),
        ("B (the 60-year-old)", 1),
        ("(B) the 60-year-old", 1),
        ("B The 60-year-old", 1),
        ("- B", 1),
        ("__A__", 0),
        ("_(B)_", 1),
        ("'A'", 0),
        ("\u300cC\u300d", 2),
        ("\uff21", 0),
        ("\u2705 A", 0),
        ("\u2192 B.", 1),
        ("\u274c A", None),
        ("Ans: A", 0),
        ("Ans. (B)", 1),
        ("I'd go with B", 1),
        ("I believe the answer is A", 0),
        ("I think it's C.", 2),
        ("It must be B.", 1),
        ("C, since the context does not say.", 2),
        ("The answer is A because the 60-year-old worked.", 0),
        ("A is wrong because B", None),
        ("It is not A because of B", None),
        ("A is wrong, B", None),
        ("A is wrong", None),
        ("Answer: A or B", None),
        ("A or B", None),
        ("A and B", None),
        ("A, B", None),
        ("A. B", None),
        ("A B", None),
        ("not A", None),
        ("The answer is not A.", None),
        ("Answer: A. Answer: B.", None),
        ("A? No, B", None),
        ("B The 30-year-old", None),
        ("(B) The 30-year-old", None),
        ("Answer: (A) the 60-year-old", None),
        ("It was not the 30-year-old.", None),
        ("It isn't the 30-year-old", None),
        ("The 30-year-old is wrong", None),
        ("It is not known.", 2),
        ("Answer: unknown", 2),
        ("Answer: the 60-year-old", 1),
        ("Answer: E", None),
        ("A 30-year-old", 0),
        ("A man", None),
        ("", None),
        ("()", None),
    ],
)
def test_which_option_a_response_picks(response, chosen):
    assert chosen_option(response, PEOPLE) == chosen


def test_an_option_within_another_is_distinguished_by_being_the_whole_response():
    options = ("The man", "The tall man")
    assert chosen_option("the tall man", options) == 1
    assert chosen_option("the man", options) == 0


@pytest.mark.parametrize(
    ("response", "chosen"),
    [
        ("No", 1),
        ("**Yes**", 0),
        ("Answer: No", 1),
        ("B. No", 1),
        ("The answer is no.", 1),
        ("No, it does not.", 1),
        ("Yes or no", None),
        ("A. No", None),
        ("(a) Yes.", 0),
    ],
)
def test_yes_and_no_are_options_too(response, chosen):
    assert chosen_option(response, ("Yes", "No")) == chosen


def test_options_that_differ_in_punctuation_alone_are_two_numbers():
    assert chosen_option("-5", ("5", "-5")) == 1
    assert chosen_option("$1.40", ("$14.0", "$1.40")) == 1
    assert faithfulness("It cost 14 million.", "1.4 million", ["14 million"]) == 0.0
    assert faithfulness("1.4 million", "1.4 million", ["14 million"]) == 1.0


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
