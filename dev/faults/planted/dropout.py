"""The adapter's dropout, where the recipe declares it."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import LORA

DROPOUT = {**LORA, "lora.dropout": 0.2, "sft.steps": 12}


DROPOUT_OFF = Fault(
    name="dropout-off",
    numbers=(),
    what="the declared dropout is off while the adapter trains",
    plant=lambda: patched("truing.learner.step:training_mode", lambda real: lambda policy: policy.eval()),
    expected=("OPT019",),
    changes=DROPOUT,
)


def _without_step(real):
    return lambda *key: real("dropout") if "dropout" in key else real(*key)


SAME_ENTRIES_DROPPED = Fault(
    name="same-entries-dropped",
    numbers=(),
    what="each optimizer step drops the same entries of the adapter",
    plant=lambda: patched("truing.learner.step:seed_of", _without_step),
    expected=("OPT019",),
    changes=DROPOUT,
)


def _scored_in_training_mode(real):
    def score(model, *args, **kwargs):
        model.train()
        return real(model, *args, **kwargs)

    return score


EVALUATION_LOSS_WITH_DROPOUT = Fault(
    name="evaluation-loss-with-dropout",
    numbers=(102,),
    what="the loss on demonstrations of evaluation tasks is computed with dropout",
    plant=lambda: patched("truing.trainer.evaluation_loss:score", _scored_in_training_mode),
    expected=(),
    changes={**DROPOUT, "stages": ["sft"], "sft.eval_tasks": 8, "sft.eval_every": 2},
    refusal="is not that of the model",
)
