"""The loss on demonstrations of evaluation tasks, measured without training."""

from contextlib import closing
from functools import partial
from pathlib import Path

from truing.config import Recipe
from truing.envs.base import Env
from truing.learner.memory_budget import measure_budget
from truing.learner.restore import restore_weights
from truing.trainer.evaluation_loss import EvaluationLoss, evaluation_loss
from truing.trainer.session import open_session


def demonstration_loss(
    recipe: Recipe, env: Env, run: Path | None = None, checkpoint: str | None = None
) -> EvaluationLoss:
    """Return the loss of a recipe's model, or of a run's checkpoint, on ``sft.eval_tasks`` tasks.

    Args:
        recipe: with a stage ``sft``.
        env: with the evaluation tasks.
        run: a run directory; None for the model before training.
        checkpoint: its name; None for the newest.
    """
    with closing(open_session(recipe, env)) as session:
        if run is not None:
            restore_weights(run, session.policy.loaded, session.policy.parameters, checkpoint)
        session.policy.gather_weights()
        module, parameters, cfg = session.policy.whole_module, session.policy.parameters, recipe.optimizer
        budget = measure_budget(module, parameters, cfg.memory_bytes, cfg.micro_batch_tokens)
        return evaluation_loss(session, module, partial(budget.micro_batches, module))
