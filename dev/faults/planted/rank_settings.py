"""A rank that was started with something else."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.planted.optimizer import SCHEDULE_RESTARTED, WEIGHTS_NOT_RESTORED


def _rank_moments_not_restored(real):
    def restore(learner, folder):
        real(learner, folder)
        for state in learner.optimizer.state.values():
            state["exp_avg"].to_local().zero_()

    return restore


RANK_MOMENTS_NOT_RESTORED = Fault(
    name="rank-moments-not-restored",
    numbers=(101,),
    what="a resumed run lacks one rank's part of the optimizer's moments",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _rank_moments_not_restored),
    expected=("OPT010",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    on_ranks=(1,),
    resumed_after=2,
)


RANK_OTHER_CODE = Fault(
    name="rank-other-code",
    numbers=(96,),
    what="one rank runs another version of the code",
    plant=lambda: patched("truing.trainer.rank_consistency:code_digest", lambda real: lambda: "0" * 16),
    expected=(),
    refusal="the ranks differ in the code of truing",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


def _rank_other_data(real):
    def open_session(recipe, env, *args):
        session = real(recipe, env, *args)
        tasks = session.sampler.train_tasks[1:]
        return replace(session, sampler=replace(session.sampler, train_tasks=tasks))

    return open_session


RANK_OTHER_DATA = Fault(
    name="rank-other-data",
    numbers=(96,),
    what="one rank lacks a task of the data",
    plant=lambda: patched("truing.trainer.run:open_session", _rank_other_data),
    expected=(),
    refusal="the ranks differ in the training tasks",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


def _rank_other_draws(real):
    def rollouts_of(tasks, group_size, context, key):
        rollouts = real(tasks, group_size, context, key)
        for rollout in rollouts:
            rollout.key = (*rollout.key, "second rank")
        return rollouts

    return rollouts_of


RANK_OTHER_DRAWS = Fault(
    name="rank-other-draws",
    numbers=(95,),
    what="one rank samples with other random numbers",
    plant=lambda: patched("truing.rollouts.collect:_start_rollouts", _rank_other_draws),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "stages": ["grpo"]},
    on_ranks=(1,),
)


RANK_OTHER_LIBRARY = Fault(
    name="rank-other-library",
    numbers=(96,),
    what="one rank has another version of transformers",
    plant=lambda: patched(
        "truing.trainer.rank_consistency:version",
        lambda real: lambda library: "0.1" if library == "transformers" else real(library),
    ),
    expected=(),
    refusal="the ranks differ in the version of transformers",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_OTHER_MINIBATCHES = Fault(
    name="rank-other-minibatches",
    numbers=(95,),
    what="one rank splits the samples of a step into other minibatches",
    plant=lambda: patched(
        "truing.learner.step:permutation", lambda real: lambda *args: real(*args, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the rows of a minibatch",
    changes={"trainer.ranks": 2, "grpo.minibatches": 2},
    on_ranks=(1,),
)


def _rank_other_recipe(real):
    def run(recipe, *args, **options):
        sft = recipe.sft.model_copy(update={"learning_rate": 2 * recipe.sft.learning_rate})
        return real(recipe.model_copy(update={"sft": sft}), *args, **options)

    return run


RANK_OTHER_RECIPE = Fault(
    name="rank-other-recipe",
    numbers=(96,),
    what="one rank has another learning rate in its recipe",
    plant=lambda: patched("truing.api:run", _rank_other_recipe),
    expected=(),
    refusal="the ranks differ in the recipe: sft.learning_rate",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


def _rank_other_seed(real):
    def run(recipe, *args, **options):
        return real(recipe.model_copy(update={"seed": recipe.seed + 1}), *args, **options)

    return run


RANK_OTHER_SEED = Fault(
    name="rank-other-seed",
    numbers=(96,),
    what="one rank has another seed",
    plant=lambda: patched("truing.api:run", _rank_other_seed),
    expected=(),
    refusal="the ranks differ in the recipe: seed",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_OTHER_TASKS = Fault(
    name="rank-other-tasks",
    numbers=(95,),
    what="one rank shuffles the tasks of an epoch otherwise",
    plant=lambda: patched(
        "truing.rollouts.sampler:permutation", lambda real: lambda *args: real(*args, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the tasks of a step",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)


RANK_OTHER_WEIGHTS = Fault(
    name="rank-other-weights",
    numbers=(96,),
    what="one rank begins with another adapter, drawn from another seed",
    plant=lambda: patched(
        "truing.models.load_policy:seed_of", lambda real: lambda *key: real(*key, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the initial weights",
    changes={"trainer.ranks": 2, "lora": {"rank": 4}},
    on_ranks=(1,),
)


RANK_SCHEDULE_RESTARTED = replace(
    SCHEDULE_RESTARTED,
    name="rank-schedule-restarted",
    numbers=(99, 100),
    what="after a resume the schedule of one rank begins again",
    expected=("DST001",),
    on_ranks=(1,),
)


RANK_WEIGHTS_NOT_RESTORED = replace(
    WEIGHTS_NOT_RESTORED,
    name="rank-weights-not-restored",
    what="a resumed run lacks one rank's part of the weights, and has its optimizer state",
    on_ranks=(1,),
)
