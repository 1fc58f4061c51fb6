"""The warning about a run that has lost steps is for runs alone."""

import pytest

from truing.cli.inspect.lost_steps import warn_of_lost_steps


def test_a_folder_that_is_no_run_has_no_warning(tmp_path, capsys):
    """The command refuses it: a warning before that says nothing more."""
    (tmp_path / "recipe.toml").write_text("")
    warn_of_lost_steps(tmp_path / "nowhere", tmp_path / "recipe.toml", tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lost", [True, False])
def test_a_run_has_it_if_a_line_is_missing(trained_run, capsys, lost):
    run = trained_run("run").run
    lines = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    if lost:
        (run / "steps.jsonl").write_text("".join([lines[0], *lines[2:]]))
    warn_of_lost_steps(run)
    assert ("warning:" in capsys.readouterr().err) == lost
