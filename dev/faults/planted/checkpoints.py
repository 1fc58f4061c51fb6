"""Weights on their way into a checkpoint."""

from contextlib import contextmanager

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PPO


def _saved_as(change, table="trainable"):
    """Save other weights; ``change`` gets each weight of a table with its name."""

    def make(real):
        def save(folder, state, tables, *args):
            changed = {name: change(name, weight) for name, weight in tables.get(table, {}).items()}
            return real(folder, state, {**tables, table: changed} if changed else tables, *args)

        return save

    return patched("truing.learner.checkpoint:save", make)


def _in_bfloat16(name, weight):
    return weight.detach().bfloat16().float()


CHECKPOINT_IN_BFLOAT16 = Fault(
    name="checkpoint-in-bfloat16",
    numbers=(119,),
    what="weights are rounded to bfloat16 on their way into a checkpoint",
    plant=lambda: _saved_as(_in_bfloat16),
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


CRITIC_OF_CHECKPOINT_ROUNDED = Fault(
    name="critic-of-checkpoint-rounded",
    numbers=(119,),
    what="the critic is rounded to bfloat16 on its way into a checkpoint",
    plant=lambda: _saved_as(_in_bfloat16, "critic"),
    expected=(),
    changes=PPO,
    refusal="has other weights of the critic than the last step left",
)


REFERENCE_OF_CHECKPOINT_ROUNDED = Fault(
    name="reference-of-checkpoint-rounded",
    numbers=(119,),
    what="a synced reference is rounded to bfloat16 on its way into a checkpoint",
    plant=lambda: _saved_as(_in_bfloat16, "reference"),
    expected=(),
    changes={"kl.coef": 0.05, "reference.sync_every": 2},
    refusal="has other weights of the reference than the last step left",
)


MOMENTS_OF_CHECKPOINT_ROUNDED = Fault(
    name="moments-of-checkpoint-rounded",
    numbers=(119,),
    what="AdamW's moments are rounded to bfloat16 on their way into a checkpoint",
    plant=lambda: patched(
        "truing.learner.checkpoint:_moments",
        lambda real: (
            lambda tables, optimizer: {
                name: moment.bfloat16().to(moment.dtype) for name, moment in real(tables, optimizer).items()
            }
        ),
    ),
    expected=(),
    refusal="has other moments than the last step left",
)


def _one_step_on(real):
    def restore(loop):
        stage, step = real(loop)
        return stage, step + (step > 0)

    return restore


RESUME_SKIPS_A_STEP = Fault(
    name="resume-skips-a-step",
    numbers=(),
    what="a resumed run goes on one step too late",
    plant=lambda: patched("truing.trainer.loop:Loop.restore", _one_step_on),
    expected=(),
    changes={"checkpoint_every": 1, "grpo.steps": 4},
    resumed_after=2,
    refusal="goes on after step 3, of which there is no checkpoint",
)


def _file_of_the_one_before(real):
    earlier = {}

    def save_tables(folder, tables, *args):
        now = {name: weight.detach().clone() for name, weight in tables["trainable"].items()}
        before, earlier["weights"] = earlier.get("weights", now), now
        return real(folder, {**tables, "trainable": before}, *args)

    return save_tables


CHECKPOINT_FILE_OLDER = Fault(
    name="checkpoint-file-older",
    numbers=(119,),
    what="the file of a checkpoint has the weights of the checkpoint before",
    plant=lambda: patched("truing.learner.checkpoint:save_tables", _file_of_the_one_before),
    expected=(),
    changes={"checkpoint_every": 1},
    refusal="has other weights than the last step left",
)


def _best_not_kept(real):
    return lambda *args, **options: real(*args, **options | {"best": None})


BEST_CHECKPOINT_REMOVED = Fault(
    name="best-checkpoint-removed",
    numbers=(),
    what="the checkpoint of the best evaluation is removed like any other",
    plant=lambda: patched("truing.trainer.checkpoint_manager:kept_steps", _best_not_kept),
    expected=(),
    changes={"checkpoint_every": 10, "checkpoint_limit": 2, "eval.every": 10, "eval.tasks": 8}
    | {"eval.samples": 4, "eval.temperature": 1.0, "sft.steps": 40, "sft.learning_rate": 1e-2},
    reward=None,
    refusal="is not the one with the largest score",
)
