"""Ranks that run another program, or begin otherwise, are refused with what differs."""

import pytest

from truing.config import resolve
from truing.distributed.ranks import ONE, Ranks
from truing.errors import DistributedError, RecipeError
from truing.trainer import rank_consistency
from truing.trainer.rank_consistency import check_same_program, code_digest


def ranks(monkeypatch, changes):
    """Return the first of two ranks; the other sends the same values, with changes."""
    monkeypatch.setattr(Ranks, "gather", lambda self, what, value: [value, value | changes])
    return Ranks(0, 2)


def recipe(**changes):
    return resolve(
        {
            "name": "r",
            "stages": ["sft", "grpo"],
            "model": {"name": "tiny"},
            "env": {"name": "arithmetic"},
            "sft": {"steps": 1, "batch_size": 4, "learning_rate": 1e-3},
            "grpo": {"steps": 1, "prompts_per_step": 3, "learning_rate": 1e-3},
            **changes,
        }
    )


def test_equal_ranks_pass_and_one_rank_compares_nothing(monkeypatch):
    check_same_program(ranks(monkeypatch, {}), recipe())
    monkeypatch.setattr(rank_consistency, "code_digest", None)
    check_same_program(ONE, recipe())


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("the code of truing", "0"),
        ("the version of torch", "1.0"),
        ("the version of Python", "2.7"),
        ("the recipe: sft.batch_size", 5),
        ("the recipe: sft.nonesuch", 1),  # a key that only one rank has
    ],
)
def test_another_program_is_refused_by_name(what, value, monkeypatch):
    with pytest.raises(DistributedError, match=f"the ranks differ in {what}") as error:
        check_same_program(ranks(monkeypatch, {what: value}), recipe())
    assert error.value.got == f"rank 1: {value}"
    assert error.value.remedy


def test_the_code_has_one_digest_and_a_changed_module_another(tmp_path, monkeypatch):
    for text in ("x = 1", "x = 2"):
        (tmp_path / "package" / "room").mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / "room" / "module.py").write_text(text)
        monkeypatch.setattr(rank_consistency, "__file__", str(tmp_path / "package" / "room" / "file.py"))
        code_digest.cache_clear()
        digest = code_digest()
        assert len(digest) == 16
        (tmp_path / text[-1]).write_text(digest)
    code_digest.cache_clear()
    assert (tmp_path / "1").read_text() != (tmp_path / "2").read_text()


@pytest.mark.parametrize(("count", "key"), [(4, "grpo.prompts_per_step = 3"), (5, "sft.batch_size = 4")])
def test_more_ranks_than_a_step_has_groups_are_refused(count, key):
    with pytest.raises(RecipeError, match=key):
        recipe(trainer={"ranks": count})


def test_as_many_ranks_as_groups_are_allowed():
    assert recipe(trainer={"ranks": 3}).trainer.ranks == 3
