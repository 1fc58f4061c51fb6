"""Spellings of numbers: their values, texts that are not numbers, and matches."""

import doctest
import json
import time
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from truing.errors import DataError
from truing.rewards import exact_match, f1, final_number, number_match, numbers, read_number
from truing.rewards.numbers import normalize_numbers

READ = {
    "5": 5,
    "-5": -5,
    "−5": -5,
    "+5": 5,
    "- 5": -5,
    "minus 5": -5,
    "1.4": "7/5",
    "7.50": "15/2",
    ".5": "1/2",
    "1,234.5": "2469/2",
    "1,234": 1234,
    "1,234,567": 1234567,
    "1 234": 1234,
    "1 234,5": "2469/2",
    "1.234,5": "2469/2",
    "1'234": 1234,
    "1\u202f234": 1234,
    "1_000": 1000,
    "1,5": "3/2",
    "1.234": "617/500",
    "$18": 18,
    "-$5": -5,
    "$-5": -5,
    "€1,000.50": "2001/2",
    "18 dollars": 18,
    "50%": 50,
    r"18\%": 18,
    "5 percent": 5,
    "1/2": "1/2",
    "-1/2": "-1/2",
    "3 1/2": "7/2",
    "3½": "7/2",
    "½": "1/2",
    r"\frac{1}{2}": "1/2",
    r"-\dfrac{3}{4}": "-3/4",
    r"\frac12": "1/2",
    r"3\frac{1}{2}": "7/2",
    "1e3": 1000,
    "1.5e-3": "3/2000",
    r"6.02 \times 10^{23}": 602 * 10**21,
    "6 × 10⁵": 600000,
    "6 x 10^5": 600000,
    r"\boxed{42}": 42,
    r"\boxed{\text{42 apples}}": 42,
    r"\boxed{1{,}000}": 1000,
    r"$\boxed{\$18}$": 18,
    r"\(5\)": 5,
    "(5)": 5,
    "**72**": 72,
    "72.": 72,
    "72 apples": 72,
    "5 km/h": 5,
    "20 m^2": 20,
    "20 m²": 20,
    "45°": 45,
    "1.4 million": 1400000,
    "5k": 5000,
    "１２": 12,
    "-0": 0,
    "–5": -5,
    "-(5)": -5,
    "1.234.567": 1234567,
    "1.234.567,89": Fraction(123456789, 100),
    "12,34,567": 1234567,
    "₹1,50,000.50": Fraction(300001, 2),
    "1’234.50": Fraction(2469, 2),
    "5\u00a0000,50": Fraction(10001, 2),
    "1\u066c234\u066b5": Fraction(2469, 2),
    "0,125": Fraction(1, 8),
    "-0,125": Fraction(-1, 8),
    r"\frac{-1}{2}": Fraction(-1, 2),
    r"\dfrac{1}{-2}": Fraction(-1, 2),
    "10^3": 1000,
    "-10^{-2}": Fraction(-1, 100),
    "5€": 5,
    "1.234,50 €": Fraction(2469, 2),
    "₩500": 500,
    "US$5": 5,
    "$1.2B": 1200000000,
    "$5m": 5000000,
    "5m": 5,
    r"5\,\text{cm}": 5,
    r"90^{\circ}": 90,
    r"45^\circ": 45,
    r"\{5\}": 5,
}
NONE = [
    "",
    "five",
    "5 or 6",
    "5, 6",
    "5 6",
    "5-6",
    "5–6",
    "10:30",
    "2024-01-05",
    "1.2.3",
    "192.168.1.1",
    "007",
    "02139",
    "555-1234",
    "--5",
    "5+2",
    "5^2",
    "x = 5",
    "not 5",
    "5 is wrong",
    "5 and a half",
    "5 dozen",
    "1/0",
    "1/2/3",
    "12,34,56",
    "1,2,3",
    "5π",
    "5 x",
    "5 tenths",
    "2 halves",
    "5 below zero",
    "1e999999999",
    "9" * 500,
    ">5",
    "~5",
    "±5",
    "NaN",
    "12 Angry Men 2",
]


@pytest.mark.parametrize("text", READ)
def test_what_a_number_is(text):
    number = read_number(text)
    assert number is not None
    assert number.value == Fraction(READ[text])


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number(text):
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("response", "wanted", "right"),
    [
        ("5", "-5", 0),
        ("-5", "5", 0),
        ("14", "1.4", 0),
        ("750", "7.50", 0),
        ("7.5", "7.50", 1),
        ("12", "1/2", 0),
        ("0.5", r"\frac{1}{2}", 1),
        ("1", "1e3", 0),
        ("13", "1e3", 0),
        ("1000", "1e3", 1),
        ("12345", "1,234.5", 0),
        ("50%", "50", 1),
        ("50%", "0.5", 1),
        ("0.5", "50%", 1),
        ("5%", "50%", 0),
        ("0.05", "50%", 0),
        ("$18", "18 dollars", 1),
        ("€18", "18 dollars", 0),
        ("5 km", "5 miles", 0),
        ("5", "5 km", 1),
        ("0.333", "1/3", 0),
        ("1.4 million", "1.4", 0),
        ("It costs 1.4 million dollars.", "1.4", 0),
        ("It costs 1.4 million dollars.", "1400000", 1),
        ("It is negative 5.", "5", 0),
        ("She has 5 and a half.", "5", 0),
        ("less than 5", "5", 0),
        ("3 != 5", "5", 0),
        ("5, not 6", "6", 0),
        ("The answer is not 5", "5", 0),
        ("5 or 6", "6", 0),
        ("at least 5", "5", 0),
        ("over $5", "5", 0),
        ("5 are left over", "5", 1),
        ("It is 5 tenths.", "5", 0),
        ("It is 5 below zero.", "5", 0),
        ("$1.2B", "1.2", 0),
        ("0,123", "123", 0),
        ("the temperature is \u20135 degrees", "5", 0),
        ("the temperature is \u20135 degrees", "-5", 1),
        ("5 km", "5 kilometers", 1),
        ("5 lbs", "5 pounds", 1),
        ("5 km", "5 meters", 0),
        ("5 m", "5 meters", 1),
        ("5 sq ft", "5 square feet", 1),
        ("5 s", "5 hours", 0),
    ],
)
def test_another_number_is_wrong(response, wanted, right):
    assert number_match(response, wanted) == right


FORMULAS = (
    *(r"\sqrt 5", r"\log 5", r"5 \pi", r"\pi + 5", r"\pi / 5", r"5 \times x", r"x \geq 5", r"\pm 5", "x - 5"),
    *(
        "x / 5",
        "5 x",
        "5 - x",
        "√ 5",
        "> 5",
        "5^x",
        r"5 \text{ or more}",
        "5 squared",
        "5 factorial",
        "5 sin x",
    ),
    *("twice 5", "a multiple of 5", "divisible by 5", "x + 5", "5 times x", "5 or more", "5 cubed"),
)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("form", [r"\boxed{%s}", "The answer is %s.", "<answer>%s</answer>", "%s"])
def test_a_number_within_a_formula_is_no_answer(formula, form):
    assert final_number(form % formula) is None


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{5 \text{ more}}",
        "The answer is 5 more apples.",
        "The answer is 5 meters squared.",
        "The answer is 5, twice as many as before.",
        "The answer is 5 a day.",
        "I get 5 - I am sure.",
        "Plan B: 5",
        "Tom's 5 apples",
    ],
)
def test_words_beside_a_number_are_no_formula(response):
    number = final_number(response)
    assert number is not None
    assert number.value == 5


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("2 + 3 = <<2+3=5>>5 eggs\n#### 5", 5),
        ("17 first.\n#### 1,042", 1042),
        ("#### $72 dollars", 72),
        ("I have 3 cats. #### 72", 72),
        ("#### 72 is what I said first, but #### 73", None),
        ("so 3 bags\nA: 72", 72),
        ("**Answer: 72**", 72),
        ("**Answer:** $72.50", Fraction(145, 2)),
        ("After 3 steps, the answer is 72. Check it 2 times.", 72),
        ("The final answer is: $\\boxed{\\frac{3}{4}}$.", Fraction(3, 4)),
        ("first \\boxed{4}\nbut then \\boxed{5}", 5),
        ("\\boxed{4} or \\boxed{5}", None),
        ("<answer>5</answer>", 5),
        ("<think>6</think>5", 5),
        ("She makes 18 dollars every day.", 18),
        ("2 + 3 = 5", 5),
        ("2 and 3 make 5 together, I think", None),
        ("#### 5 or 6", None),
        ("Answer: 5 B: 6", None),
        ("", None),
    ],
)
def test_which_number_a_response_gives(response, value):
    number = final_number(response)
    assert (None if number is None else number.value) == value


@pytest.mark.parametrize(("tolerance", "right"), [(0.0, 0.0), (0.001, 0.0), (0.01, 1.0)])
def test_a_tolerance_is_relative_to_the_right_number(tolerance, right):
    assert number_match("3.33", "10/3", tolerance) == (1.0 if tolerance == 0.001 else right)
    assert number_match("3.3", "10/3", tolerance) == right
    assert number_match("0.001", "0", tolerance) == 0.0


def test_a_right_answer_that_is_no_number_is_an_error():
    with pytest.raises(DataError, match="not a number"):
        number_match("5", "five")


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_every_spelling_of_a_decimal_is_the_same_number(units, places):
    value = Fraction(units, 10**places)
    plain = f"{units / 10**places:.{places}f}" if places else str(units)
    if abs(units) < 10**9:
        assert read_number(plain).value == value
        assert read_number(f"{units}e-{places}").value == value
    assert read_number(f"{units:,}").value == units
    assert read_number(f"{units:_}").value == units
    assert read_number(f"{units:,}".replace(",", "\u202f")).value == units
    assert read_number(f"\\boxed{{{units}}}").value == units


@given(st.integers(-999, 999), st.integers(-999, 999))
def test_two_numbers_are_equal_where_their_values_are(response, wanted):
    assert number_match(str(response), str(wanted)) == float(response == wanted)
    assert exact_match(str(response), [str(wanted)]) == float(response == wanted)
    assert f1(str(response), [str(wanted)]) == float(response == wanted)


@example("$$7")
@example("--0")
@example("--$4/")
@example("$-$4x:")
@settings(max_examples=300)
@given(st.text(alphabet="0123456789.,-/%$ e\\{}^x*=()#A:\n½", max_size=60))
def test_any_text_has_a_number_or_none(text):
    number = final_number(text)
    assert number is None or isinstance(number.value, Fraction)
    assert normalize_numbers(normalize_numbers(text)) == normalize_numbers(text)


@pytest.mark.parametrize(
    "part", ["\\boxed{", "A:", "=", "<answer>", "1,", "1 ", "1/", "(", "answer is ", "9"]
)
def test_no_text_takes_long(part):
    began = time.monotonic()
    final_number(part * 20_000)
    read_number(part * 20_000)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("response", "answer", "em"),
    [
        ("5", "-5", 0.0),
        ("14", "1.4", 0.0),
        ("750", "7.50", 0.0),
        ("1000", "1,000", 1.0),
        ("$5", "5", 1.0),
        ("1986.", "1986", 1.0),
        ("in 1986", "1986", 0.0),
        ("12 Angry Men", "12 angry men!", 1.0),
    ],
)
def test_the_metrics_of_squad_reject_another_number(response, answer, em):
    assert exact_match(response, [answer]) == em
    if em == 0.0 and " " not in response:
        assert f1(response, [answer]) == 0.0


def test_the_examples_of_the_docstrings_run():
    assert doctest.testmod(numbers).failed == 0
    assert doctest.testmod(numbers).attempted == 3


def test_every_official_grade_of_a_solution_is_the_same(data):
    lines = (data / "gsm8k/model_solutions_graded.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 12
    for row in rows:
        wanted = row["ground_truth"].rpartition("A: ")[2]
        assert number_match(row["solution"], wanted) == float(row["is_correct"]), row["solution"]
