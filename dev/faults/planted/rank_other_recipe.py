"""The second rank has another recipe."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def run(recipe, *args, **options):
        sft = recipe.sft.model_copy(update={"learning_rate": 2 * recipe.sft.learning_rate})
        return real(recipe.model_copy(update={"sft": sft}), *args, **options)

    return run


FAULT = Fault(
    name="rank-other-recipe",
    numbers=(96,),
    what="one rank has another learning rate in its recipe",
    plant=lambda: patched("truing.api:run", _wrong),
    expected=(),
    refusal="the ranks differ in the recipe: sft.learning_rate",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
