"""A lab's folder: what is in it, what is wrong with it, and how much error each hypothesis has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labs import HEADER, lab_in

from truing.errors import LabError
from truing.lab.store.hypothesis_file import Header, Hypothesis
from truing.lab.store.lab import MAX_BEYOND_FAMILY, Lab, LabConfig, find_lab, open_lab
from truing.lab.store.ledger import History, Ledger, Run


def test_a_lab_is_read(tmp_path):
    lab = lab_in(tmp_path, {"h02": HEADER, "h01": HEADER})
    assert list(lab.hypotheses) == ["h01", "h02"]
    assert lab.config.name == "small"
    assert (lab.config.error, lab.config.family, lab.config.recipe) == (0.05, 1, "recipe.toml")
    assert lab.history.entries == []


def test_its_ledger_is_read(tmp_path):
    lab = lab_in(tmp_path)
    ledger = Ledger(lab.ledger_folder)
    ledger.write(Run("k", "a", "c", "m", "h01", "x", 0, "finished"))
    ledger.close()
    assert [entry.key for entry in open_lab(tmp_path).history.entries_of(Run)] == ["k"]
    assert lab.runs_folder.parent == lab.ledger_folder.parent


def test_a_lab_is_found_from_below(tmp_path):
    lab_in(tmp_path)
    below = tmp_path / "hypotheses"
    assert find_lab(below) == find_lab(tmp_path) == tmp_path.resolve()
    assert open_lab(below).root == tmp_path.resolve()


def test_no_lab(tmp_path):
    with pytest.raises(LabError, match="there is no lab in") as caught:
        find_lab(tmp_path)
    assert str(tmp_path) in caught.value.what
    assert "truing lab init" in caught.value.remedy


@pytest.mark.parametrize("name", ["h03", "h3", "H3", "H03"])
def test_a_hypothesis_as_typed(tmp_path, name):
    assert lab_in(tmp_path, {"h03": HEADER}).hypothesis(name).id == "h03"


@pytest.mark.parametrize("name", ["h4", "x", "", "3"])
def test_a_hypothesis_that_is_not_there(tmp_path, name):
    with pytest.raises(LabError, match="has no hypothesis") as caught:
        lab_in(tmp_path, {"h03": HEADER}).hypothesis(name)
    assert caught.value.expected == "h03"


def test_two_of_one_number(tmp_path):
    lab = lab_in(tmp_path)
    (lab.root / "hypotheses" / "h01-other.md").write_text(f"# Other\n\n```toml\n{HEADER}\n```\n")
    with pytest.raises(LabError, match="two hypotheses are h01") as caught:
        open_lab(tmp_path)
    assert "h01-other.md, h01-some.md" in str(caught.value)


@pytest.mark.parametrize("name", ["h09", "h01", "h1"])
def test_a_prerequisite_that_is_no_other_hypothesis(tmp_path, name):
    with pytest.raises(LabError, match="prerequisite that is no other hypothesis") as caught:
        lab_in(tmp_path, {"h01": f'prerequisites = ["{name}"]\n{HEADER}'})
    assert "h01-some.md" in caught.value.what


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("error = 0.5", "error"),
        ("error = 0", "error"),
        ("family = 0", "family"),
        ("famly = 6", "famly"),
        ("family =", "not TOML"),
        ("error = nan", "error"),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, told):
    with pytest.raises(LabError, match=told) as caught:
        lab_in(tmp_path, settings=settings)
    assert "lab.toml" in caught.value.what


def test_a_lab_without_a_name(tmp_path):
    lab_in(tmp_path)
    (tmp_path / "lab.toml").write_text("family = 2\n")
    with pytest.raises(LabError, match="lacks 'name'"):
        open_lab(tmp_path)


def test_one_more_entry_leaves_the_lab_as_it_was(tmp_path):
    lab = lab_in(tmp_path)
    run = Run("k", "a", "c", "m", "h01", "x", 0, "finished")
    assert lab.with_entry(run).history.entries[-1] == run
    assert lab.history.entries == []


# Shares of the error.


def share(number, family, error=0.05):
    header = Header.model_construct()
    config = LabConfig(name="x", error=error, family=family)
    hypothesis = Hypothesis(f"h{number:02d}", "t", None, header)  # type: ignore[arg-type]
    return Lab(None, config, {}, History()).error_share(hypothesis)  # type: ignore[arg-type]


def test_shares_by_hand():
    assert [share(n, 6) for n in (1, 6, 7, 8)] == pytest.approx([0.05 / 7, 0.05 / 7, 0.05 / 14, 0.05 / 28])
    assert share(1, 1) == 0.025


@given(st.integers(1, 40), st.floats(0.001, 0.49))
def test_all_hypotheses_together_keep_to_the_lab_s_error(family, error):
    """However many there will be: the sum goes up to the error, and is never more."""
    total = sum(share(number, family, error) for number in range(1, family + MAX_BEYOND_FAMILY + 1))
    assert total <= error * (1 + 1e-12)
    assert total == pytest.approx(error, rel=1e-5)
    with pytest.raises(LabError, match="too small a share"):
        share(family + MAX_BEYOND_FAMILY + 1, family, error)
