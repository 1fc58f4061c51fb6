"""Weights on their way into a checkpoint."""

from contextlib import contextmanager

from dev.faults.fault import Fault, patched


def _saved_as(change):
    """Save other weights; ``change`` gets each trained weight with its name."""

    def make(real):
        def save(folder, state, tables, *args):
            changed = {name: change(name, weight) for name, weight in tables["trainable"].items()}
            return real(folder, state, {**tables, "trainable": changed}, *args)

        return save

    return patched("truing.learner.checkpoint:save", make)


CHECKPOINT_IN_BFLOAT16 = Fault(
    name="checkpoint-in-bfloat16",
    numbers=(119,),
    what="weights are rounded to bfloat16 on their way into a checkpoint",
    plant=lambda: _saved_as(lambda name, weight: weight.detach().bfloat16().float()),
    expected=(),
    refusal="has other weights than the last step left",
)


CHECKPOINT_WITHOUT_ONE_WEIGHT = Fault(
    name="checkpoint-without-one-weight",
    numbers=(119,),
    what="one weight of a checkpoint is 0",
    plant=lambda: _saved_as(lambda name, weight: weight.detach() * ("layers.1.mlp.up_proj" not in name)),
    expected=(),
    refusal="has other weights than the last step left",
)


@contextmanager
def _one_step_older(part):
    """Save the weights whose names have a part as they were before the last step."""
    kept = {}

    def remember(real):
        def set_learning_rates(learner, step):
            kept.update({name: weight.detach().clone() for name, weight in learner.parameters.items()})
            return real(learner, step)

        return set_learning_rates

    with (
        patched("truing.learner.learner:Learner.set_learning_rates", remember),
        _saved_as(lambda name, weight: kept.get(name, weight) if part in name else weight),
    ):
        yield


CHECKPOINT_ONE_STEP_OLDER = Fault(
    name="checkpoint-one-step-older",
    numbers=(119,),
    what="the norms of a checkpoint are those from before the last step",
    plant=lambda: _one_step_older("norm"),
    expected=(),
    refusal="has other weights than the last step left",
)
