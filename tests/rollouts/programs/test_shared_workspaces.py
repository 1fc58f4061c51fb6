"""Ranks of one machine share the workspaces of their programs."""

from types import SimpleNamespace

import pytest

from truing.rollouts.sampler import _share_workspaces
from truing.utils import workspaces


@pytest.mark.parametrize(("there", "shared"), [(True, True), (False, False)])
def test_another_rank_finds_the_workspaces_of_the_first(tmp_path, monkeypatch, there, shared):
    first = tmp_path / "first"
    if there:
        (first / "rollout").mkdir(parents=True)
    monkeypatch.setattr(workspaces, "_ROOTS", {})
    _share_workspaces(SimpleNamespace(rank=1, gather=lambda what, own: [str(first), own]))
    found = workspaces.workspace_of({"workspace": "rollout"})
    assert (found == first / "rollout") == shared
    assert not shared or workspaces.workspaces_root() == first
