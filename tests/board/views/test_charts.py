"""Every number has a chart, a definition, and the bounds that its recipe gives it."""

import math
import re

import numpy as np
import pytest
from shown import facts_of, opened_run, write

from truing.board.queries import Board
from truing.board.views.chart_groups import CHART_GROUPS
from truing.board.views.charts import (
    chart_columns,
    chart_groups_of,
    find_chart,
    metric_of,
    recipe_limits,
    ungrouped_charts,
)
from truing.config import resolve
from truing.metrics.definitions import METRICS
from truing.record.step_columns import columns_of

EVERY = [re.sub(r"<\w+>", "some", metric.name) for metric in METRICS] + ["seconds/some"]


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """A run that has every number that a run may have."""
    folder = tmp_path_factory.mktemp("every")
    with opened_run(folder / "run") as writer:
        for step in range(3):
            numbers = {name: step + i / 1000 for i, name in enumerate(EVERY[:-1])}
            write(writer, step, seconds={"some": 0.5 + step}, **numbers)
    return Board(folder)


def test_every_metric_is_drawn_somewhere_and_once_with_its_own_definition(every):
    head = every.answer("run", {"run": "run"})
    drawn = {}
    for group in head["rooms"]:
        for each in group["charts"]:
            answer = every.answer("chart", {"run": "run", "chart": each["name"]})
            assert answer["title"] == each["title"]
            defined = [metric["name"] for metric in answer["definitions"]]
            for series in answer["series"]:
                drawn.setdefault(series["name"], []).append(group["title"])
                assert metric_of(series["name"]).name in defined
    assert sorted(drawn) == sorted(EVERY)
    assert {name: rooms for name, rooms in drawn.items() if len(rooms) > 1} == {}
    assert [metric_of(name) for name in EVERY[:-1]] == list(METRICS)


def test_charts_name_only_numbers_that_there_are():
    patterns = [metric.name for metric in METRICS] + ["seconds/<phase>"]
    for group in CHART_GROUPS:
        for chart in group.charts:
            for name in chart.names:
                if name.endswith("*"):
                    assert any(each.startswith(name[:-1]) for each in patterns), name
                else:
                    assert name in patterns, name
    names = [chart.name for group in CHART_GROUPS for chart in group.charts]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith("~")]


def test_what_no_chart_shows_has_one_of_its_own():
    columns = columns_of([])
    columns = type(columns)(**vars(columns) | {"numbers": {"odd/one": np.empty(0), "lr": np.empty(0)}})
    rest = ungrouped_charts(columns)
    assert [(chart.name, chart.names) for chart in rest.charts] == [("~odd/one", ("odd/one",))]
    assert chart_columns(find_chart("~odd/one", columns), columns) == ["odd/one"]
    assert [group["title"] for group in chart_groups_of(columns)] == ["Policy", "Other"]
    assert find_chart("~lr", columns) is None


def test_series_are_the_columns(board, trained):
    from truing.record import RunReader

    rows = RunReader(trained / "mini").steps()
    head = board.answer("run", {"run": "mini"})
    seen = set()
    for each in (each for group in head["rooms"] for each in group["charts"]):
        chart = board.answer("chart", {"run": "mini", "chart": each["name"]})
        for series in chart["series"]:
            name = series["name"]
            entries = [
                row.seconds.get(name[8:], math.nan)
                if name.startswith("seconds/")
                else row.metrics.get(name, math.nan)
                for row in rows
            ]
            expected = [(i, value) for i, value in enumerate(entries, start=1) if math.isfinite(value)]
            drawn = [(x, y) for x, y in expected if y > 0 or not chart["log"]]
            assert list(zip(series["x"], series["y"], strict=True)) == drawn, name
            assert series["not_above_0"] == len(expected) - len(drawn)
            assert series["last"] == expected[-1][1]
            seen.add(name)
    recorded = {name for row in rows for name in row.metrics} | {
        f"seconds/{name}" for row in rows for name in row.seconds
    }
    assert seen == recorded


def test_labels_leave_out_what_all_have_in_common(every):
    answer = every.answer("chart", {"run": "run", "chart": "ratio"})
    assert [each["label"] for each in answer["series"]] == ["min", "p10", "p50", "p90", "max", "mean"]
    answer = every.answer("chart", {"run": "run", "chart": "variance"})
    assert answer["series"][0]["label"] == "zero_variance_share"
    answer = every.answer("chart", {"run": "run", "chart": "gates"})
    assert {each["label"].split("/")[0] for each in answer["series"]} == {"gate", "correction"}


def test_a_chart_may_be_asked_for_from_one_step_to_another(board):
    def asked(**window):
        return board.answer("chart", {"run": "mini", "chart": "lr", **window})["series"][0]["x"]

    assert asked() == list(range(1, 18))
    assert asked(**{"from": "4", "to": "6"}) == [4, 5, 6]
    assert asked(**{"from": "16"}) == [16, 17]
    assert asked(to="2") == [1, 2]
    assert asked(**{"from": "9", "to": "8"}) == []
    assert asked(**{"from": "90"}) == []


def test_a_log_axis_is_for_numbers_above_0(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        for step, value in enumerate((0.0, 0.0, 2e-5, math.inf)):
            write(writer, step, **{"mismatch/max_abs": value})
    board = Board(tmp_path)

    def asked(**window):
        answer = board.answer("chart", {"run": "run", "chart": "mismatch", **window})
        (series,) = answer["series"]
        return answer["log"], series["y"], series["not_above_0"]

    assert asked() == (True, [2e-5], 2)
    assert asked(to="2") == (False, [0.0, 0.0], 0)
    assert asked(**{"from": "4"}) == (False, [], 0)


def limits(stage="grpo", **changes):
    result = recipe_limits(resolve(facts_of(**changes)["recipe"]), stage)
    return {name: {each["label"]: each["y"] for each in lines} for name, lines in result.items()}


def test_bounds_are_those_of_the_objective_where_the_recipe_names_none():
    assert limits()["ratio"] == {"1 − clip_low": 0.8, "1 + clip_high": 1.2}
    assert limits(grpo={"objective": "dapo"})["ratio"] == {"1 − clip_low": 0.8, "1 + clip_high": 1.28}
    gspo = limits(grpo={"objective": "gspo"})["ratio"]
    assert gspo == pytest.approx({"1 − clip_low": 0.9997, "1 + clip_high": 1.0004})
    assert limits(grpo={"objective": "cispo"})["ratio"] == {"max_ratio": 5.0}
    assert limits(grpo={"objective": "reinforce"})["ratio"] == {}


def test_bounds_are_those_of_the_recipe():
    result = limits(
        grpo={"objective": "dapo", "clip_low": 0.1, "clip_high": 0.4},
        kl={"coef": 0.1, "target": 0.02, "cap": 3.0},
        entropy={"target": 1.5},
        optimizer={"max_grad_norm": 0.7},
        sampling={"max_new_tokens": 17},
    )
    assert result["ratio"] == {"1 − clip_low": 0.9, "1 + clip_high": 1.4}
    assert result["kl"] == {"kl.target": 0.02, "kl.cap": 3.0}
    assert result["entropy"] == {"entropy.target": 1.5}
    assert result["grad"] == {"optimizer.max_grad_norm": 0.7}
    assert result["length"] == {"sampling.max_new_tokens, of each turn": 17.0}
    assert result["audit"] == {"EVIDENCE threshold": 6.0}
    assert result["alignment"] == {"expected": 1.0}
    assert limits(grpo={"objective": "cispo", "max_weight": 8.0})["ratio"] == {"max_ratio": 8.0}
    assert limits("sft") == {"grad": limits()["grad"]}
    ppo = limits("ppo", stages=["sft", "ppo"], ppo={"steps": 1, "learning_rate": 1e-3, "clip_high": 0.5})
    assert ppo["ratio"] == {"1 − clip_low": 0.8, "1 + clip_high": 1.5}


def test_bounds_follow_what_a_guard_changed(tmp_path):
    guard = {"rollbacks": 2, "window": 2, "learning_rate": 0.5, "change": ["grpo.clip_high=0.05"]}
    with opened_run(tmp_path / "run", guard=guard) as writer:
        write(writer, 0)
        write(writer, 1)
        facts = {"stage": "grpo", "step": 2, "to": 1, "reason": "it broke", "kept": "abandoned/grpo-1"}
        writer.write_event("rollback", **facts)
    board = Board(tmp_path)
    answer = board.answer("run", {"run": "run"})["bounds"]["grpo"]["ratio"]
    assert answer == [{"label": "1 − clip_low", "y": 0.8}, {"label": "1 + clip_high", "y": 1.05}]
