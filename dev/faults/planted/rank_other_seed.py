"""The second rank has another seed."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def run(recipe, *args, **options):
        return real(recipe.model_copy(update={"seed": recipe.seed + 1}), *args, **options)

    return run


FAULT = Fault(
    name="rank-other-seed",
    numbers=(96,),
    what="one rank has another seed",
    plant=lambda: patched("truing.api:run", _wrong),
    expected=(),
    refusal="the ranks differ in the recipe: seed",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
