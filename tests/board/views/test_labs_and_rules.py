"""Labs and rules are told as their commands tell them, and markup in them stays text."""

import pytest
from labs import HEADER, declared, lab_in, run_of, with_runs

from truing.board.queries import Board
from truing.board.views.lab_figures import curves_figure, effects_figure
from truing.board.views.labs import _escape_html
from truing.doctor.rule import SECTIONS
from truing.doctor.rules import RULES
from truing.errors import BadRequestError, TruingError
from truing.lab.verdicts.verdict import judge
from truing.utils.jsonl import dump_json


def test_a_lab_reports_every_hypothesis_and_where_it_stands(tmp_path):
    lab = lab_in(tmp_path / "my lab", {"h01": HEADER, "h02": HEADER})
    answer = Board(tmp_path).answer("lab", {"lab": "my lab"})
    assert answer["name"] == "small"
    expected = [judge(lab, each).facts() for each in lab.hypotheses.values()]
    assert [{key: each[key] for key in expected[0]} for each in answer["hypotheses"]] == expected
    assert [each["claim"] for each in answer["hypotheses"]] == ["the arm helps"] * 2
    one = Board(tmp_path).answer("hypothesis", {"lab": "my lab", "hypothesis": "h02"})
    assert (one["title"], one["claim"], one["runs"]) == (lab.hypotheses["h02"].title, "the arm helps", [])
    assert one["text"].startswith("# H02: Some")
    dump_json(answer)
    dump_json(one)


def test_a_hypothesis_that_is_not_there_is_reported(tmp_path):
    lab_in(tmp_path / "lab")
    for name in ("h99", "../lab", "x"):
        with pytest.raises(TruingError, match="has no hypothesis"):
            Board(tmp_path).answer("hypothesis", {"lab": "lab", "hypothesis": name})


@pytest.mark.parametrize("spoil", ["lab.toml", "hypotheses/h01-some.md"])
def test_a_lab_that_cannot_be_read_is_reported(tmp_path, spoil):
    lab_in(tmp_path / "lab")
    (tmp_path / "lab" / spoil).write_text("nothing = [")
    board = Board(tmp_path)
    with pytest.raises(TruingError):
        board.answer("lab", {"lab": "lab"})
    assert board.answer("runs", {})["labs"] == ["lab"]


def test_figures_show_effects_and_curves(tmp_path):
    lab = lab_in(tmp_path)
    hypothesis = lab.hypotheses["h01"]
    assert effects_figure({"h01": judge(lab, hypothesis)}) == {}
    assert curves_figure(lab, judge(lab, hypothesis)) == {}
    lab = with_runs(declared(lab, hypothesis), hypothesis, {"changed": [0.5, 1.0]})
    lab = lab.with_entry(run_of(lab, hypothesis, "changed", 2, 9.0, outcome="crashed"))
    verdict = judge(lab, hypothesis)
    effect = effects_figure({"h01": verdict})["data"][0]
    assert (effect["x"], effect["y"]) == ([0.75], ["h01 (eval/reward)"])
    curves = curves_figure(lab, verdict)["data"]
    assert [(each["name"], each["y"]) for each in curves if each["line"]["width"] > 1] == [
        ("baseline", [0.0, 0.0]),
        ("changed", [0.0, 0.75]),
    ]


def test_markup_in_figures_is_text():
    figure = {"title": {"text": "<b>x</b>"}, "data": [{"name": "a & <i>", "y": [1.0, None]}]}
    assert _escape_html(figure) == {
        "title": {"text": "&lt;b&gt;x&lt;/b&gt;"},
        "data": [{"name": "a &amp; &lt;i&gt;", "y": [1.0, None]}],
    }


def test_every_rule_has_a_page_with_all_its_sections(board):
    listed = board.answer("rules", {})
    assert [each["code"] for each in listed] == list(RULES)
    for each in listed:
        page = board.answer("rule", {"code": each["code"]})
        assert [section["name"] for section in page["sections"]] == list(SECTIONS)
        assert all(section["text"].strip() for section in page["sections"])
        assert page["example"].startswith("def example")
        assert (page["name"], page["title"]) == (each["name"], each["title"])
        dump_json(page)
    with pytest.raises(BadRequestError, match="there is no rule len001"):
        board.answer("rule", {"code": "len001"})
