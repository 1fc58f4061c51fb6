"""The recipe of the short run of `truing check`."""

from truing.config import resolve
from truing.trainer.preflight import preflight_recipe


def test_a_recipe_of_several_ranks_is_checked_in_this_process(mini):
    made = preflight_recipe(resolve(mini(trainer={"ranks": 2, "replicate": 2})))
    assert (made.trainer.ranks, made.trainer.replicate) == (1, "auto")
