"""The recipe of the short run of `truing check`."""

from truing.config import resolve
from truing.trainer.preflight import preflight_recipe


def test_a_recipe_of_several_ranks_is_checked_in_this_process(mini):
    engine = {"kind": "vllm", "count": 2}
    made = preflight_recipe(resolve(mini(trainer={"ranks": 2, "replicate": 2}, engine=engine)))
    assert (made.trainer.ranks, made.trainer.replicate, made.engine.count) == (1, "auto", 0)
