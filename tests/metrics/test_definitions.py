"""Every recorded metric is documented."""

import pytest
from folders import ROOT

from dev.pages.metrics import page
from truing.errors import RecordError
from truing.metrics.definitions import METRICS, check_metric_names


def test_the_committed_page_is_made_of_the_table():
    assert (ROOT / "docs/metrics.md").read_text(encoding="utf-8") == page(), (
        "run: python -m dev.pages.metrics > docs/metrics.md"
    )


def test_names_are_unique_and_each_has_a_formula():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(metric.formula.endswith(".") for metric in METRICS)


def test_a_row_of_the_page_has_its_four_cells():
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(METRICS)
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


@pytest.mark.parametrize(
    "name", ["reward/mean", "reward_part/exact", "loss/supervised", "tokens/origin_share/demo"]
)
def test_known_names_pass(name):
    check_metric_names([name])


@pytest.mark.parametrize(
    "name", ["", "reward", "reward_part/", "reward_part/a/b", "loss/", "xlr", "lr/x", "kl"]
)
def test_unknown_names_are_refused(name):
    with pytest.raises(RecordError, match="unknown metric"):
        check_metric_names(["lr", name])
