import doctest
import random
import re
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import DataError
from truing.rewards import exact_match, extract_answer, f1, follows_format, format_answer, normalize_answer
from truing.rewards import text_match as text_module

WORDS = st.text(alphabet="ab Théæ—’.,!\u00a0\n-'", max_size=24)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The Cat", "cat"),
        ("  a  b ", "b"),
        ("U.S.A.", "usa"),  # punctuation goes before articles: no lone "a" is left
        ("A.N. Other", "other"),  # … and here "an" appears by it, and goes
        ("theatre and Anna", "theatre and anna"),  # articles are whole words
        ("it's", "its"),
        ("18th-century", "18thcentury"),
        ("São\u00a0Paulo", "são paulo"),  # a no-break space is white space
        ("ÉCOLE", "école"),
        ("l’École", "l’école"),  # only ASCII punctuation goes
        ("1,000.50", "100050"),
        ("a\u0301 la carte", "á la carte"),  # a letter and its accent are one, so this "a" is no article
        ("the", ""),
        ("?!", ""),
        ("", ""),
        ("İstanbul", "i̇stanbul"),  # lower-casing may add a combining dot; it stays
    ],
)
def test_normalize_answer_by_hand(text, wanted):
    assert normalize_answer(text) == wanted


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(text_module) == doctest.TestResults(failed=0, attempted=2)


@pytest.mark.parametrize(
    ("prediction", "answers", "wanted"),
    [
        ("Barcelona", ["Barcelona"], 1.0),
        ("in Barcelona, Spain", ["Barcelona"], 0.5),  # P 1/3, R 1: 2·(1/3)/(4/3)
        ("Major League", ["Major League Soccer"], 0.8),  # P 1, R 2/3: 2·(2/3)/(5/3)
        ("Soccer League Major", ["Major League Soccer"], 1.0),  # order does not count
        ("no no no", ["no"], 0.5),  # a repeated word is common once: P 1/3, R 1
        ("MLS", ["Major League Soccer", "MLS"], 1.0),  # the best alias counts
        ("Madrid", ["Barcelona"], 0.0),
        ("", ["Barcelona"], 0.0),
        ("the", ["Barcelona"], 0.0),
        ("", ["the"], 1.0),  # neither has words
        ("Barcelona", ["the"], 0.0),
    ],
)
def test_f1_by_hand(prediction, answers, wanted):
    assert f1(prediction, answers) == pytest.approx(wanted, abs=1e-12)


def test_exact_match_by_hand():
    assert exact_match("the Hateful Eight!", ["Hateful Eight"]) == 1.0
    assert exact_match("Eight Hateful", ["Hateful Eight"]) == 0.0
    assert exact_match("NIDA", ["National Institute of Dramatic Art", "nida"]) == 1.0
    assert exact_match("", ["Barcelona"]) == 0.0


@pytest.mark.parametrize("score", [f1, exact_match])
@pytest.mark.parametrize("answers", [[], "Barcelona"])
def test_answers_must_be_a_sequence_of_strings(score, answers):
    with pytest.raises(DataError, match="sequence of at least one string"):
        score("Barcelona", answers)


def slow_normalize(text):
    """The same rules, one character and then one piece at a time."""
    text = unicodedata.normalize("NFC", text).lower()
    pieces = re.split(r"(\W)", "".join(c for c in text if c not in string.punctuation))
    return " ".join("".join(" " if piece in {"a", "an", "the"} else piece for piece in pieces).split())


def slow_f1(prediction, answer):
    """Precision and recall by crossing words off a list."""
    predicted, left = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if not predicted or not left:
        return 1.0 if predicted == left else 0.0
    expected, common = len(left), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / expected
    return 2 * precision * recall / (precision + recall)


@given(WORDS, WORDS)
def test_f1_agrees_with_the_slow_one_and_is_bounded(prediction, answer):
    score = f1(prediction, [answer])
    assert score == pytest.approx(slow_f1(prediction, answer), abs=1e-12)
    assert 0.0 <= score <= 1.0
    assert score == f1(answer, [prediction])
    assert exact_match(prediction, [answer]) <= score


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), st.integers())
def test_f1_ignores_word_order_and_takes_the_best_alias(prediction, answers, seed):
    words = normalize_answer(prediction).split()
    random.Random(seed).shuffle(words)
    assert f1(" ".join(words), answers) == pytest.approx(f1(prediction, answers), abs=1e-12)
    assert f1(prediction, answers) == max(f1(prediction, [answer]) for answer in answers)


@given(st.text(max_size=40))
def test_an_answer_matches_itself_and_spacing_does_not_count(text):
    assert exact_match(text, [text]) == f1(text, [text]) == 1.0
    assert exact_match(f" {text}\n", [text]) == 1.0


@given(st.text(max_size=40))
def test_normalize_answer_agrees_with_the_slow_one(text):
    assert normalize_answer(text) == slow_normalize(text)


@pytest.mark.parametrize(
    ("response", "answer_format", "answer", "follows"),
    [
        ("Paris", "line", "Paris", True),
        ("\n  Paris \n", "line", "Paris", True),
        ("Paris\nbecause …", "line", "Paris", False),
        ("", "line", None, False),
        (" \n", "line", None, False),
        ("<answer>Paris</answer>", "tag", "Paris", True),
        ("I think so.\n<answer> Paris </answer>\n", "tag", "Paris", True),
        ("<answer>Paris</answer> or so", "tag", "Paris", False),
        ("<answer>Rome</answer> no, <answer>Paris</answer>", "tag", "Paris", False),
        ("<answer>Rome <answer>Paris</answer>", "tag", "Paris", False),
        ("<answer>Paris</answer></answer>", "tag", "Paris", False),
        ("<answer></answer>", "tag", None, False),
        ("<answer>Paris", "tag", None, False),
        ("</answer>Paris<answer>", "tag", None, False),
        ("Paris", "tag", None, False),
        ("<think>\nRome?\n</think>\n\nParis", "line", "Paris", True),
        ("<think>\n<answer>Rome</answer></think><answer>Paris</answer>", "tag", "Paris", True),
        ("<think>\nParis", "line", "<think>", False),
    ],
)
def test_extract_answer_by_hand(response, answer_format, answer, follows):
    assert extract_answer(response, answer_format) == answer
    assert follows_format(response, answer_format) is follows


@given(st.text(alphabet="abc é.,'", min_size=1).map(str.strip).filter(bool), st.sampled_from(["line", "tag"]))
def test_what_is_written_is_extracted(answer, answer_format):
    response = format_answer(answer, answer_format)
    assert extract_answer(response, answer_format) == answer
    assert follows_format(response, answer_format)
