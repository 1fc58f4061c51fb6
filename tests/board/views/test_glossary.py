"""Every word that the pages write in capitals is explained, once, where a newcomer finds it."""

from typing import get_args

import pytest

from truing.analysis.scorecard import CriterionVerdict as Judged
from truing.board.queries import Board
from truing.board.views.glossary import glossary_json
from truing.doctor.verdict import Verdict
from truing.types.token import Excluded, Origin

WORDS = [word for topic in glossary_json() for word in topic["words"]]
NAMES = [name for word in WORDS for name in word["names"]]
STUMBLED = (
    "step, stage, rollout, group, advantage, inner epoch, ratio, clip, k1, k3, null band, FACT,"
    " sampled by the policy, template, forced"
)


@pytest.mark.parametrize(
    "words",
    [
        [each.value for each in Verdict],
        [each.name for each in Origin],
        [each.name for each in Excluded],
        list(get_args(Judged)),
        STUMBLED.split(", "),
    ],
    ids=["verdicts", "origins", "excluded", "criteria", "stumbled"],
)
def test_every_word_is_explained(words):
    assert words
    assert [word for word in words if word not in NAMES] == []


def test_no_word_is_explained_twice_or_by_nothing():
    assert len(NAMES) == len(set(NAMES))
    assert all(word["means"] for word in WORDS)


def test_meanings_are_plain_text_of_the_page_of_the_docs():
    (recipe,) = (word["means"] for word in WORDS if word["names"] == ["recipe"])
    assert recipe == "a TOML file with all options of a run (keys)"


def test_the_board_reports_them(tmp_path):
    answer = Board(tmp_path).answer("words", {})
    assert [word for topic in answer for word in topic["words"] if topic["title"]] == WORDS
